package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// ErrBranchGone is the error of a caller whose branch is deleted.
var ErrBranchGone = errors.New("the branch was deleted")

// Tree is the work tree of a caller. It has the files of the caller's branch in the caller's container. The zero
// Caller is that of a scratch container, which works for no caller. Commits of one Tree must not overlap.
type Tree struct {
	Caller record.Caller
	Repo   *gitd.Repo
	Base   string // branch name
	Hooks  Hooks
	// Dir is the folder of the work tree in the container. Empty means [containers.WorkDir]. Of a caller with several
	// repositories, one has its tree there, and git inside makes the commits of the others.
	Dir string

	store *Store

	mu sync.Mutex // guards all below but left
	// leaks are the leaks for which the last push was refused.
	leaks []gitd.Leak
	// known is the commit that the container's branch is at, or "" if it is unknown.
	known gitd.Hash
	// indexed is the SHA-256 of the index that the container keeps for the next script, or "" if it keeps none.
	indexed string
	// staging is the ref that a commit script may push to, or "" if no script may.
	staging string
	// left has the files that no commit could hold, by path, with the size and time that were reported. Only commits
	// use it.
	left map[string]string
	// expected is where the branch will begin, if it is not there. It is guarded by mu.
	expected gitd.Hash
	// bound is the binding of the container's work tree. It is nil if the work tree was not bound from outside.
	bound *binding
	// indexing is the index of bound until it is written, and nil then.
	indexing *indexWrite
	// joined is the container that an additional repository was brought into last.
	joined *containers.Host
}

// Hooks are the functions of a Tree's users that a Tree calls. Each may be nil.
type Hooks struct {
	// Door returns the handler of requests at the container's door.
	Door func() http.Handler
	// Furnish fills a new container whose work tree is at a commit. The Place is the container's address from
	// outside, or nil if it has none.
	Furnish func(context.Context, *containers.Host, *containers.Place, gitd.Hash)
	// Run returns the id of the run at work, or "".
	Run func() string
	// Foresee is called before a commit becomes the branch's tip.
	Foresee func(gitd.Hash)
	// OnLeak is called after a secret was taken out of the work tree.
	OnLeak func(gitd.Leak) error
	// Installed returns the layers of installed dependencies that fit a commit, for a user.
	Installed func(ctx context.Context, at gitd.Hash, uid int) ([]*Layer, error)
	// Container returns the image and the limits of a new container. Nil means those of the Store.
	Container func() Container
}

// NewTree returns the Tree of a caller on its branch, which began at base. There must be one Tree of a caller and a
// repository at a time.
func (st *Store) NewTree(c record.Caller, repo *gitd.Repo, base string) *Tree {
	return &Tree{store: st, Caller: c, Repo: repo, Base: base}
}

// Expect has a branch that is not there begin at a commit, until it is there. A container can be bound to its work tree before then.
func (t *Tree) Expect(at gitd.Hash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected = at
}

// Tip returns the branch's tip on the server. The error is ErrBranchGone if the branch is deleted.
func (t *Tree) Tip(ctx context.Context) (gitd.Hash, error) {
	tip, err := t.Repo.Resolve(ctx, "refs/heads/"+t.Caller.Branch())
	t.mu.Lock()
	if err == nil {
		t.expected = ""
	}
	expected := t.expected
	t.mu.Unlock()
	if errors.Is(err, gitd.ErrNotFound) {
		if expected != "" {
			return expected, nil
		}
		err = fmt.Errorf("%w: %s: %w", ErrBranchGone, t.Caller.Branch(), err)
	}
	return tip, err
}

// Ready returns a lease of the caller's container with its work tree at the branch's tip, and that tip. A container of another image
// than the one named is removed first. With no image named, any is good.
func (t *Tree) Ready(ctx context.Context, image string, author gitd.Person,
	waiting func(place int, why string)) (*containers.Lease, gitd.Hash, error) {
	for attempt := 0; ; attempt++ {
		lease, err := t.store.Fleet.Acquire(ctx, t.Request(image, author, waiting))
		if err != nil {
			return nil, "", err
		}
		if attempt == 0 && !t.madeOf(lease.Container, image) {
			lease.Release()
			if err := t.store.Fleet.Remove(ctx, t.Caller.String()); err != nil {
				return nil, "", err
			}
			continue
		}
		t.Board(lease)
		t.awaitIndex()
		tip, err := t.Tip(ctx)
		if err == nil {
			err = t.sync(ctx, lease.Host, tip, author)
		}
		if err == nil {
			return lease, tip, nil
		}
		lease.Release()
		if !errors.Is(err, containers.ErrGone) || attempt == 2 {
			return nil, "", err
		}
	}
}

