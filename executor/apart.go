package executor

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/gitd"
)

// apart says what container of nobody's is wanted.
type apart struct {
	key    string
	image  string
	branch string    // that has the commit
	commit gitd.Hash // which it begins at
	door   http.Handler
	warm   bool // with the dependencies that are in the cache
}

// apart makes a container that works for no caller, over a base layer where there is one;
// leaveApart removes it.
func (t *target) apart(ctx context.Context, a apart) (*containers.Lease, error) {
	x := t.x
	// One that a killed process left may have been half way.
	if err := x.Fleet.Remove(ctx, a.key); err != nil {
		return nil, err
	}
	r := containers.Request{Key: a.key, Image: a.image, Env: x.containerEnv(), Limits: x.Limits, Door: a.door, Warm: x.warmUp,
		Labels: map[string]string{"ramus.repo": t.repo.Name(), labelAsked: a.image},
		Provision: func(ctx context.Context, h *containers.Host) error {
			_, err := t.script(ctx, h, provisionScript, append(x.identity(x.Bot),
				"RAMUS_BRANCH="+a.branch, "RAMUS_REMOTE="+t.remote(), "RAMUS_AT="+string(a.commit)), nil)
			if err == nil && a.warm {
				t.furnish(ctx, h, nil, a.commit)
			}
			return err
		}}
	if x.layers != nil {
		r.Bind = func(ctx context.Context, p containers.Place) error {
			_, _, err := t.lay(ctx, p, stand{branch: a.branch, commit: a.commit, author: x.Bot, alone: true})
			if err == nil && a.warm {
				t.furnish(ctx, p.Host, &p, a.commit)
			}
			return err
		}
	}
	return x.Fleet.Acquire(ctx, r)
}

// leaveApart removes a container that works for no caller.
func (t *target) leaveApart(lease *containers.Lease, key string) {
	lease.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.x.ctx), time.Minute)
	defer cancel()
	if err := t.x.Fleet.Remove(ctx, key); err != nil {
		t.x.Log.Warn("a container that works for no caller cannot be removed; it goes to sleep by itself", "repo", t.repo.Name(), "key", key, "err", err)
	}
}

// apartDoor is the door of such a container: what it may read, and the hosts that are allowed.
func apartDoor(repo *gitd.Repo, git http.Handler, out *egress.Proxy) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect || r.URL.IsAbs():
			out.ServeHTTP(rw, r)
		case fromPage(r):
			refusePage(rw)
		case strings.HasPrefix(r.URL.Path, "/"+repo.Name()+".git/"):
			git.ServeHTTP(rw, r)
		default:
			http.NotFound(rw, r)
		}
	})
}
