package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/objfile"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/internal/text"
)

// mergeTries bounds the attempts of a merge whose target moves.
const mergeTries = 5

// scratchPrefix begins the names of folders in objects/ for objects that may turn out to be useless. Git's own
// prune knows the name.
const scratchPrefix = "tmp_objdir-"

// Strategy is the way in which a branch is merged into another.
type Strategy string

// The merge strategies.
const (
	StrategyMerge  Strategy = "merge"  // always a merge commit, history is kept
	StrategyRebase Strategy = "rebase" // the branch's commits replayed on the target
	StrategySquash Strategy = "squash" // one commit on the target
	StrategyFF     Strategy = "ff"     // only if the target has not moved, else ErrConflict
)

// MergeRequest asks for a merge.
type MergeRequest struct {
	// From and Into are branch names. The ref of Into is changed by compare-and-swap, that of From never. From may
	// also be the full name of a ref below refs/ramus/upstream/ or refs/ramus/stage/.
	From, Into string
	Strategy   Strategy
	// Message is the message of the merge or squash commit. Empty means a subject that names both branches.
	// Replayed commits keep their own.
	Message string
	// Author and Committer are those of the merge or squash commit. If one is empty, it is taken from the other.
	// Replayed commits keep their author.
	Author, Committer Person
	When              time.Time // zero means now
	// Keep makes rebase keep commits that become empty.
	Keep bool
	// Account makes rebase list each commit in [MergeResult.Replayed].
	Account bool
}

// MergeResult is the result of a merge. Conflicts are a result and no error. Nothing was changed then.
type MergeResult struct {
	Merged    bool     `json:"merged"`               // Into now contains the work of From
	Commit    Hash     `json:"commit,omitempty"`     // the new tip of Into
	Old       Hash     `json:"old,omitempty"`        // the tip of Into before
	UpToDate  bool     `json:"up_to_date,omitempty"` // there was nothing to merge (Merged is true, and Commit is Old)
	Conflicts []string `json:"conflicts,omitempty"`  // paths
	At        Hash     `json:"at,omitempty"`         // the commit that a rebase could not apply
	// Replayed are the commits of a rebase, oldest first, if the request asks for them.
	Replayed []Replayed `json:"replayed,omitempty"`
}

// Replayed is the result of a rebase for one commit.
type Replayed struct {
	Commit  Hash   `json:"commit"`
	Subject string `json:"subject"`
	// New is the commit on the target that has the change. It is Commit itself if nothing had to change, and empty if
	// the commit was left out.
	New Hash `json:"new,omitempty"`
	// Why tells why the commit was left out.
	Why string `json:"why,omitempty"`
}

// The reasons why a rebase leaves a commit out.
const (
	LeftKnown = "the target has its change already"
	LeftEmpty = "it changes nothing any more"
	LeftMerge = "it is a merge; the commits that it merged are replayed"
	LeftReset = "the branch was reset"
)

// Merge merges From into Into without a work tree. If Into moves meanwhile, it starts again with the new tip.
//
// Rebase does the same as git rebase. It flattens merge commits. It leaves out commits whose change the target
// already has, and commits that become empty. Commits that are already on the target stay as they are.
func (r *Repo) Merge(ctx context.Context, m MergeRequest) (MergeResult, error) {
	res, err := r.merge(ctx, m)
	if err != nil {
		return MergeResult{}, fmt.Errorf("cannot merge %.200q into %.200q in %s: %w", m.From, m.Into, r.name,
			gitcmd.ExplainFullDisk(err, r.dir))
	}
	return res, nil
}

func branchRef(name string) (string, error) {
	ref := name
	if !strings.HasPrefix(name, "refs/heads/") {
		ref = "refs/heads/" + name
	}
	return ref, CheckRef(ref)
}

// MergeOnto computes the merge of From onto a commit, durably, and changes no ref. Into is only named in messages. The
// result is as that of Merge.
func (r *Repo) MergeOnto(ctx context.Context, m MergeRequest, onto Hash) (MergeResult, error) {
	res, err := r.mergeOnto(ctx, m, onto)
	if err != nil {
		return MergeResult{}, fmt.Errorf("cannot merge %.200q onto %.40s in %s: %w", m.From, onto, r.name,
			gitcmd.ExplainFullDisk(err, r.dir))
	}
	return res, nil
}

