package deps

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Furnish puts the dependencies that fit a commit into the cache of a new container, and returns their ecosystems. p
// is the container's address from outside, or nil if it has none. A failure is only logged, because the container is
// as good as one without a cache.
func (c *Cache) Furnish(ctx context.Context, t *worktree.Tree, h *containers.Host, p *containers.Place, at gitd.Hash) []string {
	ctx, cancel := context.WithTimeout(ctx, unpackWithin)
	defer cancel()
	base, err := t.Repo.LatestBase(ctx)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil // nothing was ever fetched from it
	}
	var put []string
	if err == nil {
		put, err = c.put(ctx, t.Repo, h, p, base.Base, at)
	}
	if err != nil && ctx.Err() == nil {
		c.Log.Warn("a container begins with a cold cache", "caller", t.Caller, "err", err)
	}
	return put
}

// put unpacks the tarballs of the dependencies in a container, and mounts those that have a layer. It returns the ecosystems whose
// dependencies are there, also on error.
func (c *Cache) put(ctx context.Context, repo *gitd.Repo, h *containers.Host, p *containers.Place, base gitd.Base, at gitd.Hash) (put []string, err error) {
	own, err := lockfilesLike(ctx, repo, base.Lockfiles, at)
	if err != nil {
		return nil, err
	}
	found, err := c.find(ctx, repo.Name(), p, own, base.Lockfiles)
	errs := []error{err}
	mounted, err := c.mount(ctx, p, found)
	errs = append(errs, err)
	for _, l := range found {
		if !mounted[l.name] {
			if err := c.unpack(ctx, h, l); err != nil {
				errs = append(errs, err)
				continue
			}
			c.unpacked.Add(1)
			c.Trees.Wish(c.wish(l))
		}
		put = append(put, l.name)
	}
	return put, errors.Join(errs...)
}

// find returns, for each ecosystem, the cached dependencies of the commit's own lock files. If the cache has none, it
// returns those of the base, because most of the dependencies are the same.
func (c *Cache) find(ctx context.Context, repo string, p *containers.Place, own, base map[string]string) (found []locked, err error) {
	var errs []error
	for _, e := range ecosystems {
		for _, hash := range slices.Compact([]string{e.lockHash(own), e.lockHash(base)}) {
			if hash == "" {
				continue
			}
			l := locked{ecosystem: e, repo: repo, hash: hash}
			there, err := c.layer(l, p) != nil, error(nil)
			if !there {
				there, err = c.has(ctx, l)
			}
			if err != nil {
				errs = append(errs, err)
				break
			}
			if there {
				found = append(found, l)
				break
			}
		}
	}
	return found, errors.Join(errs...)
}

// lockfilesLike returns the hashes of a commit's files where the base has lock files.
func lockfilesLike(ctx context.Context, repo *gitd.Repo, base map[string]string, at gitd.Hash) (map[string]string, error) {
	own := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(base)) {
		in, _, err := repo.OpenFile(ctx, string(at), name)
		if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) {
			continue // removed, or something else now
		}
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(h, in)
		if err := errors.Join(err, in.Close()); err != nil {
			return nil, err
		}
		own[name] = hex.EncodeToString(h.Sum(nil))
	}
	return own, nil
}

// unpack unpacks a tarball inside the container, as its user. Of the tarball it unpacks only the ecosystem's folder.
func (c *Cache) unpack(ctx context.Context, h *containers.Host, l locked) error {
	key := l.key()
	tar := containers.Command{ID: worktree.NewScriptID(), Timeout: unpackWithin,
		Args: []string{"tar", "-C", Dir, "-xf", "-", "--", l.folder}}
	err := worktree.Untar(ctx, h, tar, func(ctx context.Context, w io.Writer) error {
		in, err := c.Bucket.Open(ctx, key)
		if err != nil {
			return err
		}
		defer in.Close()
		tarball, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, io.LimitReader(tarball, tarballMax))
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", key, err)
	}
	return nil
}

// layer returns the layer of dependencies that a container could have mounted, or nil.
func (c *Cache) layer(l locked, p *containers.Place) *worktree.Layer {
	if p == nil {
		return nil
	}
	return c.Trees.Dependencies(l.repo, l.name, l.hash, p.UID)
}

// mount mounts the dependencies that have layers, and returns their ecosystems. On error none is mounted.
func (c *Cache) mount(ctx context.Context, p *containers.Place, list []locked) (mounted map[string]bool, err error) {
	var layers []*worktree.Layer
	for _, l := range list {
		if layer := c.layer(l, p); layer != nil {
			layers = append(layers, layer)
		}
	}
	if len(layers) == 0 {
		return nil, nil
	}
	layers, err = c.Trees.Mount(ctx, *p, Dir, layers)
	if err != nil {
		return nil, fmt.Errorf("dependencies are unpacked where they could be mounted: %w", err)
	}
	mounted = make(map[string]bool)
	for _, l := range layers {
		mounted[l.Ecosystem] = true
	}
	c.mounted.Add(int64(len(layers)))
	return mounted, nil
}
