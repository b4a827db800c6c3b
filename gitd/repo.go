package gitd

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ramus-dev/ramus/gitd/gitfile"
	"github.com/ramus-dev/ramus/gitd/refview"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// Repo is one bare repository. Its methods are safe for concurrent use. It holds processes and file handles only
// while it is used, so it need not be closed.
type Repo struct {
	server  *Server
	name    string
	dir     string
	id      fileID // of the folder dir when this Repo was made
	refs    refWriting
	objects pack.Reader
	view    refview.View
	format  atomic.Pointer[string] // of object names, nil if not known yet
	// merging, maintaining and refreshing hold one token each. Merges of one repository take turns instead of
	// losing against each other's compare-and-swap. Two repacks or two fetches at once would do the same work
	// twice. They are channels, so that a waiting caller can give up.
	merging, maintaining, refreshing chan struct{}
	// locking is held for reading while a git of this server may hold locks of refs. While it is held for writing, a
	// lock that is found belongs to nobody.
	locking sync.RWMutex
	// pushing is held for reading while git receives a push, and for writing while objects are removed. Git takes
	// an existing pack for the one that was pushed.
	pushing sync.RWMutex
}

// Name returns the name of the repository without ".git".
func (r *Repo) Name() string { return r.name }

// Dir returns the folder of the repository on disk.
func (r *Repo) Dir() string { return r.dir }

// Base returns the branch that HEAD names, without refs/heads/. It is the canonical base.
func (r *Repo) Base(ctx context.Context) (string, error) {
	b, err := gitfile.ReadSmall(filepath.Join(r.dir, "HEAD"))
	if err != nil {
		return "", fmt.Errorf("cannot read the base of %s: %w", r.name, err)
	}
	name, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "ref: refs/heads/")
	if !ok {
		return "", fmt.Errorf("repository %s has no base: its HEAD names no branch: %w", r.name, ErrInvalid)
	}
	return name, nil
}

// Upstream returns the source from which the repository was imported, without credentials. Returns "" if the
// repository was created here.
func (r *Repo) Upstream(ctx context.Context) (string, error) {
	for _, key := range []string{keyUpstream, "remote.origin.url"} {
		out, err := r.output(ctx, "config", "--local", "--get", key)
		if err == nil {
			return withoutPassword(strings.TrimSuffix(string(out), "\n")), nil
		}
		// git config exits with 1 if the key does not exist.
		if gitcmd.ExitCode(err) != 1 {
			return "", fmt.Errorf("cannot read the upstream of %s: %w", r.name, err)
		}
	}
	return "", nil
}

// output runs git in the repository and returns its output.
func (r *Repo) output(ctx context.Context, args ...string) ([]byte, error) {
	return r.server.git.Output(ctx, gitcmd.Command{Repo: r.dir, Args: args})
}

// takeTurn waits for the token of ch, or for the end of ctx. The function that it returns gives the token back.
func takeTurn(ctx context.Context, ch chan struct{}) (func(), error) {
	select {
	case ch <- struct{}{}:
		return func() { <-ch }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
