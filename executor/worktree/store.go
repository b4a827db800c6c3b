package worktree

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Housekeeping is the longest time for a clone, a checkout or a commit.
const Housekeeping = 15 * time.Minute

// Store makes the work trees of a server's containers, and keeps the layers that they share. Its exported fields are its options, and
// may be changed until Open. Methods are safe for concurrent use.
type Store struct {
	Git *gitd.Server
	// Fleet gives containers. Work trees are bound from outside if it has a Keeper.
	Fleet *containers.Fleet
	// Container has the options with which every container is started. SetContainer changes them later.
	Container Container
	// Identity has the names under which commits are made.
	Identity Identity
	// Secrets are taken out of files before these are committed. Nil means that there are none.
	Secrets *redact.Secrets
	// Layers has the folder of layers, and their bounds.
	Layers Layers
	// Find returns the Tree that a caller has in this process, or nil.
	Find func(record.Caller) *Tree
	Log  *slog.Logger
	Now  func() time.Time

	usual  atomic.Pointer[Container] // set by SetContainer
	ctx    context.Context           // of work in the background
	wg     sync.WaitGroup            // of the work in the background
	counts counters
	layers *layerSet // nil if work trees are not bound from outside

	mu      sync.Mutex                  // guards all below
	closed  bool                        // nothing more is begun in the background
	rescued map[record.Caller]gitd.Hash // commits of lost work trees, until they are reported
}

// Container has the options of containers without options of their own.
type Container struct {
	Image  string
	Limits containers.Limits
	Env    []string // of every command, "K=V"
}

// SetContainer changes the options of containers that start later.
func (st *Store) SetContainer(c Container) { st.usual.Store(&c) }

// Usual returns the present options of containers, which must not be changed.
func (st *Store) Usual() *Container {
	if c := st.usual.Load(); c != nil {
		return c
	}
	return &st.Container
}

// Layers bounds the layers of a Store.
type Layers struct {
	// Dir is their folder.
	Dir string
	// Bytes bounds the disk space of all layers. The default is 20 GiB.
	Bytes int64
	// Entries bounds the files and folders of a layer. The default is 2 Mi.
	Entries int
	// BranchNear is the number of paths that a branch must differ in to get a layer of its own. The default is 64.
	// BranchRest is the time for which it must rest before. The default is half a second.
	BranchNear int
	BranchRest time.Duration
	// AskFrom is the number of files of a layer from which git inside asks the host for changes. The default is 2,000.
	AskFrom int
}

// Open finds the layers that earlier processes made, and removes those that they did not finish. Work in the background ends with ctx.
func (st *Store) Open(ctx context.Context) error {
	st.ctx = ctx
	st.rescued = make(map[record.Caller]gitd.Hash)
	st.Fleet.Salvage = st.salvage
	return st.openLayers()
}

// Close waits for the work in the background, which ends soon if the context of Open has ended.
func (st *Store) Close() {
	st.mu.Lock()
	st.closed = true
	st.mu.Unlock()
	st.wg.Wait()
}

// background runs f in a goroutine that Close waits for. It returns false, without running f, if the Store is closed.
func (st *Store) background(f func()) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return false
	}
	st.wg.Go(f)
	return true
}

// Binds reports whether work trees are bound from outside.
func (st *Store) Binds() bool { return st.layers != nil }

// Counts are the numbers of a Store since it was opened.
type Counts struct {
	// Bound are the containers that got their work tree from outside. Snapshots are the commits made from outside, of which
	// Hashed files were read. Salvaged are the lost containers of which something was kept.
	Bound, Snapshots, Hashed, Salvaged int64
	// Layers and BranchLayers were made, of bases and dependencies, and of branches.
	Layers, BranchLayers int64
	// Portable counts by reason the work that was left to git in containers.
	Portable map[string]int64
}

// Counts returns the numbers since the Store was opened.
func (st *Store) Counts() Counts {
	c := Counts{
		Bound:     st.counts.binds.Load(),
		Snapshots: st.counts.snapshots.Load(),
		Hashed:    st.counts.hashed.Load(),
		Salvaged:  st.counts.salvaged.Load(),
		Portable:  st.counts.reasons(),
	}
	if st.layers != nil {
		c.Layers, c.BranchLayers = st.layers.made.Load(), st.layers.branched.Load()
	}
	return c
}

// counters are the numbers of Counts.
type counters struct {
	binds, snapshots, hashed, salvaged atomic.Int64

	mu       sync.Mutex // guards fallback
	fallback map[string]int64
}

// fellBack counts, by reason, work on t that is left to git in its container.
func (c *counters) fellBack(why string, t *Tree, err error) {
	c.mu.Lock()
	if c.fallback == nil {
		c.fallback = make(map[string]int64)
	}
	c.fallback[why]++
	c.mu.Unlock()
	t.store.Log.Debug("a work tree goes the portable way", "caller", t.Caller, "why", why, "err", err)
}

func (c *counters) reasons() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.fallback)
}