// sync brings the container's work tree to tip, unless it is known to be there.
func (t *Tree) sync(ctx context.Context, h *containers.Host, tip gitd.Hash, author gitd.Person) error {
	known := t.knownTip()
	if known == tip {
		return nil
	}
	if known == "" && t.Dir == "" { // the scripts of all trees in the container
		if err := endScripts(ctx, h); err != nil {
			return err
		}
	}
	// A script that is cut off may continue in the container, and leave the work tree anywhere.
	env := t.scriptEnv(author, known, tip)
	t.Forget()
	out, err := t.fetching(ctx, h, syncScript, env)
	if err != nil {
		return err
	}
	t.setKnown(tip)
	t.setIndexed(parseCommitOutput(out.stdout).index)
	t.settle(ctx, tip, true)
	return nil
}

// labelImage is the label of a container with the image's name in the request.
const labelImage = "ramus.asked"

// Request returns the request for the caller's container. Its work tree is cloned inside. If the fleet has a Keeper, it is bound from
// outside, and cloned where that cannot be done.
func (t *Tree) Request(image string, author gitd.Person, waiting func(place int, why string)) containers.Request {
	c := t.container()
	r := t.store.request(t.Caller.String(), cmp.Or(image, c.Image), t.Repo.Name())
	r.Limits, r.Waiting = c.Limits, waiting
	if t.Hooks.Door != nil {
		r.Door = t.Hooks.Door()
	}
	r.Provision = func(ctx context.Context, h *containers.Host) error {
		t.Forget()
		t.setBinding(nil)
		t.setIndexed("")
		if _, err := t.fetching(ctx, h, provisionScript, t.scriptEnv(author, "", "")); err != nil {
			return err
		}
		if tip, err := t.Tip(ctx); err == nil { // without a tip, the next call returns the error
			t.furnish(ctx, h, nil, tip)
		}
		return nil
	}
	if t.store.layers != nil {
		r.Bind = func(ctx context.Context, p containers.Place) error {
			if err := t.bind(ctx, p, author); err != nil {
				return err
			}
			t.furnish(ctx, p.Host, &p, t.knownTip())
			return nil
		}
	}
	return r
}

// container returns the options of the caller's containers.
func (t *Tree) container() Container {
	if t.Hooks.Container == nil {
		return t.store.Container
	}
	return t.Hooks.Container()
}

// request returns the parts that the requests for all containers have in common.
func (st *Store) request(key, image, repo string) containers.Request {
	c := st.Usual()
	return containers.Request{
		Key:    key,
		Image:  image,
		Env:    c.Env,
		Limits: c.Limits,
		Labels: map[string]string{labelRepo: repo, labelImage: image},
		Warm:   st.WarmUp,
	}
}

// labelRepo is the repository that a container works on.
const labelRepo = "ramus.repo"

// WarmPool starts containers of the usual kind before callers need them, if the fleet has a pool, and returns when they wait. See
// [containers.Fleet.Warm].
func (st *Store) WarmPool(ctx context.Context) error {
	c := st.Usual()
	return st.Fleet.Warm(ctx, containers.Request{Image: c.Image, Env: c.Env, Limits: c.Limits, Warm: st.WarmUp})
}

func (t *Tree) furnish(ctx context.Context, h *containers.Host, p *containers.Place, at gitd.Hash) {
	if t.Hooks.Furnish != nil {
		t.Hooks.Furnish(ctx, h, p, at)
	}
}

// madeOf reports whether a container is of an image, as far as its engine has images.
func (t *Tree) madeOf(c containers.Container, image string) bool {
	return image == "" || c.Image == "" || cmp.Or(c.Labels[labelImage], t.store.Usual().Image) == image
}

// Forget has the next Ready bring the work tree to the branch's tip, wherever it is now.
func (t *Tree) Forget() { t.setKnown("") }

// At returns the commit that the container's work tree is at, or "" if that is unknown.
func (t *Tree) At() gitd.Hash { return t.knownTip() }

// knownTip returns the commit that the container's branch is at, or "" if it is unknown.
func (t *Tree) knownTip() gitd.Hash {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

func (t *Tree) setKnown(h gitd.Hash) {
	t.mu.Lock()
	t.known = h
	t.mu.Unlock()
}

func (t *Tree) setIndexed(sum string) {
	t.mu.Lock()
	t.indexed = sum
	t.mu.Unlock()
}

// LeftOut reports whether the last commit could not hold all files of the work tree.
func (t *Tree) LeftOut() bool { return len(t.left) > 0 }

// Grant returns the container's grant at its door. The container may read the base and the caller's branch, and write
// that branch, forward only. While a commit script runs that pushes to a ref that the host then merges, it may write
// that ref, too. The grant never leaves the host, because the connection is the proof.
func (t *Tree) Grant() gitd.Grant {
	own := "refs/heads/" + t.Caller.Branch()
	write := []string{own}
	t.mu.Lock()
	if t.staging != "" {
		write = append(write, t.staging)
	}
	t.mu.Unlock()
	return gitd.Grant{
		Subject: t.Caller.String(),
		Repo:    t.Repo.Name(),
		Read:    []string{"refs/heads/" + t.Base, own, record.ConflictRefs(t.Caller) + "/*"},
		Write:   write,
		Scopes:  []string{gitd.ScopeWrite},
		Expires: t.store.Now().AddDate(1, 0, 0), // not a bound, because the grant ends with the connection
	}
}
