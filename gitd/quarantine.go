package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/history"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// Nearly all pushes bring a few objects to one branch. Git's receive-pack starts four
// processes for one; three of them are there for what can be done here: to see that nothing
// is missing, to list other stores of objects, to look for secrets. What remains is
// index-pack, which alone knows what git takes for a sound object. Only what goes right is
// done here: whatever is out of the ordinary, or wrong, is left as if it had not been tried,
// and git receives the push from its beginning, judges, and finds the words.

// errAskGit says that a push is for git to take or to refuse.
var errAskGit = errors.New("a push that only git can judge")

// ordinaryPush says whether the push may be taken without git's receive-pack, as far as its
// commands tell: one branch comes or moves, and the client wants to know whether it did.
func ordinaryPush(p protocol.PushRequest) bool {
	return len(p.Commands) == 1 && !p.Commands[0].Deletes() && strings.HasPrefix(p.Commands[0].Ref, "refs/heads/") &&
		p.Report && !p.Unusual && p.HashLen == len(pack.ObjectName{})
}

// take receives an ordinary push of a pack that was scanned. When it returns true, the
// branch has moved, durably; false without an error: nothing was done, and git is to
// receive the push.
func (s *Server) take(ctx context.Context, a access, p protocol.PushRequest, pack []byte) (taken bool, err error) {
	r := a.repo
	if r == nil || s.native || !r.ordinary(ctx, p.Commands[0]) {
		return false, nil
	}
	r.pushing.RLock()
	defer r.pushing.RUnlock()
	q, err := newQuarantine(s, a, int64(len(pack)))
	if err != nil {
		return false, nil // git has the words for it
	}
	defer q.remove()
	c := p.Commands[0]
	update := RefUpdate{Name: c.Ref, New: Hash(c.New), Old: new(Hash)}
	if !c.Creates() {
		*update.Old = Hash(c.Old)
	}
	if err = q.judge(ctx, p, pack); err == nil {
		err = r.expect(ctx, []RefUpdate{update})
	}
	switch {
	case errors.Is(err, errBusy):
		return false, err
	case err != nil:
		s.log().Debug("a push is left to git", "repo", a.name, "why", err)
		return false, nil
	}
	if err = q.accept(); err == nil {
		err = r.Update(ctx, update)
	}
	if errors.Is(err, ErrConflict) {
		return false, nil // somebody was faster, which is for git to tell
	}
	return err == nil, gitcmd.ExplainFullDisk(err, r.dir)
}

// ordinary says whether a push to the branch may be taken here, as far as the repository
// tells: its refs are known, its configuration says nothing of pushes, its histories are
// whole, and the branch is neither another name for something nor checked out anywhere.
func (r *Repo) ordinary(ctx context.Context, c protocol.Command) bool {
	if r.view.refresh(ctx) != nil || !history.IsComplete(r.dir, Hash(c.New)) || r.view.symbolic(c.Ref) {
		return false
	}
	own, err := r.view.config()
	if err != nil || !own.flag("core.bare", false) {
		return false
	}
	_, err = os.Lstat(filepath.Join(r.dir, "worktrees"))
	return errors.Is(err, os.ErrNotExist)
}

// quarantine is where the objects of one push are until they are found to be good, as
// git has it: a store of objects of its own beside that of the repository.
type quarantine struct {
	s     *Server
	a     access
	dir   string
	name  string // of the pack in it
	packs pack.Files
	// sent is where in the pack ends what the client has sent. What index-pack puts
	// behind, to complete deltas, are objects that the repository has.
	sent int64
}