func (r *Repo) mergeOnto(ctx context.Context, m MergeRequest, onto Hash) (MergeResult, error) {
	from, err := r.prepareMerge(ctx, &m)
	if err != nil {
		return MergeResult{}, err
	}
	if err := CheckHash(onto); err != nil {
		return MergeResult{}, err
	}
	if _, err := r.objects.Commit(ctx, onto); err != nil {
		return MergeResult{}, err
	}
	theirs, err := r.branchTip(ctx, from)
	if err != nil {
		return MergeResult{}, err
	}
	return r.mergeOnce(ctx, m, "", onto, theirs)
}

// prepareMerge checks a request, sets its defaults, and returns the ref of From.
func (r *Repo) prepareMerge(ctx context.Context, m *MergeRequest) (from string, err error) {
	from = m.From
	if strings.HasPrefix(from, upstreamRefs+"/") || strings.HasPrefix(from, StageRefs+"/") {
		err = CheckRef(from)
	} else {
		from, err = branchRef(from)
	}
	if err != nil {
		return "", err
	}

	switch m.Strategy {
	case StrategyMerge, StrategyRebase, StrategySquash, StrategyFF:
	default:
		return "", fmt.Errorf("merge strategy %.40q is none of merge, rebase, squash, ff: %w", m.Strategy, ErrInvalid)
	}
	if m.Author == (Person{}) {
		m.Author = m.Committer
	}
	if m.Committer == (Person{}) {
		m.Committer = m.Author
	}
	if m.Committer == (Person{}) && m.Strategy != StrategyFF {
		return "", fmt.Errorf("there is no committer: %w", ErrInvalid)
	}
	if m.When.IsZero() {
		m.When = r.server.now()
	}
	return from, r.needSHA1(ctx)
}

func (r *Repo) merge(ctx context.Context, m MergeRequest) (MergeResult, error) {
	into, err := branchRef(m.Into)
	if err != nil {
		return MergeResult{}, err
	}
	from, err := r.prepareMerge(ctx, &m)
	if err != nil {
		return MergeResult{}, err
	}
	done, err := takeTurn(ctx, r.merging)
	if err != nil {
		return MergeResult{}, err
	}
	defer done()
	theirs, err := r.branchTip(ctx, from)
	if err != nil {
		return MergeResult{}, err
	}
	for try := 1; ; try++ {
		ours, err := r.branchTip(ctx, into)
		if err != nil {
			return MergeResult{}, err
		}
		res, err := r.mergeOnce(ctx, m, into, ours, theirs)
		// The target moved. Everything is computed again from its new tip, so no work of others is lost.
		if !errors.Is(err, errMoved) || try == mergeTries {
			return res, err
		}
	}
}

// branchTip returns the commit of a branch.
func (r *Repo) branchTip(ctx context.Context, ref string) (Hash, error) {
	h, err := r.readRef(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("branch %s: %w", strings.TrimPrefix(ref, "refs/heads/"), err)
	}
	return h, nil
}

// errMoved is a conflict that a new attempt can solve.
var errMoved = fmt.Errorf("the target branch moved: %w", ErrConflict)

// mergeOnce merges theirs into ours and moves the ref into from ours to the result. It moves nothing if into is empty.
func (r *Repo) mergeOnce(ctx context.Context, m MergeRequest, into string, ours, theirs Hash) (MergeResult, error) {
	res := MergeResult{Old: ours}
	upToDate := MergeResult{Merged: true, UpToDate: true, Old: ours, Commit: ours}
	if contained, err := r.isAncestor(ctx, theirs, ours); err != nil {
		return res, err
	} else if contained {
		return upToDate, nil
	}
	if _, err := r.mergeBase(ctx, string(ours), string(theirs)); errors.Is(err, ErrNotFound) {
		return res, fmt.Errorf("the branches have no commit in common: %w", ErrInvalid)
	} else if err != nil {
		return res, err
	}

	sc, err := r.newMergeScratch()
	if err != nil {
		return res, err
	}
	defer sc.remove()
	switch m.Strategy {
	case StrategyFF:
		ahead, err := r.isAncestor(ctx, ours, theirs)
		if err != nil {
			return res, err
		}
		if !ahead {
			return res, fmt.Errorf("no fast-forward: %s has commits that %s lacks: %w", m.Into, m.From, ErrConflict)
		}
		res.Commit = theirs
	case StrategyMerge, StrategySquash:
		res.Commit, res.Conflicts, err = sc.mergeCommit(ctx, m, ours, theirs)
		if err != nil || res.Conflicts != nil {
			return res, err
		}
		if res.Commit == ours {
			return upToDate, nil
		}
	case StrategyRebase:
		res.Commit, res.Conflicts, res.At, err = sc.replay(ctx, m, ours, theirs)
		if err != nil || res.Conflicts != nil {
			return res, err
		}
		if m.Account {
			res.Replayed = sc.replayed
			upToDate.Replayed = sc.replayed
		}
		if res.Commit == ours {
			return upToDate, nil
		}
	}

	err = sc.publish(ctx, into, &res)
	return res, err
}

