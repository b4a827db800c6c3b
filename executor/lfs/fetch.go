package lfs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/lfs"
)

const (
	// fetchWithin bounds the fetch of one object, fetchesMax the fetches at once.
	fetchWithin = 30 * time.Minute
	fetchesMax  = 8
	// askWithin bounds a question to upstream.
	askWithin = 30 * time.Second
)

// fetches are the objects that are being fetched from upstreams. A fetch goes on if its client gives up, because the
// client comes back.
type fetches struct {
	mu      sync.Mutex // guards all below
	closed  bool
	running map[string]*fetch // by key
	slots   chan struct{}
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// fetch is one object on its way.
type fetch struct {
	done chan struct{}
	err  error // set before done is closed
}

// remote returns the Git LFS server of a repository's upstream, or nil.
func (x *Objects) remote(ctx context.Context, r *gitd.Repo) (*lfs.Remote, error) {
	var up gitd.Upstream
	var private []string
	if x.Source != nil {
		up, private = x.Source(r.Name())
	}
	return r.LFSRemote(ctx, up, private, lfs.Download)
}

// askUpstream returns the objects that upstream has.
func (x *Objects) askUpstream(ctx context.Context, r *gitd.Repo, objects []lfs.Object) ([]lfs.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	remote, err := x.remote(ctx, r)
	if err != nil || remote == nil {
		return nil, err
	}
	return remote.Find(ctx, objects)
}

// fetch waits until an object of upstream is in the store.
func (x *Objects) fetch(ctx context.Context, r *gitd.Repo, key string, o lfs.Object) error {
	f, err := x.beginFetch(r, key, o)
	if err != nil {
		return err
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginFetch starts the fetch of an object, unless it is on its way.
func (x *Objects) beginFetch(r *gitd.Repo, key string, o lfs.Object) (*fetch, error) {
	all := &x.fetches
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return nil, errClosed
	}
	if f := all.running[key]; f != nil {
		return f, nil
	}
	if all.running == nil {
		all.running, all.slots = make(map[string]*fetch), make(chan struct{}, fetchesMax)
		all.ctx, all.stop = context.WithCancel(context.Background())
	}
	f := &fetch{done: make(chan struct{})}
	all.running[key] = f
	all.wg.Go(func() {
		f.err = x.fetchNow(all.ctx, r, key, o)
		all.mu.Lock()
		delete(all.running, key)
		all.mu.Unlock()
		close(f.done)
	})
	return f, nil
}

var errClosed = errors.New("the server is shutting down")

// fetchNow fetches an object from upstream.
func (x *Objects) fetchNow(ctx context.Context, r *gitd.Repo, key string, o lfs.Object) error {
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	select {
	case x.fetches.slots <- struct{}{}:
		defer func() { <-x.fetches.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	remote, err := x.remote(ctx, r)
	if err != nil {
		return err
	}
	if remote == nil {
		return fmt.Errorf("the object %s of %s: %w", o.OID, r.Name(), gitd.ErrNotFound)
	}
	in, err := remote.Open(ctx, o)
	if err != nil {
		return err
	}
	defer in.Close()
	x.use(key)
	if err := x.Bucket.Put(ctx, key, lfs.NewContent(o, in)); err != nil {
		return fmt.Errorf("cannot fetch the object %s of %s: %w", o.OID, r.Name(), err)
	}
	x.log().Info("Git LFS object fetched from upstream", "repo", r.Name(), "oid", o.OID, "bytes", o.Size)
	return nil
}

// Close ends the fetches and waits for them.
func (x *Objects) Close() {
	all := &x.fetches
	all.mu.Lock()
	all.closed = true
	if all.stop != nil {
		all.stop()
	}
	all.mu.Unlock()
	all.wg.Wait()
}
