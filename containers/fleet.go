package containers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/semaphore"

	"github.com/ramus-dev/ramus/containers/layer"
)

// Fleet has one [Host] for each caller. Its exported fields are its options and may be changed until Open. Methods are
// safe for concurrent use.
type Fleet struct {
	Engine Engine
	// Dir has the private folders of containers and the client key.
	Dir string
	// Capacity is the number of containers that may exist at once. The default is 2 × cores, at least 4.
	Capacity int
	// Queue is the number of callers that may wait for a container. More get [ErrBusy]. The default is 1000.
	Queue int
	// Sidecars is the number of sidecars that may run at once. The default is the number of cores, at least 2.
	Sidecars int
	// Companions is the number of containers next to others, such as services, that may exist at once. The default is Capacity.
	Companions int
	// SleepAfter is the time without a command and without a background process after which a container is removed. The
	// default is 10 min.
	SleepAfter time.Duration
	// StartTimeout bounds the start by the engine and the first connection (default 2 min). ProvisionTimeout bounds
	// Request.Provision (default 10 min).
	StartTimeout, ProvisionTimeout time.Duration
	// Pool is the number of started and connected containers that wait for callers, for each combination of image,
	// environment and limits that was requested lately. Capacity does not count them, and none is used twice. The
	// default is 0.
	Pool int
	// Keeper binds work trees from outside. If it is nil, every container is provisioned from inside.
	Keeper layer.Keeper
	// Salvage, if not nil, is called after a container was lost and before its bound work tree is deleted, with the
	// labels of its request. All processes of the container have ended. For a container of an earlier process the call
	// may come during Open or later. A caller that waits for a new container of the key waits for Salvage, so Salvage
	// must not call the fleet or wait for something that does.
	Salvage func(ctx context.Context, p Place)
	// Ending, if not nil, is called before a container is removed that was not lost, while its runner answers. It may take
	// a minute. A caller that waits for a new container of the key waits for Ending, so Ending must not call methods of
	// the fleet for that key.
	Ending func(ctx context.Context, key string, h *Host)
	// Log gets failures of clean-up. If it is nil, they are discarded.
	Log *slog.Logger
	// Now is the clock that measures idle time. If it is nil, it is time.Now.
	Now func() time.Time
	// Event, if not nil, is called when containers are started, adopted, asleep, lost and removed. The events of one
	// container come in order. Event must not block or call the fleet.
	Event func(FleetEvent)

	owner     string
	signer    ssh.Signer
	clientKey string
	opened    time.Time
	base      context.Context // ends with Close
	stop      context.CancelCauseFunc
	tasks     sync.WaitGroup // all goroutines of the fleet
	sidecars  *semaphore.Weighted

	mu         sync.Mutex // guards the fields below and the fields of every slot
	open       bool
	known      chan struct{} // closed once the engine was listed
	closed     bool
	slots      map[string]*slot   // by key; at most Capacity and Companions, except after adoptions
	waiters    []*waiter          // the queue, in order of arrival
	queueMoved chan struct{}      // closed and replaced when the queue moves
	making     bool               // a goroutine looks for a host to put to sleep
	again      bool               // the goroutine is to look once more
	unclean    map[string]remains // containers by id that could not be removed and are tried again
	pools      map[poolKind]*pool
	filling    bool          // a goroutine fills the pools
	lacking    time.Time     // since when filling is true, by the machine's clock
	taken      time.Time     // when a container was last taken from a pool, or requested, by that clock
	calm       chan struct{} // closed and replaced when a start has ended
	clears     clearing
	spent      layer.Usage // the space that the disks have given away, as in [disks]
}

// Reasons why a start ends early.
var (
	errClosed  = errors.New("the fleet is closed")
	errLeft    = errors.New("nobody waits for it any more")
	errRemoved = errors.New("it was removed meanwhile")
)

// FleetEvent is a change in the fleet.
type FleetEvent struct {
	Time  time.Time
	Key   string
	What  string // started, adopted, warm, asleep, lost, removed, queued, or pooled (without a key)
	Place int    // in the queue, if What is queued
	Took  time.Duration
	ID    string
}