// publish keeps the objects of a result, and moves the ref into from res.Old to it. It moves nothing if into is empty.
func (sc *mergeScratch) publish(ctx context.Context, into string, res *MergeResult) error {
	// The objects are on disk before a ref names them.
	if err := sc.adoptObjects(ctx); err != nil {
		return err
	}
	if into != "" {
		err := sc.r.Update(ctx, RefUpdate{Name: into, New: res.Commit, Old: &res.Old})
		if errors.Is(err, ErrConflict) {
			return errors.Join(errMoved, err)
		}
		if err != nil {
			return err
		}
	}
	res.Merged = true
	return nil
}

// mergeCommit makes the commit of a merge or squash. It returns ours if a squash changes nothing.
func (sc *mergeScratch) mergeCommit(ctx context.Context, m MergeRequest, ours, theirs Hash) (_ Hash, conflicts []string, err error) {
	if err := sc.writeAttributes(ctx, ours); err != nil {
		return "", nil, err
	}
	tree, conflicts, err := sc.mergeTree(ctx, ours, theirs)
	if err != nil || conflicts != nil {
		return "", conflicts, err
	}

	c := object.RawCommit{
		Tree: tree, Parents: []Hash{ours, theirs},
		Author: m.Author.Signature(m.When), Committer: m.Committer.Signature(m.When),
		Message: []byte(cleanMessage(m.Message)),
	}
	verb := "Merge"
	if m.Strategy == StrategySquash {
		verb = "Squash"
		c.Parents = c.Parents[:1]
		if was, err := sc.r.objects.TreeOf(ctx, ours); err != nil {
			return "", nil, err
		} else if was == tree {
			return ours, nil, nil
		}
	}
	if len(c.Message) == 0 {
		c.Message = fmt.Appendf(nil, "%s branch '%s' into %s\n", verb, m.From, m.Into)
	}
	if m.Strategy == StrategySquash {
		c.Message = addTrailer(c.Message, TrailerSquashed, string(theirs))
	}
	commit, err := sc.writeMade(c)
	return commit, nil, err
}

// mergeScratch is an object store apart from that of the repository, for the objects of a merge that may fail.
// Nothing in the repository would ever prune the objects of a failed merge.
type mergeScratch struct {
	r     *Repo
	store string // relative to the repository
	// attributes is a work tree with nothing but .gitattributes files. Git looks for merge=union and the like only
	// there, never in the trees that it merges.
	attributes string
	replayed   []Replayed // by replay, oldest first
}

// account records the outcome of replay for a commit. new is empty if it was left out.
func (sc *mergeScratch) account(h Hash, c object.RawCommit, new Hash, why string) {
	subject, _, _ := strings.Cut(strings.TrimSpace(string(c.Message)), "\n")
	sc.replayed = append(sc.replayed,
		Replayed{Commit: h, Subject: text.Clip(strings.ToValidUTF8(subject, "\ufffd"), 200), New: new, Why: why})
}

func (r *Repo) newMergeScratch() (*mergeScratch, error) {
	dir, err := os.MkdirTemp(filepath.Join(r.dir, "objects"), scratchPrefix+"merge-")
	if err != nil {
		return nil, err
	}
	sc := &mergeScratch{r: r, store: filepath.Join("objects", filepath.Base(dir)),
		attributes: filepath.Join(dir, "attributes")}
	if err := os.Mkdir(sc.attributes, 0o777); err != nil {
		sc.remove()
		return nil, err
	}
	return sc, nil
}

func (sc *mergeScratch) remove() {
	if err := os.RemoveAll(filepath.Join(sc.r.dir, sc.store)); err != nil {
		sc.r.server.log().Warn("cannot remove the objects of a merge", "repo", sc.r.name, "err", err)
	}
}

// adoptObjects copies the objects into the repository, durably, as one pack.
func (sc *mergeScratch) adoptObjects(ctx context.Context) error {
	w, err := sc.r.newPack(ctx)
	if err != nil {
		return err
	}
	defer w.Drop()
	from := filepath.Join(sc.r.dir, sc.store)
	folders, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range folders {
		if len(f.Name()) != 2 || !object.IsHex(f.Name()) {
			continue
		}
		objects, err := os.ReadDir(filepath.Join(from, f.Name()))
		if err != nil {
			return err
		}
		for _, o := range objects {
			if strings.HasPrefix(o.Name(), "tmp_obj_") {
				continue
			}
			if err := adoptLoose(w, filepath.Join(from, f.Name(), o.Name())); err != nil {
				return err
			}
		}
	}
	return placePack(w)
}

