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
)

// mergeTries is how often a merge starts anew because its target moved.
const mergeTries = 5

// scratchPrefix begins the names of folders in objects/ that hold objects
// which may yet turn out to be of no use; git's own prune knows the name.
const scratchPrefix = "tmp_objdir-"

// Strategy is how a branch is brought into another.
type Strategy string

// The merge strategies.
const (
	StrategyMerge  Strategy = "merge"  // a merge commit, always; history kept
	StrategyRebase Strategy = "rebase" // the branch's commits replayed on the target
	StrategySquash Strategy = "squash" // one commit on the target
	StrategyFF     Strategy = "ff"     // only if the target has not moved; else ErrConflict
)

// MergeRequest asks for a merge.
type MergeRequest struct {
	// From and Into are branch names; Into's ref is changed by compare-and-swap, From never.
	// From may also be a ref below refs/ramus/upstream/ or refs/ramus/stage/, by its full name.
	From, Into string
	Strategy   Strategy
	// Message of the merge or squash commit; empty: a subject that names both
	// branches. Replayed commits keep their own.
	Message string
	// Author and Committer of the merge or squash commit; one that is empty is
	// taken from the other. Replayed commits keep their author.
	Author, Committer Person
	When              time.Time // zero: now
	// Keep makes rebase keep commits that become empty.
	Keep bool
}

// MergeResult is the outcome of a merge. Conflicts are a result, not an error:
// nothing was changed then.
type MergeResult struct {
	Merged    bool     `json:"merged"`               // Into now contains From's work
	Commit    Hash     `json:"commit,omitempty"`     // Into's new tip
	Old       Hash     `json:"old,omitempty"`        // Into's tip before
	UpToDate  bool     `json:"up_to_date,omitempty"` // there was nothing to merge: Merged, and Commit is Old
	Conflicts []string `json:"conflicts,omitempty"`  // paths
	At        Hash     `json:"at,omitempty"`         // rebase: the commit that did not apply
}

