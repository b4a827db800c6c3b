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
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// Nearly all pushes bring a few objects to one branch. Git's receive-pack starts four processes for one. Three of
// them do work that the server can do itself. They check that no object is missing, list other object stores,
// search for secrets. The fourth, index-pack, alone knows which objects git accepts as sound. Only the good case
// is handled here. Any unusual or faulty push is left as if it had not been tried. Then git receives it from its
// beginning, decides, and finds the words.

// errAskGit means that git has to accept or refuse a push.
var errAskGit = errors.New("only git can accept or refuse the push")

// receiveInProcess receives a push whose pack was scanned, if it is of the simple kind. When it returns true,
// the branch has moved, durably. If it returns false without an error, nothing was done, and git should receive
// the push.
func (p *incoming) receiveInProcess(ctx context.Context, pack []byte) (received bool, err error) {
	s, a, r := p.s, p.a, p.a.repo
	if r == nil || s.native || !p.isSimple() || !r.allowsSimplePush(ctx, p.request.Commands[0]) {
		return false, nil
	}
	r.pushing.RLock()
	defer r.pushing.RUnlock()
	q, err := newQuarantine(s, a, int64(len(pack)))
	if err != nil {
		return false, nil // git has the words for it
	}

	defer q.remove()

	c := p.request.Commands[0]
	update := RefUpdate{Name: c.Ref, New: Hash(c.New), Old: new(Hash)}
	if !c.Creates() {
		*update.Old = Hash(c.Old)
	}
	if err = q.check(ctx, p.request, pack); err == nil {
		err = r.expectOld(ctx, []RefUpdate{update})
	}
	switch {
	case errors.Is(err, errBusy):
		return false, err
	case err != nil:
		s.log().Debug("a push is left to git", "repo", a.name, "why", err)
		return false, nil
	}
	if err = q.adopt(); err == nil {
		err = r.Update(ctx, update)
	}
	if errors.Is(err, ErrConflict) {
		return false, nil // another push was faster, which git reports
	}
	return err == nil, gitcmd.ExplainFullDisk(err, r.dir)
}

// isSimple reports whether the commands of a push make it simple. It creates or moves one branch, and the client
// wants a report.
func (p *incoming) isSimple() bool {
	q := p.request
	return len(q.Commands) == 1 && !q.Commands[0].Deletes() && strings.HasPrefix(q.Commands[0].Ref, "refs/heads/") &&
		q.Report && !q.Unusual && q.HashLen == len(pack.ObjectName{})
}

// allowsSimplePush reports whether the repository lets the server itself move the branch. Its refs are in
// memory, its configuration has no keys about pushes, its history is complete, and the branch is neither
// symbolic nor checked out anywhere.
func (r *Repo) allowsSimplePush(ctx context.Context, c protocol.Command) bool {
	if r.view.Refresh(ctx) != nil || !history.IsComplete(r.dir, Hash(c.New)) || r.view.IsSymbolic(c.Ref) {
		return false
	}
	own, err := r.view.Config()
	if err != nil || !own.Flag("core.bare", false) {
		return false
	}
	_, err = os.Lstat(filepath.Join(r.dir, "worktrees"))
	return errors.Is(err, os.ErrNotExist)
}

// quarantine is an object store for the objects of one push until they are found to be good, as git has it.
type quarantine struct {
	s     *Server
	a     access
	dir   string
	name  string // of the pack in it
	packs pack.Files
	// sent is the offset in the pack at which the objects of the client end. Objects that index-pack adds after
	// it, to complete deltas, are in the repository.
	sent int64
}