// adoptLoose adds a loose object to a pack.
func adoptLoose(w *pack.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	in, err := objfile.NewReader(bufio.NewReader(f))
	if err != nil {
		return fmt.Errorf("cannot read object %s: %w", file, err)
	}
	defer in.Close()
	kind, size, err := in.Header()
	if err == nil {
		_, err = w.Stream(kind.String(), size, in)
	}
	if err != nil {
		return fmt.Errorf("cannot read object %s: %w", file, err)
	}
	return nil
}

// writeMade writes a commit that the server itself makes.
func (sc *mergeScratch) writeMade(c object.RawCommit) (Hash, error) {
	data, err := sc.r.server.encodeCommit(c, nil)
	if err != nil {
		return "", err
	}
	return sc.write("commit", data)
}

// write writes an object into the store as a loose object, which git finds at once. It is not durable.
func (sc *mergeScratch) write(kind string, data []byte) (Hash, error) {
	t, err := plumbing.ParseObjectType(kind)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	w := objfile.NewWriter(&b)
	if err := w.WriteHeader(t, int64(len(data))); err != nil {
		return "", err
	}
	if _, err := w.Write(data); err != nil {
		return "", err
	}
	h := w.Hash().String()
	if err := w.Close(); err != nil {
		return "", err
	}
	dir := filepath.Join(sc.r.dir, sc.store, h[:2])
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return Hash(h), os.WriteFile(filepath.Join(dir, h[2:]), b.Bytes(), 0o644)
}

// command returns a command of git that writes into the store.
func (sc *mergeScratch) command(args ...string) gitcmd.Command {
	return gitcmd.Command{
		Repo: sc.r.dir, Dir: sc.attributes, Args: args,
		// One syncfs makes all objects durable at the end.
		Config: []string{"core.fsync=none", "core.bare=false"},
		Env: []string{
			"GIT_WORK_TREE=" + sc.attributes,
			"GIT_OBJECT_DIRECTORY=" + filepath.Join(sc.r.dir, sc.store),
			"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + strconv.Quote(filepath.Join(sc.r.dir, "objects")),
		},
	}
}

const (
	attributesFile  = ".gitattributes"
	attributesMax   = 1 << 20 // bytes of one file
	attributesFiles = 1000
)

