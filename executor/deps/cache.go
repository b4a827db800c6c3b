package deps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of the cache.
const (
	tarballMax   = 1 << 30          // bytes of one tarball, as the container gives it
	tarballsKept = 3                // newest tarballs of a repository and ecosystem
	locksMax     = 50               // lock files of one ecosystem
	fetchWithin  = 20 * time.Minute // one lock file's dependencies
	unpackWithin = 5 * time.Minute
)

// Cache is the dependency cache of a server. Its fields are its options. Methods are safe for concurrent use.
type Cache struct {
	Git *gitd.Server
	// Trees starts the containers that fetch, and keeps the layers of dependencies.
	Trees *worktree.Store
	// Bucket keeps the tarballs.
	Bucket store.Bucket
	// Egress returns the hosts that Warm may fetch from, see [egress.Proxy]. If there are none, nothing is fetched.
	Egress func() (allow, private []string)
	Log    *slog.Logger

	mounted, unpacked atomic.Int64

	mu    sync.Mutex               // guards turns
	turns map[string]chan struct{} // by repository; holds a token while one of its commits is fetched for
}

// ErrCannotFetch is the error of dependencies that cannot be fetched as things are, now or later.
var ErrCannotFetch = errors.New("the dependencies cannot be fetched")

// Counts returns how many ecosystems' dependencies containers have got by a mount, and how many by unpacking a tarball.
func (c *Cache) Counts() (mounted, unpacked int64) { return c.mounted.Load(), c.unpacked.Load() }

// fetches reports whether there is a host to fetch from.
func (c *Cache) fetches() bool {
	if c.Egress == nil {
		return false
	}
	allow, _ := c.Egress()
	return len(allow) > 0
}

// stock returns the dependencies of a commit, those that are in the cache and those that are not.
func (c *Cache) stock(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (there, cold []locked, err error) {
	files, err := repo.Lockfiles(ctx, commit)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range ecosystems {
		l := locked{ecosystem: e, repo: repo.Name(), hash: e.lockHash(files)}
		if l.hash == "" {
			continue
		}
		ok, err := c.has(ctx, l)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			there = append(there, l)
		} else {
			cold = append(cold, l)
		}
	}
	return there, cold, nil
}

// Stocked returns the names of the ecosystems whose dependencies of a commit are in the cache, sorted.
func (c *Cache) Stocked(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) ([]string, error) {
	there, _, err := c.stock(ctx, repo, commit)
	var names []string
	for _, l := range there {
		names = append(names, l.name)
	}
	slices.Sort(names)
	return names, err
}

// has reports whether the cache has the tarball of some dependencies.
func (c *Cache) has(ctx context.Context, l locked) (bool, error) {
	ok, err := c.Bucket.Exists(ctx, l.key())
	if err != nil {
		return false, fmt.Errorf("cannot look into the dependency cache: %w", err)
	}
	return ok, nil
}

// wish returns the wish for the layer of some dependencies.
func (c *Cache) wish(l locked) worktree.Wish {
	return worktree.Wish{
		Repo:      l.repo,
		Ecosystem: l.name,
		Locks:     l.hash,
		Target:    Dir,
		Fill:      func(ctx context.Context, h *containers.Host) error { return c.unpack(ctx, h, l) },
	}
}

// MakeLayers makes the layers of a commit's dependencies, as far as these are in the cache.
func (c *Cache) MakeLayers(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) error {
	there, _, err := c.stock(ctx, repo, commit)
	for _, l := range there {
		err = errors.Join(err, c.Trees.Make(ctx, c.wish(l)))
	}
	able, failed := c.installable(ctx, repo, commit, there)
	err = errors.Join(err, failed)
	for _, l := range able {
		err = errors.Join(err, c.Trees.Make(ctx, c.installWish(repo, commit, l)))
	}
	return err
}