// Request asks for the host of a caller.
type Request struct {
	Key    string
	Image  string
	Env    []string
	Limits Limits
	Labels map[string]string
	// Door answers the requests of the container to 127.0.0.1:7070.
	Door http.Handler
	// Provision is called once for a new container before the caller gets it, to clone and check out. If it fails, the
	// container is removed.
	Provision func(ctx context.Context, h *Host) error
	// Bind, if not nil and the fleet has a Keeper, gives a new container its work tree from outside. If it fails with
	// [layer.ErrUnable], Provision is called instead.
	Bind func(ctx context.Context, p Place) error
	// Warm, if not nil, is called once for a new container before it waits in the pool, or before Bind and Provision if
	// there is no pool. It prepares a container in the same way for all callers. Its Place never has Key and Labels.
	// Without a Keeper it has only Host.
	Warm func(ctx context.Context, p Place) error
	// Program is [Spec.Program].
	Program bool
	// Beyond gives the caller a container at once, beyond the capacity. It is for a caller that waits while it holds another
	// container, because callers that hold all places would wait for each other. The caller bounds their number.
	Beyond bool
	// Waiting is called with the place in the queue (1 is next) when it changes, and with place 0 and the reason when the
	// engine takes long because it has no room.
	Waiting func(place int, why string)
}

// Place is a container that a work tree can be bound to.
type Place struct {
	Key    string
	Labels map[string]string
	PID    int    // number of process 1 on the host
	Start  uint64 // start time of process 1, in clock ticks since boot
	// Dir is the private folder of the container on the host, for uppers. It exists as long as the container. The engine and
	// the fleet use the names artifacts, bound.json, cache, host_key, hosts, run, spool and work in it.
	Dir  string
	UID  int   // user of commands on the host
	Host *Host // nil in Salvage
}

const (
	askTimeout    = 5 * time.Second  // for asking a runner for its commands
	dialTimeout   = 20 * time.Second // for connecting to a runner again
	fleetRemoving = time.Minute      // for removing one container
	// maxMisses is the number of times in a row that a runner may fail to answer before its container is given up. One is not
	// enough because engines restart.
	maxMisses = 3
	// endedAgain is the pause between two checks whether a container that is being removed has ended.
	endedAgain = 50 * time.Millisecond
)

// cleanGrace is the time for cleaning up after a time-out. Tests shorten it.
var cleanGrace = 5 * time.Second

func (f *Fleet) now() time.Time {
	if f.Now != nil {
		return f.Now()
	}
	return time.Now()
}

func (f *Fleet) log() *slog.Logger {
	if f.Log != nil {
		return f.Log
	}
	return slog.New(slog.DiscardHandler)
}

func (f *Fleet) event(e FleetEvent) {
	if f.Event != nil {
		e.Time = f.now()
		f.Event(e)
	}
}

// Places returns how many containers may exist at once.
func (f *Fleet) Places() int { return f.capacity() }

// Answered reports whether the engine has answered since the start.
func (f *Fleet) Answered() bool {
	f.mu.Lock()
	known := f.known
	f.mu.Unlock()
	select {
	case <-known:
		return true
	default:
		return false
	}
}

func (f *Fleet) capacity() int { return cmp.Or(f.Capacity, max(4, 2*runtime.NumCPU())) }

func (f *Fleet) queueLimit() int { return cmp.Or(f.Queue, 1000) }

func (f *Fleet) sleepAfter() time.Duration {
	return cmp.Or(f.SleepAfter, 10*time.Minute)
}

func (f *Fleet) startTimeout() time.Duration { return cmp.Or(f.StartTimeout, 2*time.Minute) }

// folder returns the private folder of a container.
func (f *Fleet) folder(name string) string { return filepath.Join(f.Dir, "hosts", name) }