func newQuarantine(s *Server, a access, size int64) (*quarantine, error) {
	// The name is one that git's own prune sweeps, and a later server.
	dir, err := os.MkdirTemp(filepath.Join(a.dir, "objects"), scratchPrefix+"incoming-")
	if err == nil {
		if err = os.Mkdir(filepath.Join(dir, "pack"), 0o777); err != nil {
			os.Remove(dir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot keep the objects of a push apart: %w", err)
	}
	return &quarantine{s: s, a: a, dir: dir, name: pack.NewName(), packs: pack.Files{Dir: filepath.Join(dir, "pack")}, sent: size - int64(len(pack.ObjectName{}))}, nil
}

func (q *quarantine) remove() {
	q.packs.Close()
	if err := os.RemoveAll(q.dir); err != nil {
		q.s.log().Warn("cannot remove what was kept apart of a push", "repo", q.a.name, "err", err)
	}
}

// file is the pack's or its index's, by the ending.
func (q *quarantine) file(ending string) string {
	return filepath.Join(q.packs.Dir, "pack-"+q.name+ending)
}

// git makes a child see the objects of the push, and in front of it those of the repository.
func (q *quarantine) git(c gitcmd.Command) gitcmd.Command {
	c.Repo = q.a.dir
	c.Env = append(c.Env, "GIT_OBJECT_DIRECTORY="+q.dir,
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+strconv.Quote(filepath.Join(q.a.dir, "objects")))
	return c
}

// run runs a child that has something against a push if it says anything at all.
func (q *quarantine) run(ctx context.Context, c gitcmd.Command) error {
	give, err := q.s.slots.acquire(ctx, q.a.client)
	if err != nil {
		return err
	}
	said := &gitcmd.Tail{Max: gitcmd.StderrMax}
	c.Progress = said
	err = q.s.limitedChild(ctx, q.a, q.git(c), give, func(r io.Reader, _ context.CancelCauseFunc) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil, said.String() != "":
		return errAskGit
	}
	return nil
}

// judge returns nil for a push that is good: each object is sound, nothing is missing, the
// branch does not move backward, and no secret is in it.
func (q *quarantine) judge(ctx context.Context, p protocol.PushRequest, pack []byte) error {
	if err := q.index(ctx, pack); err != nil {
		return err
	}
	if err := q.whole(ctx, p.Commands[0]); err != nil || q.s.Secrets.Empty() {
		return err
	}
	leaks, err := (&watch{s: q.s, a: q.a, p: p}).look(ctx, q.dir)
	if err == nil && len(leaks) > 0 {
		err = errAskGit
	}
	return err
}

// index has git look at each object by the rules of fsck, complete the deltas, and make
// the index.
func (q *quarantine) index(ctx context.Context, pack []byte) error {
	return q.run(ctx, gitcmd.Command{
		Args: []string{"index-pack", "--stdin", "--fix-thin", "--strict=" + strings.Join(harmless, "=ignore,") + "=ignore", q.file(".pack")},
		Config: append(slices.Clone(pushConfig),
			"pack.writeReverseIndex=false",
			"core.fsync=none", // accept sees to it
		),
		In: struct{ io.Reader }{bytes.NewReader(pack)},
	})
}

// accept puts the pack into the repository, where it is durable with the next change of a ref.
func (q *quarantine) accept() error {
	var files [2]*os.File
	for i, ending := range []string{".pack", ".idx"} {
		f, err := os.Open(q.file(ending))
		if err != nil {
			return fmt.Errorf("cannot accept a push: %w", err)
		}
		defer f.Close()
		files[i] = f
	}
	err := os.MkdirAll(filepath.Join(q.a.dir, pack.Folder), 0o777)
	if err == nil {
		err = q.a.repo.objects.Packs.Adopt(q.name, files[0], files[1])
	}
	if err != nil {
		return fmt.Errorf("cannot accept a push: %w", err)
	}
	return nil
}

// whole returns nil when the branch may move, in history, to where the command wants it:
// what the new commit reaches is in the repository or in the push.
func (q *quarantine) whole(ctx context.Context, c protocol.Command) error {
	w := &wholeness{ctx: ctx, q: q, repo: q.a.repo, roots: map[Hash]Hash{}, known: map[Hash]string{}}
	err := w.commit(Hash(c.New))
	switch {
	case errors.Is(err, errUnknown) && c.Creates():
		// What receive-pack itself asks; it finds its way from any ref to any object.
		return q.run(ctx, gitcmd.Command{Args: []string{"rev-list", "--objects", "--quiet", "--stdin", "--not", "--all"}, In: strings.NewReader(c.New + "\n")})
	case errors.Is(err, errUnknown):
		return errAskGit // nor is it known whether the branch moves forward
	case err != nil:
		return err
	}
	if _, reached := w.roots[Hash(c.Old)]; !c.Creates() && !reached {
		return errAskGit // the move is none forward, or one over what is there already
	}
	return nil
}

// errUnknown says that an object is in the repository, and that it would take more to
// tell whether all is there that it reaches.
var errUnknown = errors.New("what an object reaches is not known")

// wholeness finds out whether anything is missing below a commit. A ref reaches nothing that
// is missing; so new commits are followed to those that refs are at, and new folders to
// those that an older commit has in the same place. Where that does not lead to an end, git
// goes through all that refs reach.
type wholeness struct {
	ctx   context.Context
	q     *quarantine
	repo  *Repo
	roots map[Hash]Hash   // the commits that were seen, and their trees
	known map[Hash]string // kinds of objects below which nothing is missing
	bytes int             // of commits and folders that were looked at
}

const (
	// wholenessMax bounds the bytes of commits and folders that are looked at for one push: some
	// hundred bytes of deltas can make as much of them as one likes.
	wholenessMax = 4 << 20
	// wholenessDeep is how deep folders may be in each other.
	wholenessDeep = 1000
)

// read returns an object of the push, or false; of one larger than max only the kind.
func (w *wholeness) read(h Hash, max int64) (obj object.Object, sent bool) {
	obj, _, err := w.q.packs.ReadBefore(h, w.q.sent, max)
	return obj, err == nil
}

// commit looks at a commit and at all before it that are not known.
func (w *wholeness) commit(tip Hash) error {
	for stack := []Hash{tip}; len(stack) > 0; {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		h := stack[len(stack)-1]
		if _, seen := w.roots[h]; seen {
			stack = stack[:len(stack)-1]
			continue
		}
		obj, sent := w.read(h, pack.MaxInMemory)
		if !sent {
			if !w.repo.view.tip(h) {
				return errUnknown
			}
			c, err := w.repo.objects.ReadCommit(w.ctx, h)
			if err != nil {
				return errAskGit
			}
			w.roots[h], w.known[c.Tree] = c.Tree, "tree"
			continue
		}
		c, err := object.ParseCommit(obj.Data)
		if w.bytes += len(obj.Data); obj.Kind != "commit" || err != nil || w.bytes > wholenessMax {
			return errAskGit
		}
		// Its folders are looked at after those of its parents, which they are compared with.
		var bases []Hash
		for _, p := range c.Parents {
			if root, seen := w.roots[p]; seen {
				bases = append(bases, root)
			} else {
				stack = append(stack, p)
			}
		}
		if len(bases) < len(c.Parents) {
			continue
		}
		if err := w.tree(c.Tree, bases, 0); err != nil {
			return err
		}
		w.roots[h] = c.Tree
	}
	return nil
}

// tree looks at a folder. bases are what stands in its place in the commits before it;
// nothing is missing below them.
func (w *wholeness) tree(h Hash, bases []Hash, depth int) error {
	if w.known[h] == "tree" {
		return nil
	}
	obj, sent := w.read(h, pack.MaxInMemory)
	if !sent {
		return errUnknown
	}
	entries, err := w.entries(obj)
	if err != nil || depth > wholenessDeep {
		return errAskGit
	}
	below := map[string][]Hash{}
	for _, base := range bases {
		obj, sent := w.read(base, pack.MaxInMemory)
		if !sent {
			if obj, _, err = w.repo.objects.Small(w.ctx, base); err != nil {
				return errAskGit
			}
		}
		was, err := w.entries(obj)
		if err != nil {
			return errAskGit
		}
		for _, e := range was {
			kind := linkedKind(e)
			if w.known[e.Hash] = kind; kind == "tree" {
				below[e.Name] = append(below[e.Name], e.Hash)
			}
		}
	}
	for _, e := range entries {
		switch linkedKind(e) {
		case "tree":
			err = w.tree(e.Hash, below[e.Name], depth+1)
		case "blob":
			err = w.blob(e.Hash)
		}
		if err != nil {
			return err
		}
	}
	w.known[h] = "tree"
	return nil
}

// blob looks for a file.
func (w *wholeness) blob(h Hash) error {
	if w.known[h] == "blob" {
		return nil
	}
	obj, sent := w.read(h, 0)
	if !sent {
		var err error
		if obj.Kind, err = w.repo.objects.Kind(w.ctx, h); err != nil {
			return errAskGit
		}
	}
	if obj.Kind != "blob" {
		return errAskGit
	}
	w.known[h] = "blob"
	return nil
}

func (w *wholeness) entries(obj object.Object) ([]object.Entry, error) {
	if w.bytes += len(obj.Data); obj.Kind != "tree" || obj.Data == nil || w.bytes > wholenessMax {
		return nil, errAskGit
	}
	return object.ParseTree(obj.Data, len(pack.ObjectName{}))
}

// linkedKind returns the kind of object that git expects at an entry, whatever permissions
// its mode has. The kind is blob, tree, or commit, which is in another repository.
func linkedKind(e object.Entry) string {
	switch e.Mode & 0o170000 {
	case object.ModeFolder:
		return "tree"
	case 0o100000, object.ModeSymlink:
		return "blob"
	}
	return "commit"
}