// Lacks reports whether Warm would fetch dependencies of a commit. It has the layers of all others made in the background.
func (c *Cache) Lacks(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (bool, error) {
	there, cold, err := c.stock(ctx, repo, commit)
	for _, l := range there {
		c.Trees.Wish(c.wish(l))
	}
	c.wishInstalled(ctx, repo, commit, there)
	return err == nil && len(cold) > 0 && c.fetches(), err
}

// Warm fetches the dependencies of a commit of a base into the cache, in a container on that commit. Dependencies
// that are in the cache cost nothing. Warm writes its progress to progress. The error names the dependencies that
// cannot be fetched. The others are kept.
func (c *Cache) Warm(ctx context.Context, name string, commit gitd.Hash, progress io.Writer) error {
	repo, err := c.Git.Repo(name)
	if err != nil {
		return err
	}
	there, cold, err := c.stock(ctx, repo, commit)
	if err != nil {
		return err
	}
	for _, l := range there {
		c.Trees.Wish(c.wish(l))
	}
	c.wishInstalled(ctx, repo, commit, there)
	if len(cold) == 0 {
		fmt.Fprintf(progress, "dependencies: %d of %d ecosystems are in the cache\n", len(there), len(there))
		return nil
	}
	if !c.fetches() {
		return fmt.Errorf("%w: containers reach no host; list the registry's in `egress`", ErrCannotFetch)
	}
	// A repository has one container that fetches.
	done, err := c.turn(ctx, name)
	if err != nil {
		return fmt.Errorf("cannot fetch the dependencies of %s: %w", name, err)
	}
	defer done()
	if _, cold, err = c.stock(ctx, repo, commit); err != nil {
		return err
	}
	if len(cold) == 0 {
		fmt.Fprintf(progress, "dependencies: somebody else has just fetched them\n")
		return nil
	}

	w, err := c.openWarmer(ctx, repo, commit)
	if err != nil {
		return fmt.Errorf("cannot fetch the dependencies of %s: %w", name, err)
	}
	defer w.close()
	var errs []error
	for _, l := range cold {
		size, err := w.warm(ctx, l)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot fetch the %s dependencies of %s: %w", l.name, name, err))
			fmt.Fprintf(progress, "dependencies: %s: %v\n", l.name, err)
			continue
		}
		fmt.Fprintf(progress, "dependencies: %s: %d KiB are in the cache now\n", l.name, size>>10)
		c.Log.Info("the dependencies of a base are in the cache", "repo", name, "commit", commit, "ecosystem", l.name,
			"bytes", size)
		c.prune(ctx, name, l.name)
		c.Trees.Wish(c.wish(l))
		c.wishInstalled(ctx, repo, commit, []locked{l})
	}
	return errors.Join(errs...)
}

// turn waits until nothing else is fetched for a repository. The returned function ends the turn.
func (c *Cache) turn(ctx context.Context, repo string) (func(), error) {
	c.mu.Lock()
	if c.turns == nil {
		c.turns = make(map[string]chan struct{})
	}
	turn := c.turns[repo]
	if turn == nil {
		turn = make(chan struct{}, 1)
		c.turns[repo] = turn
	}
	c.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Forget removes the tarballs of a repository that is gone.
func (c *Cache) Forget(ctx context.Context, repo string) error {
	for _, eco := range ecosystems {
		for o, err := range c.Bucket.List(ctx, keyPrefix(repo, eco.name)) {
			if err == nil {
				err = c.Bucket.Delete(ctx, o.Key)
			}
			if err != nil {
				return fmt.Errorf("cannot remove the dependencies of %s from the cache: %w", repo, err)
			}
		}
	}
	return nil
}

// prune removes an ecosystem's oldest tarballs of a repository.
func (c *Cache) prune(ctx context.Context, repo, eco string) {
	var all []store.Entry
	for o, err := range c.Bucket.List(ctx, keyPrefix(repo, eco)) {
		if err != nil {
			break // the next call prunes
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b store.Entry) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Key, b.Key))
	})
	for _, o := range all[min(tarballsKept, len(all)):] {
		if err := c.Bucket.Delete(ctx, o.Key); err != nil {
			c.Log.Warn("cannot remove an old tarball of the dependency cache", "key", o.Key, "err", err)
		}
		// The layer has no more than the tarball had.
		for _, kind := range []string{eco, eco + worktree.InstalledSuffix} {
			if l := c.Trees.Dependencies(repo, kind, path.Base(o.Key), c.Trees.Fleet.TaskUID()); l != nil {
				c.Trees.Drop(l)
			}
		}
	}
}