// Merge brings From into Into without a work tree. When Into moves meanwhile,
// it starts anew on the new tip.
//
// Rebase does as git rebase does: merge commits are flattened, commits whose
// change the target has already are left out, so are those that become empty;
// commits that stand on the target already are kept as they are.
func (r *Repo) Merge(ctx context.Context, m MergeRequest) (MergeResult, error) {
	res, err := r.merge(ctx, m)
	if err != nil {
		return MergeResult{}, fmt.Errorf("cannot merge %.200q into %.200q in %s: %w", m.From, m.Into, r.name, gitcmd.ExplainFullDisk(err, r.dir))
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

func (r *Repo) merge(ctx context.Context, m MergeRequest) (MergeResult, error) {
	into, err := branchRef(m.Into)
	if err != nil {
		return MergeResult{}, err
	}
	from := m.From
	if strings.HasPrefix(from, upstreamRefs+"/") || strings.HasPrefix(from, StageRefs+"/") {
		err = CheckRef(from)
	} else {
		from, err = branchRef(from)
	}
	if err != nil {
		return MergeResult{}, err
	}
	switch m.Strategy {
	case StrategyMerge, StrategyRebase, StrategySquash, StrategyFF:
	default:
		return MergeResult{}, fmt.Errorf("merge strategy %.40q is none of merge, rebase, squash, ff: %w", m.Strategy, ErrInvalid)
	}
	if m.Author == (Person{}) {
		m.Author = m.Committer
	}
	if m.Committer == (Person{}) {
		m.Committer = m.Author
	}
	if m.Committer == (Person{}) && m.Strategy != StrategyFF {
		return MergeResult{}, fmt.Errorf("nobody is named as the committer: %w", ErrInvalid)
	}
	if m.When.IsZero() {
		m.When = r.server.now()
	}
	if err := r.needSHA1(ctx); err != nil {
		return MergeResult{}, err
	}
	done, err := turn(ctx, r.merging)
	if err != nil {
		return MergeResult{}, err
	}
	defer done()
	theirs, err := r.tip(ctx, from)
	if err != nil {
		return MergeResult{}, err
	}
	for try := 1; ; try++ {
		ours, err := r.tip(ctx, into)
		if err != nil {
			return MergeResult{}, err
		}
		res, err := r.mergeOnce(ctx, m, into, ours, theirs)
		// The target moved: everything is computed anew from where it is now,
		// so nothing of the other's work is lost.
		if !errors.Is(err, errMoved) || try == mergeTries {
			return res, err
		}
	}
}

// tip is where a branch stands.
func (r *Repo) tip(ctx context.Context, ref string) (Hash, error) {
	h, err := r.ref(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("branch %s: %w", strings.TrimPrefix(ref, "refs/heads/"), err)
	}
	return h, nil
}

// errMoved is the conflict that a new try can solve.
var errMoved = fmt.Errorf("the target branch moved: %w", ErrConflict)

func (r *Repo) mergeOnce(ctx context.Context, m MergeRequest, into string, ours, theirs Hash) (MergeResult, error) {
	res := MergeResult{Old: ours}
	upToDate := MergeResult{Merged: true, UpToDate: true, Old: ours, Commit: ours}
	if contained, err := r.reaches(ctx, theirs, ours); err != nil {
		return res, err
	} else if contained {
		return upToDate, nil
	}
	if _, err := r.mergeBase(ctx, string(ours), string(theirs)); errors.Is(err, ErrNotFound) {
		return res, fmt.Errorf("the branches have no commit in common: %w", ErrInvalid)
	} else if err != nil {
		return res, err
	}
	sc, err := r.newScratch()
	if err != nil {
		return res, err
	}
	defer sc.remove()
	switch m.Strategy {
	case StrategyFF:
		ahead, err := r.reaches(ctx, ours, theirs)
		if err != nil {
			return res, err
		}
		if !ahead {
			return res, fmt.Errorf("no fast-forward: %s has commits that %s lacks: %w", m.Into, m.From, ErrConflict)
		}
		res.Commit = theirs
	case StrategyMerge, StrategySquash:
		if err := sc.obey(ctx, ours); err != nil {
			return res, err
		}
		tree, conflicts, err := sc.mergeTree(ctx, ours, theirs)
		if err != nil || conflicts != nil {
			res.Conflicts = conflicts
			return res, err
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
			if was, err := r.objects.TreeOf(ctx, ours); err != nil {
				return res, err
			} else if was == tree {
				return upToDate, nil
			}
		}
		if len(c.Message) == 0 {
			c.Message = fmt.Appendf(nil, "%s branch '%s' into %s\n", verb, m.From, m.Into)
		}
		if res.Commit, err = sc.writeMade(c); err != nil {
			return res, err
		}
	case StrategyRebase:
		res.Commit, res.Conflicts, res.At, err = sc.replay(ctx, m, ours, theirs)
		if err != nil || res.Conflicts != nil {
			return res, err
		}
		if res.Commit == ours {
			return upToDate, nil
		}
	}
	// The objects are on disk before a ref names them.
	if err := sc.adopt(ctx); err != nil {
		return res, err
	}
	err = r.Update(ctx, RefUpdate{Name: into, New: res.Commit, Old: &ours})
	if errors.Is(err, ErrConflict) {
		return res, errors.Join(errMoved, err)
	}
	res.Merged = err == nil
	return res, err
}

// scratch is an object store beside the repository's own, for the objects of a
// merge that may fail; nothing here ever prunes what a failed one would leave.
type scratch struct {
	r     *Repo
	store string // relative to the repository
	// attributes is a work tree with nothing in it but .gitattributes: there git
	// looks for merge=union and the like, never in the trees that it merges.
	attributes string
}

func (r *Repo) newScratch() (*scratch, error) {
	dir, err := os.MkdirTemp(filepath.Join(r.dir, "objects"), scratchPrefix+"merge-")
	if err != nil {
		return nil, err
	}
	sc := &scratch{r: r, store: filepath.Join("objects", filepath.Base(dir)), attributes: filepath.Join(dir, "attributes")}
	if err := os.Mkdir(sc.attributes, 0o777); err != nil {
		sc.remove()
		return nil, err
	}
	return sc, nil
}

func (sc *scratch) remove() {
	if err := os.RemoveAll(filepath.Join(sc.r.dir, sc.store)); err != nil {
		sc.r.server.log().Warn("cannot remove the objects of a merge", "repo", sc.r.name, "error", err)
	}
}

// adopt brings the objects into the repository, durably, as one pack.
func (sc *scratch) adopt(ctx context.Context) error {
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

// adoptLoose adds an object that is a file of its own to a pack.
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

// writeMade writes a commit that the server makes.
func (sc *scratch) writeMade(c object.RawCommit) (Hash, error) {
	data, err := sc.r.server.encodeCommit(c)
	if err != nil {
		return "", err
	}
	return sc.write("commit", data)
}

// write writes an object into the store, as git does: a file of its own, which git
// finds there at once. It is not durable.
func (sc *scratch) write(kind string, data []byte) (Hash, error) {
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

// git describes a child that writes into the scratch store.
func (sc *scratch) git(args ...string) gitcmd.Command {
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

// obey puts the .gitattributes files of a commit or tree into the work tree.
func (sc *scratch) obey(ctx context.Context, tree Hash) error {
	if err := os.RemoveAll(sc.attributes); err != nil {
		return err
	}
	if err := os.Mkdir(sc.attributes, 0o777); err != nil {
		return err
	}
	// Names come from whoever pushed: none may lead out of the folder.
	root, err := os.OpenRoot(sc.attributes)
	if err != nil {
		return err
	}
	defer root.Close()
	out, err := sc.r.server.git.Output(ctx, sc.git("ls-tree", "-r", "-z", "--full-tree", string(tree)))
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
		c := sc.git("cat-file", "blob", words[2])
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

// mergeTree merges two commits with git; conflicts are paths, or nil.
func (sc *scratch) mergeTree(ctx context.Context, ours, theirs Hash, more ...string) (tree Hash, conflicts []string, err error) {
	args := append([]string{"merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"}, more...)
	out, err := sc.r.server.git.Output(ctx, sc.git(append(args, string(ours), string(theirs))...))
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

// replay puts the commits of theirs that ours lacks on top of ours.
func (sc *scratch) replay(ctx context.Context, m MergeRequest, ours, theirs Hash) (tip Hash, conflicts []string, at Hash, err error) {
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
	if err := sc.obey(ctx, ours); err != nil {
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
		// Empty from the start is what its author meant; become empty, or on the
		// target already, is not.
		empty, err := r.isEmpty(ctx, pick)
		if err != nil {
			return "", nil, "", err
		}
		if marked[0] == '=' && !empty {
			continue
		}
		reread := func() error { return nil }
		if bytes.Contains(touching, []byte(h)) {
			reread = func() error { return sc.obey(ctx, onto) }
		}
		if len(pick.Parents) == 1 && pick.Parents[0] == tip {
			tip, onto = h, pick.Tree
			if err := reread(); err != nil {
				return "", nil, "", err
			}
			continue
		}
		tree, conflicts, err := sc.apply(ctx, pick, h, onto)
		if err != nil || conflicts != nil {
			return "", conflicts, h, err
		}
		if tree == onto && !empty && !m.Keep {
			continue
		}
		pick.Tree, pick.Parents = tree, []Hash{tip}
		pick.Committer = m.Committer.Signature(m.When)
		if tip, err = sc.writeMade(pick); err != nil {
			return "", nil, "", err
		}
		onto = tree
		if err := reread(); err != nil {
			return "", nil, "", err
		}
	}
	return tip, nil, "", nil
}

// isEmpty says whether a commit changes nothing.
func (r *Repo) isEmpty(ctx context.Context, c object.RawCommit) (bool, error) {
	if len(c.Parents) == 0 {
		return c.Tree == object.EmptyTree, nil
	}
	before, err := r.objects.TreeOf(ctx, c.Parents[0])
	return before == c.Tree, err
}

// apply merges the change of one commit into a tree. merge-tree can be told
// its merge base only since git 2.40; before, it finds one by itself. So it is
// given a commit that stands on the picked commit's parent and has the tree to
// be changed: the two then part at that parent.
func (sc *scratch) apply(ctx context.Context, pick object.RawCommit, h, onto Hash) (Hash, []string, error) {
	who := Person{Name: "merge", Email: "merge"}.Signature(time.Unix(0, 0))
	stand := object.RawCommit{Tree: onto, Parents: pick.Parents, Author: who, Committer: who}
	ours, err := sc.write("commit", stand.Encode())
	if err != nil {
		return "", nil, err
	}
	// It is only a crutch of this merge: adopt must not take it along.
	defer os.Remove(filepath.Join(sc.r.dir, sc.store, string(ours[:2]), string(ours[2:])))
	return sc.mergeTree(ctx, ours, h, "--allow-unrelated-histories")
}
