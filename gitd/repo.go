package gitd

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// Repo is one bare repository. Methods are safe for concurrent use. A Repo
// holds processes and file handles only while it is used; it needs no closing.
type Repo struct {
	server  *Server
	name    string
	dir     string
	id      fileID // the folder that dir was when this Repo was made
	refs    refWriting
	objects pack.Reader
	view    refView
	format  atomic.Pointer[string] // of object names, once it was asked for
	// merging, maintaining and refreshing hold one token each: merges of one
	// repository take turns instead of losing against each other's
	// compare-and-swap, and two repacks or two fetches at once would do the same
	// work twice. Channels, so that a waiting caller can give up.
	merging, maintaining, refreshing chan struct{}
	// locking is held for reading while a git of this server may hold locks of
	// refs, so that whoever holds it alone knows a lock that nobody holds.
	locking sync.RWMutex
	// pushing is held for reading while git takes a push, and alone while objects are
	// removed: git takes a pack that is there already for the one that was pushed.
	pushing sync.RWMutex
}

// Name is the repository's name without ".git".
func (r *Repo) Name() string { return r.name }

// Dir is the repository's folder on disk.
func (r *Repo) Dir() string { return r.dir }

// Base is the branch that HEAD names, without refs/heads/: the canonical base.
func (r *Repo) Base(ctx context.Context) (string, error) {
	b, err := readSmall(filepath.Join(r.dir, "HEAD"))
	if err != nil {
		return "", fmt.Errorf("cannot read the base of %s: %w", r.name, err)
	}
	name, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "ref: refs/heads/")
	if !ok {
		return "", fmt.Errorf("repository %s has no base: its HEAD names no branch: %w", r.name, ErrInvalid)
	}
	return name, nil
}

// Upstream is where the repository was imported from, without credentials;
// empty when it was created here.
func (r *Repo) Upstream(ctx context.Context) (string, error) {
	for _, key := range []string{keyUpstream, "remote.origin.url"} {
		out, err := r.output(ctx, "config", "--local", "--get", key)
		if err == nil {
			return withoutPassword(strings.TrimSuffix(string(out), "\n")), nil
		}
		// git config exits with 1 when there is no such key.
		if gitcmd.ExitCode(err) != 1 {
			return "", fmt.Errorf("cannot read the upstream of %s: %w", r.name, err)
		}
	}
	return "", nil
}

// output runs git in the repository and returns what it prints.
func (r *Repo) output(ctx context.Context, args ...string) ([]byte, error) {
	return r.server.git.Output(ctx, gitcmd.Command{Repo: r.dir, Args: args})
}

// turn takes the token of ch, or gives up with ctx; the result gives it back.
func turn(ctx context.Context, ch chan struct{}) (func(), error) {
	select {
	case ch <- struct{}{}:
		return func() { <-ch }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