// Open lists the containers that an earlier process left. It removes dead ones, and keeps live ones for Adopt until the first
// SleepAfter has passed. It removes sidecars in the background.
func (f *Fleet) Open(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open {
		return errors.New("cannot open the fleet: it is open")
	}
	wrap := func(err error) error { return fmt.Errorf("cannot open the fleet: %w", err) }
	if f.Engine == nil || f.Dir == "" {
		return wrap(errors.New("an engine and a folder are needed"))
	}
	if f.Keeper != nil {
		if err := f.canBind(); err != nil {
			return wrap(err)
		}
	}
	for _, dir := range []string{"hosts", oldFolders} {
		if err := os.MkdirAll(filepath.Join(f.Dir, dir), 0o700); err != nil {
			return wrap(err)
		}
	}
	var err error
	if f.owner, err = keepOwner(filepath.Join(f.Dir, "owner")); err != nil {
		return wrap(err)
	}
	if f.signer, err = keepClientKey(filepath.Join(f.Dir, "client_key")); err != nil {
		return wrap(err)
	}
	f.Capacity, f.Queue = f.capacity(), f.queueLimit()
	f.Companions = cmp.Or(f.Companions, f.Capacity) // readers of the fields see the values in effect
	f.clientKey = string(ssh.MarshalAuthorizedKey(f.signer.PublicKey()))
	f.slots = map[string]*slot{}
	f.unclean = map[string]remains{}
	f.pools = map[poolKind]*pool{}
	f.queueMoved, f.calm = make(chan struct{}), make(chan struct{})
	f.opened = f.now()
	f.queueSidecars()

	f.base, f.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	f.known = make(chan struct{})
	first, cancel := context.WithTimeout(ctx, firstList)
	defer cancel()
	list, err := f.listEngine(first)
	switch {
	case err == nil:
		if err := f.takeOverLocked(list); err != nil {
			return wrap(err)
		}
	case errors.Is(err, ErrUnavailable) || first.Err() != nil && ctx.Err() == nil:
		// ramus can serve everything apart from containers without the engine.
		f.log().Warn("the container engine does not answer; containers wait for it", "err", err)
		f.tasks.Go(f.awaitEngine)
	default:
		return wrap(err)
	}
	f.open = true
	f.clearLocked()
	f.tasks.Go(f.watchIdle)
	f.tasks.Go(f.watchDisk)
	return nil
}

// Close stops the goroutines of the fleet. If keep is true, containers stay for the next process to adopt. Otherwise
// they are removed. Callers that wait for a container get an error. A start that has not ended is undone.
func (f *Fleet) Close(ctx context.Context, keep bool) error {
	f.mu.Lock()
	if !f.open || f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.queueMovedLocked()
	f.mu.Unlock()
	f.stop(errClosed)
	if err := f.wait(ctx); err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, b := range f.slots {
			b.disconnect()
		}
		return err
	}

	// No other goroutine runs now.
	var errs []error
	var group sync.WaitGroup
	var mu sync.Mutex // guards errs
	remove := func(do func() error) {
		f.tasks.Add(1)
		group.Go(func() {
			defer f.tasks.Done()
			if err := do(); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	for _, v := range f.drain() {
		remove(func() error { return f.discardCandidate(v) })
	}
	all := slices.Collect(maps.Values(f.slots))
	if !keep { // all of them first, because a container that ends looks for those next to it
		for _, b := range all {
			f.stopSlotLocked(b)
		}
	}
	for _, b := range all {
		if keep {
			b.disconnect()
			continue
		}
		remove(func() error { return f.endSlot(b, "removed") })
	}
	if err := f.wait(ctx); err != nil {
		return err
	}
	group.Wait()
	if !keep {
		errs = append(errs, f.clear(ctx))
	}
	return errors.Join(errs...)
}

// disconnect closes the connection to the container, which continues.
func (b *slot) disconnect() {
	if b.host != nil {
		b.host.Close()
	}
	b.mounts.release()
}

// wait waits for all goroutines of the fleet.
func (f *Fleet) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { f.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot close the fleet: its engine does not answer: %w", context.Cause(ctx))
	}
}
