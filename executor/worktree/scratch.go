package worktree

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/gitd"
)

// Scratch is a container that works for no caller, on a commit of the base or of a caller's branch.
type Scratch struct {
	// Key names the container in the fleet.
	Key   string
	Image string
	// Branch is a branch that has Commit, at which the work tree begins.
	Branch string
	Commit gitd.Hash
	// Door serves the container's requests, see ScratchDoor.
	Door http.Handler
	// Beyond is [containers.Request.Beyond].
	Beyond bool
	// Furnish enables the Tree's hook of that name.
	Furnish bool
}

// OpenScratch starts a container that works for no caller. A Tree of the zero Caller is in it. CloseScratch removes it.
func (t *Tree) OpenScratch(ctx context.Context, s Scratch) (*containers.Lease, error) {
	st := t.store
	// A container of a killed process may be half made.
	if err := st.Fleet.Remove(ctx, s.Key); err != nil {
		return nil, err
	}
	r := st.request(s.Key, s.Image, t.Repo.Name())
	r.Door, r.Beyond = s.Door, s.Beyond
	r.Provision = func(ctx context.Context, h *containers.Host) error {
		_, err := t.script(ctx, h, provisionScript, append(st.Identity.Env(st.Identity.Bot),
			"RAMUS_BRANCH="+s.Branch, "RAMUS_REMOTE="+t.remote(), "RAMUS_AT="+string(s.Commit)), nil)
		if err == nil && s.Furnish {
			t.furnish(ctx, h, nil, s.Commit)
		}
		return err
	}
	if st.layers != nil {
		r.Bind = func(ctx context.Context, p containers.Place) error {
			_, _, err := t.lay(ctx, p, beginning{branch: s.Branch, commit: s.Commit, author: st.Identity.Bot, scratch: true})
			if err == nil && s.Furnish {
				t.furnish(ctx, p.Host, &p, s.Commit)
			}
			return err
		}
	}
	return st.Fleet.Acquire(ctx, r)
}

// CloseScratch removes a container that OpenScratch started.
func (t *Tree) CloseScratch(lease *containers.Lease, key string) {
	lease.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.store.ctx), time.Minute)
	defer cancel()
	if err := t.store.Fleet.Remove(ctx, key); err != nil {
		t.store.Log.Warn("a container that works for no caller cannot be removed; it goes to sleep by itself",
			"repo", t.Repo.Name(), "key", key, "err", err)
	}
}

// ScratchDoor returns the door of a scratch container. git serves the repository, out the hosts that are allowed. Nothing else is
// there.
func ScratchDoor(repo *gitd.Repo, git http.Handler, out *egress.Proxy) http.Handler {
	return out.Door(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/"+repo.Name()+".git/") {
			git.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	}))
}