// writeAttributes writes the .gitattributes files of a commit or tree into the work tree.
func (sc *mergeScratch) writeAttributes(ctx context.Context, tree Hash) error {
	if err := os.RemoveAll(sc.attributes); err != nil {
		return err
	}
	if err := os.Mkdir(sc.attributes, 0o777); err != nil {
		return err
	}
	// Clients choose the names. None may lead out of the folder.
	root, err := os.OpenRoot(sc.attributes)
	if err != nil {
		return err
	}

	defer root.Close()
	out, err := sc.r.server.git.Output(ctx, sc.command("ls-tree", "-r", "-z", "--full-tree", string(tree)))
	if err != nil {
		return err
	}
	files := 0
	for line := range strings.SplitSeq(string(out), "\x00") {
		head, file, _ := strings.Cut(line, "\t")
		words := strings.Fields(head)
		if path.Base(file) != attributesFile || len(words) != 3 || words[0] == "120000" || words[1] != "blob" {
			continue
		}
		if _, err := object.SplitPath(file); err != nil {
			continue
		}
		if files++; files > attributesFiles {
			return fmt.Errorf("more than %d %s files: %w", attributesFiles, attributesFile, ErrTooLarge)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		b := &gitcmd.Buffer{Max: attributesMax, Full: func() {
			cancel(fmt.Errorf("%.200q has more than %d bytes: %w", file, attributesMax, ErrTooLarge))
		}}
		c := sc.command("cat-file", "blob", words[2])
		c.Out = b
		err := sc.r.server.git.Run(ctx, c)
		cancel(nil)
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.FromSlash(path.Dir(file)), 0o777); err != nil {
			return err
		}
		if err := root.WriteFile(filepath.FromSlash(file), b.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// mergeTree merges two commits with git. It returns the paths in conflict, or nil.
func (sc *mergeScratch) mergeTree(ctx context.Context, ours, theirs Hash, more ...string) (tree Hash, conflicts []string, err error) {
	args := append([]string{"merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"}, more...)
	out, err := sc.r.server.git.Output(ctx, sc.command(append(args, string(ours), string(theirs))...))
	code := gitcmd.ExitCode(err)
	if err != nil && code != 1 {
		return "", nil, err
	}
	fields := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	tree = Hash(fields[0])
	if err := CheckHash(tree); err != nil {
		return "", nil, fmt.Errorf("git merge-tree answered %.100q", out)
	}
	if code != 1 {
		return tree, nil, nil
	}
	seen := map[string]bool{}
	conflicts = []string{}
	for _, path := range fields[1:] {
		if path != "" && !seen[path] {
			seen[path] = true
			conflicts = append(conflicts, path)
		}
	}
	return "", conflicts, nil
}

// replay replays the commits of theirs that ours lacks on top of ours.
func (sc *mergeScratch) replay(ctx context.Context, m MergeRequest, ours, theirs Hash) (tip Hash, conflicts []string, at Hash, err error) {
	r := sc.r
	picks := []string{"rev-list", "--topo-order", "--reverse", "--no-merges", "--right-only", "--cherry-mark",
		string(ours) + "..." + string(theirs), "--"}
	out, err := r.output(ctx, picks...)
	if err != nil {
		return "", nil, "", err
	}
	touching, err := r.output(ctx, append(slices.Insert(picks, 1, "--full-history"), ":(glob)**/"+attributesFile)...)
	if err != nil {
		return "", nil, "", err
	}
	if err := sc.writeAttributes(ctx, ours); err != nil {
		return "", nil, "", err
	}
	tip = ours
	onto, err := r.objects.TreeOf(ctx, ours)
	if err != nil {
		return "", nil, "", err
	}

	for marked := range strings.FieldsSeq(string(out)) {
		h := Hash(marked[1:])
		pick, err := r.objects.ReadCommit(ctx, h)
		if err != nil {
			return "", nil, "", err
		}
		// The author of a commit that was always empty meant it. A commit that became empty, or is on the target
		// already, is left out.
		empty, err := r.isEmpty(ctx, pick)
		if err != nil {
			return "", nil, "", err
		}
		if marked[0] == '=' && !empty {
			sc.account(h, pick, "", LeftKnown)
			continue
		}
		reread := func() error { return nil }
		if bytes.Contains(touching, []byte(h)) {
			reread = func() error { return sc.writeAttributes(ctx, onto) }
		}
		if len(pick.Parents) == 1 && pick.Parents[0] == tip {
			tip, onto = h, pick.Tree
			sc.account(h, pick, h, "")
			if err := reread(); err != nil {
				return "", nil, "", err
			}
			continue
		}
		tree, conflicts, err := sc.applyPick(ctx, pick, h, onto)
		if err != nil || conflicts != nil {
			return "", conflicts, h, err
		}
		if tree == onto && !empty && !m.Keep {
			sc.account(h, pick, "", LeftEmpty)
			continue
		}
		pick.Tree, pick.Parents = tree, []Hash{tip}
		pick.Committer = m.Committer.Signature(m.When)
		if tip, err = sc.writeMade(pick); err != nil {
			return "", nil, "", err
		}
		onto = tree
		sc.account(h, pick, tip, "")
		if err := reread(); err != nil {
			return "", nil, "", err
		}
	}
	return tip, nil, "", nil
}

// isEmpty reports whether a commit changes nothing.
func (r *Repo) isEmpty(ctx context.Context, c object.RawCommit) (bool, error) {
	if len(c.Parents) == 0 {
		return c.Tree == object.EmptyTree, nil
	}
	before, err := r.objects.TreeOf(ctx, c.Parents[0])
	return before == c.Tree, err
}

// applyPick merges the change of one commit into a tree. Only since git 2.40 can merge-tree be told its merge
// base. Older releases find one themselves. So the tree becomes that of a commit whose parent is the parent of the
// picked commit, and that parent is the merge base.
func (sc *mergeScratch) applyPick(ctx context.Context, pick object.RawCommit, h, onto Hash) (Hash, []string, error) {
	who := Person{Name: "merge", Email: "merge"}.Signature(time.Unix(0, 0))
	substitute := object.RawCommit{Tree: onto, Parents: pick.Parents, Author: who, Committer: who}
	ours, err := sc.write("commit", substitute.Encode())
	if err != nil {
		return "", nil, err
	}
	// Only this merge needs it.
	defer sc.forget(ours)
	return sc.mergeTree(ctx, ours, h, "--allow-unrelated-histories")
}

// forget removes an object from the store, so that adoptObjects does not find it. A file that stays is an object that
// nothing needs.
func (sc *mergeScratch) forget(h Hash) {
	_ = os.Remove(filepath.Join(sc.r.dir, sc.store, string(h[:2]), string(h[2:])))
}