func newQuarantine(s *Server, a access, size int64) (*quarantine, error) {
	// Git's own prune removes folders of this name, as does a later server.
	dir, err := os.MkdirTemp(filepath.Join(a.dir, "objects"), scratchPrefix+"incoming-")
	if err == nil {
		if err = os.Mkdir(filepath.Join(dir, "pack"), 0o777); err != nil {
			os.Remove(dir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make a quarantine for a push: %w", err)
	}
	return &quarantine{
		s: s, a: a, dir: dir, name: pack.NewName(),
		packs: pack.Files{Dir: filepath.Join(dir, "pack")}, sent: size - int64(len(pack.ObjectName{})),
	}, nil
}

func (q *quarantine) remove() {
	q.packs.Close()
	if err := os.RemoveAll(q.dir); err != nil {
		q.s.log().Warn("cannot remove the quarantine of a push", "repo", q.a.name, "err", err)
	}
}

// packFile returns the path of the pack or of its index, by the suffix.
func (q *quarantine) packFile(suffix string) string {
	return filepath.Join(q.packs.Dir, "pack-"+q.name+suffix)
}

// check returns nil for a good push. Each object is sound, none is missing, the branch does not move backward, and
// the push has no secret.
func (q *quarantine) check(ctx context.Context, p protocol.PushRequest, pack []byte) error {
	if err := q.indexPack(ctx, pack); err != nil {
		return err
	}
	if err := q.checkConnected(ctx, p.Commands[0]); err != nil || q.s.Secrets.Empty() {
		return err
	}
	leaks, err := (&secretScan{s: q.s, a: q.a, p: p}).findLeaks(ctx, q.dir)
	if err == nil && len(leaks) > 0 {
		err = errAskGit
	}
	return err
}

// indexPack lets git check each object by the rules of fsck, complete the deltas, and write the index.
func (q *quarantine) indexPack(ctx context.Context, pack []byte) error {
	return q.run(ctx, gitcmd.Command{
		Args: []string{"index-pack", "--stdin", "--fix-thin",
			"--strict=" + strings.Join(harmlessFaults, "=ignore,") + "=ignore", q.packFile(".pack")},
		Config: append(slices.Clone(pushConfig),
			"pack.writeReverseIndex=false",
			"core.fsync=none", // adopt makes the pack durable
		),
		In: struct{ io.Reader }{bytes.NewReader(pack)},
	})
}

// run runs a git that sees the objects of the push and of the repository. Any output on stderr is a fault of the push.
func (q *quarantine) run(ctx context.Context, c gitcmd.Command) error {
	c.Repo = q.a.dir
	c.Env = append(c.Env, "GIT_OBJECT_DIRECTORY="+q.dir,
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+strconv.Quote(filepath.Join(q.a.dir, "objects")))
	stderr := &gitcmd.Tail{Max: gitcmd.StderrMax}
	c.Progress = stderr

	release, err := q.s.slots.acquire(ctx, q.a.client)
	if err != nil {
		return err
	}
	err = q.s.limitedChild(ctx, q.a, c, release, func(r io.Reader, _ context.CancelCauseFunc) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil, stderr.String() != "":
		return errAskGit
	}
	return nil
}

// checkConnected returns nil if the branch may move to the new commit of the command. All that the commit reaches
// is in the repository or in the push, and the commit descends from the old one.
func (q *quarantine) checkConnected(ctx context.Context, c protocol.Command) error {
	w := newConnectivity(ctx, q)
	err := w.checkCommits(Hash(c.New))
	switch {
	case errors.Is(err, errUnknown) && c.Creates():
		// Like receive-pack, this finds a way from any ref to any object.
		return q.run(ctx, gitcmd.Command{Args: []string{"rev-list", "--objects", "--quiet", "--stdin", "--not",
			"--all"}, In: strings.NewReader(c.New + "\n")})
	case errors.Is(err, errUnknown):
		return errAskGit // nor is it known whether the branch moves forward
	case err != nil:
		return err
	}
	if !c.Creates() && !w.visited(Hash(c.Old)) {
		return errAskGit // the branch moves backward, or over commits that are there already
	}
	return nil
}

// adopt puts the pack into the repository. It becomes durable with the next change of a ref.
func (q *quarantine) adopt() error {
	var files [2]*os.File
	for i, suffix := range []string{".pack", ".idx"} {
		f, err := os.Open(q.packFile(suffix))
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
