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
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
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
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := c.Bucket.Open(reading, key)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", key, err)
	}
	defer in.Close()
	tarball, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", key, err)
	}
	whole := &endingReader{r: io.LimitReader(tarball, tarballMax)}
	defer func() {
		cancel()    // a reader that waits for the artifact store need not
		whole.end() // only then is the tarball closed
	}()

	p, err := h.Start(ctx, containers.Command{ID: worktree.NewScriptID(), Stdin: whole, Timeout: unpackWithin,
		Args: []string{"tar", "-C", Dir, "-xf", "-", "--", l.folder}})
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", key, err)
	}
	said := text.Tail{Limit: 1 << 10}
	exit, err := p.Output(io.Discard, &said)
	if err == nil && exit.Code != 0 {
		cancel() // tar must not wait for the rest
	}
	if err == nil {
		err = whole.end()
	}
	if exit.Code != 0 && (err == nil || errors.Is(err, context.Canceled)) {
		err = fmt.Errorf("tar ended with %d: %s", exit.Code, strings.Join(strings.Fields(said.String()), " "))
	}
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", key, err)
	}
	return nil
}

// endingReader ends if the reader below it fails. Its reader would otherwise wait for the rest. The runner's
// connection may read from it after the command has ended, so it can be ended, too.
type endingReader struct {
	r     io.Reader
	mu    sync.Mutex // guards all below, and is held while r is read
	err   error
	ended bool
}

func (e *endingReader) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return 0, io.EOF
	}
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err, err = err, io.EOF
	}
	return n, err
}

// end waits for a Read that is under way, and lets no other read. It returns the error of the reader below.
func (e *endingReader) end() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	return e.err
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
