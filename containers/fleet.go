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

// Fleet keeps one Host per caller. Its exported fields are its options and may
// be changed until Open. Methods are safe for concurrent use.
type Fleet struct {
	Engine Engine
	// Dir is the folder for containers' private folders and the client key.
	Dir string
	// Capacity is how many containers may exist at once; default 2 × cores, at least 4.
	Capacity int
	// Queue is how many callers may wait for one; default 1000. More get ErrBusy.
	Queue int
	// Sidecars is how many sidecars may run at once; default the number of cores, at least 2.
	Sidecars int
	// SleepAfter removes a container that had no command and no live background
	// process for so long; default 10 min.
	SleepAfter time.Duration
	// StartTimeout bounds the engine's start and the first connection; default
	// 2 min. ProvisionTimeout bounds Request.Provision; default 10 min.
	StartTimeout, ProvisionTimeout time.Duration
	// Pool is how many started, connected containers wait for callers, of each
	// combination of image, environment and limits that was asked for lately; default
	// none. They are not counted by Capacity, and never used twice.
	Pool int
	// Keeper binds work trees from outside; nil: every container is provisioned from inside.
	Keeper layer.Keeper
	// Salvage, when set, is called before what was bound to a container that was lost
	// is deleted, with the labels of its request; every process of the container is gone
	// then. For a container of an earlier process that may be while Open runs, or after.
	// Who waits for a new container of that key waits for it: it must not ask the fleet,
	// nor wait for who does.
	Salvage func(ctx context.Context, p Place)
	// Log hears of clean-up that failed; default none.
	Log *slog.Logger
	// Now is the clock that idle time is measured by; default time.Now.
	Now func() time.Time
	// Event, when set, hears of containers started, adopted, asleep, lost and
	// removed. It must not block, nor call the fleet.
	Event func(FleetEvent)

	owner     string
	signer    ssh.Signer
	clientKey string
	opened    time.Time
	base      context.Context // ends with Close
	stop      context.CancelCauseFunc
	tasks     sync.WaitGroup // every goroutine of the fleet
	sidecars  *semaphore.Weighted

	mu      sync.Mutex // guards the below and the fields of every berth
	open    bool
	known   chan struct{} // closed once the engine was listed
	closed  bool
	berths  map[string]*berth  // by key; each takes one place of Capacity
	line    []*waiter          // first come, first served
	moved   chan struct{}      // closed and replaced when the line moves
	making  bool               // a goroutine looks for a host to put to sleep
	again   bool               // and shall look once more
	unclean map[string]remains // by id; those could not be removed, and are tried again
	pools   map[poolKind]*pool // what waits for callers
	filling bool               // a goroutine fills the pools
	lacking time.Time          // since when it does, by the machine's clock
	taken   time.Time          // when a container was taken out of one, or was wanted, by that clock
	calm    chan struct{}      // closed and replaced when a start has ended
	clears  clearing
	spent   layer.Usage // what the disks have given away; see disks
}

// Why a start ends before its time.
var (
	errClosed  = errors.New("the fleet is closed")
	errLeft    = errors.New("nobody waits for it any more")
	errRemoved = errors.New("it was removed meanwhile")
)

// FleetEvent tells of a change in the fleet.
type FleetEvent struct {
	Time  time.Time
	Key   string
	What  string // started, adopted, warm, asleep, lost, removed, queued; pooled, with no key
	Place int    // in line, when queued
	Took  time.Duration
	ID    string
}

// Request asks for a caller's host.
type Request struct {
	Key    string
	Image  string
	Env    []string
	Limits Limits
	Labels map[string]string
	// Door answers the container's requests at 127.0.0.1:7070.
	Door http.Handler
	// Provision is run once in a new container before anybody gets it (clone,
	// checkout); an error removes the container again.
	Provision func(ctx context.Context, h *Host) error
	// Bind, when set and the fleet has a Keeper, gives a new container its work tree
	// from outside. Where it fails with [layer.ErrUnable] Provision is run instead.
	Bind func(ctx context.Context, p Place) error
	// Warm, when set, is run once in a new container before it waits in the pool, or before
	// Bind and Provision where there is no pool: what every caller needs and none decides.
	// Of its Place only Host is set when the fleet has no Keeper, and Key and Labels never.
	Warm func(ctx context.Context, p Place) error
	// Waiting is told the place in line (1 = next) whenever it changes.
	Waiting func(place int)
}

// Place is a container that a work tree can be bound to.
type Place struct {
	Key    string
	Labels map[string]string
	PID    int    // its process 1, as the host counts
	Start  uint64 // when that started, in clock ticks since boot
	// Dir is the private folder of the container on the host, for uppers; it lives as long as
	// the container. The engine and the fleet use the names artifacts, bound.json, cache,
	// host_key, hosts, run, spool and work in it.
	Dir  string
	UID  int   // who commands are, as the host counts
	Host *Host // nil in Salvage
}

// Lease is the use of a host; the container stays awake until Release.
type Lease struct {
	Host  *Host
	Fresh bool // this call made the container
	// Container is what the engine knew of it when it was started, or found: its image, its labels.
	Container Container
	// Place is where the container's work tree can be reached from outside; nil when the
	// fleet has no Keeper. Bound tells whether it was bound from outside.
	Place *Place
	Bound bool
	// Release gives the host back; idle time starts now. Safe to call twice.
	Release func()
}

// A berth is the place of one caller's container, from the decision to make it
// until the last trace of it is removed.
type berth struct {
	key   string
	state berthState
	since time.Time
	// settled is closed when state leaves berthStarting or berthStopping.
	settled chan struct{}
	err     error // why it could not start
	// waiting counts callers that wait for the start; when the last one leaves,
	// abandon ends it.
	waiting   int
	abandon   context.CancelCauseFunc
	abandoned bool

	id     string
	dir    string
	made   Container
	host   *Host
	door   *door
	place  *Place // nil without a Keeper, and until it is connected to
	bound  bool
	fresh  bool // made, and not yet handed out
	leases int
	uses   int       // leases ever given
	idle   time.Time // since when no lease is held
	live   int       // running commands when last asked
	quota  *quota    // nil while it is made for the first time
	mounts mounts
	misses int // times in a row that the runner did not answer
	// asked is closed when the one who connects to the runner for a moment is done; nil: nobody does.
	asked chan struct{}
}

type berthState int

const (
	berthStarting berthState = iota // being made, or being connected to
	berthReady                      // host is connected, or was
	berthOrphan                     // left by an earlier process, not connected
	berthStopping
)

// door hands requests to the handler of the latest [Request]: the connection
// stays while callers' requests come and go.
type door struct {
	mu sync.Mutex
	h  http.Handler // guarded by mu
}

func (d *door) set(h http.Handler) {
	if h == nil {
		return
	}
	d.mu.Lock()
	d.h = h
	d.mu.Unlock()
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	h := d.h
	d.mu.Unlock()
	if h == nil {
		http.Error(w, "the door is closed", http.StatusServiceUnavailable)
		return
	}
	h.ServeHTTP(w, r)
}

// A waiter is a key in line. Several callers may wait by one.
type waiter struct {
	key     string
	req     Request
	callers int
	since   time.Time
}

const (
	askTimeout    = 5 * time.Second  // for asking a runner what it runs
	dialTimeout   = 20 * time.Second // for finding a runner again
	fleetRemoving = time.Minute      // for removing one container
	// maxMisses is how many times in a row a runner may fail to answer before
	// its container is given up. Once is not enough: engines restart.
	maxMisses = 3
	// endedAgain is how often it is asked whether a container that is being removed has ended.
	endedAgain = 50 * time.Millisecond
)

// cleanGrace is for tidying up after a time-out; tests shorten it.
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

func (f *Fleet) capacity() int { return cmp.Or(f.Capacity, max(4, 2*runtime.NumCPU())) }
func (f *Fleet) queue() int    { return cmp.Or(f.Queue, 1000) }
func (f *Fleet) sleepAfter() time.Duration {
	return cmp.Or(f.SleepAfter, 10*time.Minute)
}

// folder is the private folder of one container.
func (f *Fleet) folder(name string) string { return filepath.Join(f.Dir, "hosts", name) }

// Open lists the containers that an earlier process left: dead ones are removed,
// live ones kept for Adopt until the first SleepAfter has passed. Its sidecars are
// removed, in the background.
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
	f.Capacity, f.Queue = f.capacity(), f.queue() // for who asks what is in effect
	f.clientKey = string(ssh.MarshalAuthorizedKey(f.signer.PublicKey()))
	f.berths = map[string]*berth{}
	f.unclean = map[string]remains{}
	f.pools = map[poolKind]*pool{}
	f.moved, f.calm = make(chan struct{}), make(chan struct{})
	f.opened = f.now()
	f.queueSidecars()

	f.base, f.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	f.known = make(chan struct{})
	first, cancel := context.WithTimeout(ctx, firstList)
	defer cancel()
	list, err := f.listEngine(first)
	switch {
	case err == nil:
		if err := f.knowLocked(list); err != nil {
			return wrap(err)
		}
	case errors.Is(err, ErrUnavailable) || first.Err() != nil && ctx.Err() == nil:
		// Everything but containers can be served without the engine.
		f.log().Warn("the container engine does not answer; containers wait for it", "err", err)
		f.tasks.Go(f.awaitEngine)
	default:
		return wrap(err)
	}
	f.open = true
	f.clearLocked()
	f.tasks.Go(f.watch)
	f.tasks.Go(f.watchDisk)
	return nil
}

// Waiting for an engine that does not answer: at Open, then between two tries,
// and at most, for a caller that wants a new container.
const (
	firstList    = 5 * time.Second
	listAgain    = 2 * time.Second
	engineAwaits = 30 * time.Second
)

// awaitEngine lists the engine until it answers.
func (f *Fleet) awaitEngine() {
	for {
		select {
		case <-f.base.Done():
			return
		case <-time.After(listAgain):
		}
		list, err := f.listEngine(f.base)
		if err != nil {
			continue
		}
		f.mu.Lock()
		err = f.knowLocked(list)
		f.mu.Unlock()
		if err == nil {
			f.log().Info("the container engine answers")
			return
		}
		f.log().Error("cannot take over what the container engine has", "err", err)
	}
}

// engineKnown waits until the engine was listed: before that nobody can say
// whether a caller has a container already.
func (f *Fleet) engineKnown(ctx context.Context, limit time.Duration) error {
	f.mu.Lock()
	known, base, ready := f.known, f.base, f.open && !f.closed
	f.mu.Unlock()
	if !ready {
		return errClosed
	}
	select {
	case <-known:
		return nil
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-known:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: the engine has not answered since the start", ErrUnavailable)
	case <-base.Done():
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// knowLocked takes over the containers of an earlier process.
func (f *Fleet) knowLocked(list []Container) error {
	// Newest first: of two with one key the newer one is the caller's.
	slices.SortFunc(list, func(a, b Container) int { return b.Created.Compare(a.Created) })
	inUse := map[string]bool{}
	for _, c := range list {
		name, ok := folderLabel(c.Labels)
		rec, taken := f.record(name)
		if taken {
			c.Key, c.Labels = rec.Key, rec.Labels
		} else if c.Labels[labelPool] != "" {
			c.Key = "" // nobody has used it, and nobody may: it is of another time
		}
		if c.Running && ok && c.Key != "" && f.berths[c.Key] == nil {
			inUse[name] = true
			f.berths[c.Key] = &berth{
				key: c.Key, state: berthOrphan, since: f.opened, idle: f.opened,
				id: c.ID, dir: f.folder(name), made: c, door: new(door), bound: rec.Bound,
				quota: newQuota(Limits{Disk: rec.Disk, Output: rec.Output}, f.spent),
			}
			f.berths[c.Key].quota.known = false
			continue
		}
		if ok {
			inUse[name] = true // removed with its container, below
		}
		f.unclean[c.ID] = remains{name, !c.Running}
	}
	entries, err := os.ReadDir(filepath.Join(f.Dir, "hosts"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if inUse[e.Name()] {
			continue
		}
		f.tasks.Go(func() {
			f.salvage(e.Name())
			if err := f.retire(e.Name()); err != nil {
				f.log().Warn("a folder of a container that is gone stays", "folder", e.Name(), "err", err)
			}
		})
	}
	close(f.known)
	f.tasks.Go(f.sweepSidecars)
	return nil
}

func (f *Fleet) listEngine(ctx context.Context) ([]Container, error) {
	return bounded(f, ctx, f.startTimeout(), func(ctx context.Context) ([]Container, error) {
		return f.Engine.List(ctx, f.owner)
	}, nil)
}

func (f *Fleet) startTimeout() time.Duration { return cmp.Or(f.StartTimeout, 2*time.Minute) }

// bounded calls fn and returns what it does, or, when the time is over and a
// little more for cleaning up, an error, whether or not fn heeds its context: an
// engine that hangs costs a goroutine, not a caller. A value that comes later
// is given to late.
func bounded[T any](f *Fleet, ctx context.Context, d time.Duration, fn func(context.Context) (T, error), late func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %v", d))
	defer cancel()
	done := make(chan result)
	left := make(chan struct{})
	f.tasks.Go(func() {
		var r result
		r.v, r.err = fn(ctx)
		select {
		case done <- r:
		case <-left:
			if r.err == nil && late != nil {
				late(r.v)
			}
		}
	})
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(cleanGrace)
	defer grace.Stop()
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() != nil {
			r.err = fmt.Errorf("%w: %w", context.Cause(ctx), r.err)
		}
		return r.v, r.err
	case <-grace.C:
		close(left)
		var zero T
		return zero, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// Acquire returns the caller's host, made if there is none. One caller may hold
// several leases at once. A host that is there is used as it is: Image, Env,
// Limits and Labels of later requests do not change it.
//
// The error is [ErrBusy] when too many wait already, and the context's when it
// ends first.
func (f *Fleet) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if r.Key == "" {
		return nil, errors.New("cannot acquire a container: a key is needed")
	}
	if err := f.engineKnown(ctx, engineAwaits); err != nil {
		return nil, fmt.Errorf("cannot acquire a container for %s: %w", r.Key, err)
	}
	var w *waiter // our place in line
	told := 0
	f.mu.Lock()
	for {
		if !f.open || f.closed {
			f.leaveLocked(w)
			f.mu.Unlock()
			return nil, fmt.Errorf("cannot acquire a container for %s: %w", r.Key, errClosed)
		}
		if b := f.berths[r.Key]; b != nil {
			w = nil // the place in line became this berth, if there was one
			lease, err, again := f.boardLocked(ctx, b, r)
			if !again {
				f.mu.Unlock()
				if lease != nil && !lease.Fresh {
					f.event(FleetEvent{Key: r.Key, What: "warm", ID: lease.Host.Container().ID})
				}
				return lease, err
			}
			continue
		}
		if w == nil {
			if i := slices.IndexFunc(f.line, func(w *waiter) bool { return w.key == r.Key }); i >= 0 {
				w = f.line[i]
				w.callers++
			} else if len(f.line) == 0 && len(f.berths) < f.capacity() {
				f.launchLocked(r)
				continue
			} else if len(f.line) >= f.queue() {
				f.mu.Unlock()
				return nil, fmt.Errorf("cannot acquire a container for %s: %w", r.Key, ErrBusy)
			} else {
				w = &waiter{key: r.Key, req: r, callers: 1, since: f.now()}
				f.line = append(f.line, w)
				f.makeRoomLocked()
			}
		}
		place := slices.Index(f.line, w) + 1
		if place == 0 { // taken out of the line: the berth was made, and may be gone again
			w = nil
			continue
		}
		moved := f.moved
		f.mu.Unlock()
		if place != told {
			if told == 0 {
				f.event(FleetEvent{Key: r.Key, What: "queued", Place: place})
			}
			told = place
			if r.Waiting != nil {
				r.Waiting(place)
			}
		}
		select {
		case <-moved:
		case <-ctx.Done():
			f.mu.Lock()
			f.leaveLocked(w)
			f.mu.Unlock()
			return nil, fmt.Errorf("cannot acquire a container for %s: %w", r.Key, context.Cause(ctx))
		}
		f.mu.Lock()
	}
}

// leaveLocked gives a caller's place in line up.
func (f *Fleet) leaveLocked(w *waiter) {
	if w == nil {
		return
	}
	w.callers--
	if i := slices.Index(f.line, w); i >= 0 && w.callers == 0 {
		f.line = slices.Delete(f.line, i, i+1)
		f.movedLocked()
	}
}

// movedLocked tells everyone in line to look where it stands.
func (f *Fleet) movedLocked() {
	close(f.moved)
	f.moved = make(chan struct{})
}

// boardLocked takes a lease on a berth, waiting until it can be had. again
// means that the berth is gone or was abandoned, and the caller should look anew.
func (f *Fleet) boardLocked(ctx context.Context, b *berth, r Request) (_ *Lease, err error, again bool) {
	switch b.state {
	case berthReady:
		if !lost(b.host) {
			return f.leaseLocked(b, r), nil, false
		}
		f.reconnectLocked(b, r)
	case berthOrphan:
		f.reconnectLocked(b, r)
	}
	b.waiting++
	settled := b.settled
	stopping := b.state == berthStopping
	f.mu.Unlock()
	select {
	case <-settled:
	case <-ctx.Done():
		err = fmt.Errorf("cannot acquire a container for %s: %w", r.Key, context.Cause(ctx))
	}
	f.mu.Lock()
	b.waiting--
	if err != nil {
		if b.waiting == 0 && b.state == berthStarting && b.abandon != nil {
			b.abandoned = true
			b.abandon(errLeft)
		}
		return nil, err, false
	}
	if b.err != nil && !b.abandoned && !stopping {
		return nil, b.err, false
	}
	return nil, nil, true
}

// leaseLocked hands the host of a ready berth out.
func (f *Fleet) leaseLocked(b *berth, r Request) *Lease {
	b.door.set(r.Door)
	b.leases++
	b.uses++
	fresh := b.fresh
	b.fresh = false
	release := sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		b.leases--
		if b.leases == 0 {
			b.idle = f.now()
			if len(f.line) > 0 && !f.closed {
				f.makeRoomLocked()
			}
		}
	})
	l := &Lease{Host: b.host, Fresh: fresh, Container: b.made, Bound: b.bound, Release: release}
	if b.place != nil {
		place := *b.place
		l.Place = &place
	}
	return l
}

// settleLocked moves a berth out of berthStarting.
func (f *Fleet) settleLocked(b *berth, s berthState) {
	b.state, b.since = s, f.now()
	close(b.settled)
	close(f.calm)
	f.calm = make(chan struct{})
}

// vacateLocked gives a berth's place to the next in line.
func (f *Fleet) vacateLocked(b *berth) {
	if f.berths[b.key] == b {
		delete(f.berths, b.key)
	}
	for len(f.line) > 0 && len(f.berths) < f.capacity() && !f.closed {
		w := f.line[0]
		f.line = slices.Delete(f.line, 0, 1)
		if f.berths[w.key] == nil {
			f.launchLocked(w.req)
		}
	}
	f.movedLocked()
}

// launchLocked makes a berth and fills it, with a container of the pool where one waits.
func (f *Fleet) launchLocked(r Request) {
	ctx, cancel := context.WithCancelCause(f.base)
	b := &berth{key: r.Key, state: berthStarting, since: f.now(), settled: make(chan struct{}), abandon: cancel, fresh: true}
	v := f.takeLocked(r)
	if v == nil {
		v = newVessel()
	}
	b.door = v.door
	b.door.set(r.Door)
	f.berths[r.Key] = b
	f.tasks.Go(func() {
		defer cancel(nil)
		f.launch(ctx, b, v, r)
	})
}

func (f *Fleet) launch(ctx context.Context, b *berth, v *vessel, r Request) {
	began := f.now()
	pooled := v.host != nil
	var err error
	if pooled && f.ended(v.made.ID) { // the connection's end may not have been heard of yet
		err = ErrGone
	} else {
		err = f.equip(ctx, v, r)
	}
	if err != nil && pooled && ctx.Err() == nil && (lost(v.host) || errors.Is(err, ErrGone) || errors.Is(err, layer.ErrGone)) {
		// It died in the pool: that is no reason to fail.
		old := v
		f.tasks.Go(func() { f.scrap(old) })
		v, pooled = newVessel(), false
		v.door = b.door
		err = f.equip(ctx, v, r)
	}
	f.mu.Lock()
	if err == nil && ctx.Err() != nil { // closed, or everybody left, at the last moment
		err = context.Cause(ctx)
	}
	if err == nil {
		b.host, b.id, b.dir, b.made, b.idle = v.host, v.made.ID, f.folder(v.name), v.made, f.now()
		b.place, b.bound, b.quota, b.mounts = v.place, v.bound, v.quota, v.mounts
		f.settleLocked(b, berthReady)
		if len(f.line) > 0 {
			f.makeRoomLocked() // nobody may be left to take it
		}
		f.mu.Unlock()
		f.event(FleetEvent{Key: b.key, What: "started", ID: b.id, Took: f.now().Sub(began)})
		if pooled {
			f.assign(v)
		}
		return
	}
	f.mu.Unlock()
	f.scrap(v)
	f.mu.Lock()
	b.err = fmt.Errorf("cannot start a container for %s: %w", b.key, err)
	f.settleLocked(b, berthStopping)
	f.vacateLocked(b)
	f.mu.Unlock()
}

func (f *Fleet) dial(ctx context.Context, limit time.Duration, door *door, name, id string) (*Host, error) {
	d := &Dialer{Engine: f.Engine, Signer: f.signer, Pin: filePin(filepath.Join(f.folder(name), "host_key")), Door: door}
	return bounded(f, ctx, limit, func(ctx context.Context) (*Host, error) { return d.Dial(ctx, id) }, func(h *Host) { h.Close() })
}

// reconnectLocked looks for the runner of a berth whose connection was lost or
// never made.
func (f *Fleet) reconnectLocked(b *berth, r Request) {
	ctx, cancel := context.WithCancelCause(f.base)
	b.state, b.since = berthStarting, f.now()
	b.settled, b.err, b.abandon, b.abandoned = make(chan struct{}), nil, cancel, false
	b.door.set(r.Door)
	f.tasks.Go(func() {
		defer cancel(nil)
		old := b.host // nobody else writes it while the berth is starting
		if old != nil {
			old.Close()
		}
		host, err := f.dial(ctx, dialTimeout, b.door, filepath.Base(b.dir), b.id)
		var place *Place
		if err == nil {
			if place, err = f.locate(ctx, b.made, filepath.Base(b.dir), host); err != nil {
				host.Close()
			}
		}
		f.reconnected(ctx, b, host, place, err)
	})
}

func (f *Fleet) reconnected(ctx context.Context, b *berth, host *Host, place *Place, err error) {
	f.mu.Lock()
	switch {
	case err == nil:
		b.host, b.place, b.idle, b.misses = host, place, f.now(), 0
		f.settleLocked(b, berthReady)
		f.mu.Unlock()
		f.event(FleetEvent{Key: b.key, What: "adopted", ID: b.id})
	case ctx.Err() != nil || !errors.Is(err, ErrGone) && !errors.Is(err, ErrImpostor) && b.missed(err):
		// Nothing is known of the container: it may be alive and well.
		b.err = fmt.Errorf("cannot reach the container of %s: %w", b.key, err)
		if b.host == nil {
			f.settleLocked(b, berthOrphan)
		} else {
			f.settleLocked(b, berthReady) // with a host that is lost
		}
		f.mu.Unlock()
	default:
		// Gone, or something else answers in its place: either way what was
		// in it cannot be had again, and the next Acquire makes a new one.
		f.log().Info("a container is lost", "key", b.key, "id", b.id, "err", err)
		settled := b.settled
		f.stopLocked(b)
		close(settled)
		close(f.calm)
		f.calm = make(chan struct{})
		f.mu.Unlock()
		f.finish(b, "lost")
	}
}

// missed counts a runner that did not answer, and tells whether it may be given
// another chance. An engine that is away says nothing about its containers.
func (b *berth) missed(err error) bool {
	if !errors.Is(err, ErrUnavailable) {
		b.misses++
	}
	return b.misses < maxMisses
}

// stopLocked begins the end of a berth; finish must follow.
func (f *Fleet) stopLocked(b *berth) {
	b.state, b.since, b.settled = berthStopping, f.now(), make(chan struct{})
}

// finish removes the container of a berth that is stopping and gives its place
// to the next in line.
func (f *Fleet) finish(b *berth, what string) error {
	if b.host != nil {
		b.host.Close()
	}
	vacate := func() {
		f.mu.Lock()
		close(b.settled)
		f.vacateLocked(b)
		f.mu.Unlock()
		f.event(FleetEvent{Key: b.key, What: what, ID: b.id})
	}
	name := filepath.Base(b.dir)
	if what == "lost" && f.ended(b.id) {
		// Nothing of it runs, so its place is free: who waits need not wait for the engine.
		f.salvage(name)
		vacate()
		b.mounts.release() // nobody waits any more
		return f.discard(b.id, remains{name, false})
	}
	b.mounts.release()
	if what == "lost" {
		err := f.discard(b.id, remains{name, true}) // and salvaged, for which a new one of that key waits
		vacate()
		return err
	}
	discarded := make(chan error, 1)
	f.tasks.Go(func() { discarded <- f.discard(b.id, remains{name, false}) })
	// What it wrote in volumes of the engine's is deleted by that, however long it takes.
	tick := time.NewTicker(endedAgain)
	defer tick.Stop()
	for {
		select {
		case err := <-discarded:
			vacate()
			return err
		case <-tick.C:
			if f.ended(b.id) {
				vacate()
				return <-discarded
			}
		}
	}
}

// remains are what is left of a container: a folder, and, where it was lost rather than
// removed, perhaps something in it that nobody else has.
type remains struct {
	folder string
	lost   bool
}

// discard removes a container and has its folder deleted. It does so whatever became of the
// caller, for a minute. What cannot be removed now is tried again later.
func (f *Fleet) discard(id string, left remains) error {
	var err error
	if id != "" {
		_, err = bounded(f, context.WithoutCancel(f.base), fleetRemoving, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, f.Engine.Remove(ctx, id)
		}, nil)
	}
	if err == nil && left.folder != "" {
		if left.lost {
			f.salvage(left.folder)
		}
		err = f.retire(left.folder)
	}
	if err != nil && id != "" {
		f.mu.Lock()
		f.unclean[id] = left
		f.mu.Unlock()
	}
	if err != nil {
		err = fmt.Errorf("cannot remove container %s: %w", id, err)
		f.log().Warn("a container is not cleaned up", "id", id, "folder", left.folder, "err", err)
	}
	return err
}

// ask tells how many commands run in a container that nobody leases. An error
// means that nothing is known.
func (f *Fleet) ask(b *berth, host *Host) (int, error) {
	host, done, err := f.reach(b, host)
	if err != nil {
		return 0, err
	}
	defer done()
	return countRunning(f, host)
}

// errElsewhere: while a berth's runner was to be asked, the berth was taken, or its container removed.
var errElsewhere = errors.New("the container is in other hands")

// reach is the host of a berth, or one that is connected to for a moment, until done is called. One at a
// time connects, and nobody to a container that is being removed or connected to for a caller.
func (f *Fleet) reach(b *berth, host *Host) (*Host, func(), error) {
	if !lost(host) {
		return host, func() {}, nil
	}
	done, err := f.takeRunner(b)
	if err != nil {
		return nil, nil, err
	}
	h, err := f.dial(f.base, dialTimeout, b.door, filepath.Base(b.dir), b.id)
	if err != nil {
		done()
		return nil, nil, err
	}
	return h, func() { h.Close(); done() }, nil
}

// takeRunner waits until nobody else connects to a berth's runner for a moment. The caller may, until it
// calls the function.
func (f *Fleet) takeRunner(b *berth) (done func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for b.asked != nil {
		asked := b.asked
		f.mu.Unlock()
		select {
		case <-asked:
		case <-f.base.Done():
		}
		f.mu.Lock()
		if f.base.Err() != nil {
			return nil, errClosed
		}
	}
	if !b.settledLocked() || f.berths[b.key] != b {
		return nil, errElsewhere
	}
	asked := make(chan struct{})
	b.asked = asked
	return func() {
		f.mu.Lock()
		b.asked = nil
		f.mu.Unlock()
		close(asked)
	}, nil
}

func countRunning(f *Fleet, host *Host) (int, error) {
	list, err := bounded(f, f.base, askTimeout, host.Commands, nil)
	n := 0
	for _, c := range list {
		if c.Running {
			n++
		}
	}
	return n, err
}

func lost(h *Host) bool {
	if h == nil {
		return true
	}
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}

// sleep puts a host to sleep unless it was used since r was taken, or a live
// process is found in it. The channel is closed when nothing is left of the
// container; it is nil when the host stays.
func (f *Fleet) sleep(r resting) <-chan struct{} {
	b := r.b
	live, err := f.ask(b, r.host)
	f.mu.Lock()
	if f.closed || errors.Is(err, errElsewhere) || !b.settledLocked() || b.leases > 0 || b.uses != r.uses || f.berths[b.key] != b {
		f.mu.Unlock()
		return nil
	}
	b.live = live
	switch {
	case live > 0:
		b.idle, b.misses = f.now(), 0
		f.mu.Unlock()
		return nil
	case err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrImpostor) && b.missed(err):
		f.mu.Unlock()
		return nil
	}
	f.stopLocked(b)
	f.mu.Unlock()
	what := "asleep"
	if errors.Is(err, ErrGone) || errors.Is(err, ErrImpostor) {
		what = "lost"
	}
	gone := b.settled
	f.tasks.Go(func() { f.finish(b, what) })
	return gone
}

// resting is a host that nobody leases, as seen under the lock.
type resting struct {
	b    *berth
	host *Host
	idle time.Time
	uses int
}

// restingLocked lists hosts that nobody leases, the longest idle first.
func (f *Fleet) restingLocked() []resting {
	var list []resting
	for _, b := range f.berths {
		if (b.state == berthReady || b.state == berthOrphan) && b.leases == 0 {
			list = append(list, resting{b, b.host, b.idle, b.uses})
		}
	}
	slices.SortFunc(list, func(a, b resting) int {
		return cmp.Or(a.idle.Compare(b.idle), cmp.Compare(a.b.key, b.b.key))
	})
	return list
}

// makeRoomLocked sees to it that hosts are put to sleep for those in line.
func (f *Fleet) makeRoomLocked() {
	if f.making {
		f.again = true
		return
	}
	f.making = true
	f.tasks.Go(func() {
		for {
			f.mu.Lock()
			f.again = false
			list := f.restingLocked()
			f.mu.Unlock()
			for _, r := range list {
				f.mu.Lock()
				stopping := 0
				for _, b := range f.berths {
					if b.state == berthStopping {
						stopping++
					}
				}
				free := f.capacity() - len(f.berths) + stopping // below 0 after an adoption
				need := !f.closed && len(f.line) > 0 && free < len(f.line)
				f.mu.Unlock()
				if !need {
					break
				}
				f.sleep(r) // its end is not awaited: a removal that hangs keeps no other from starting
			}
			f.mu.Lock()
			if !f.again || f.closed {
				f.making = false
				f.mu.Unlock()
				return
			}
			f.mu.Unlock()
		}
	})
}

// watch puts idle hosts to sleep until the fleet is closed. It begins with the
// dead ones that Open found.
func (f *Fleet) watch() {
	f.sweep()
	tick := time.NewTicker(min(max(f.sleepAfter()/4, 20*time.Millisecond), 30*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.sweep()
		case <-f.base.Done():
			return
		}
	}
}

// sweep does what time brings: idle hosts go to sleep, containers that died
// by themselves are cleared away, failed removals are tried again.
func (f *Fleet) sweep() {
	f.mu.Lock()
	var due, missing []resting
	for _, r := range f.restingLocked() {
		if f.now().Sub(r.idle) >= f.sleepAfter() {
			due = append(due, r)
		}
	}
	for _, b := range f.berths {
		if b.state == berthOrphan || b.state == berthReady && lost(b.host) {
			missing = append(missing, resting{b, b.host, b.idle, b.uses})
		}
	}
	f.clearLocked()
	unclean := f.unclean // two at the same one would salvage it twice
	f.unclean = map[string]remains{}
	if len(f.line) > 0 && !f.closed {
		f.makeRoomLocked()
	}
	f.mu.Unlock()

	var group sync.WaitGroup
	for _, r := range due {
		group.Go(func() {
			if gone := f.sleep(r); gone != nil {
				<-gone
			}
		})
	}
	for id, left := range unclean {
		group.Go(func() { f.discard(id, left) })
	}
	group.Go(f.tidyPools)
	group.Wait()
	if len(missing) > 0 {
		f.clearDead(missing)
	}
}

// clearDead removes those containers that the engine says are not running.
func (f *Fleet) clearDead(missing []resting) {
	list, err := f.listEngine(f.base)
	if err != nil {
		return // nothing is known; the next sweep asks again
	}
	running := map[string]bool{}
	for _, c := range list {
		running[c.ID] = c.Running
	}
	for _, r := range missing {
		f.mu.Lock()
		gone := !running[r.b.id] && f.berths[r.b.key] == r.b && !f.closed && r.b.host == r.host &&
			(r.b.state == berthReady || r.b.state == berthOrphan)
		if gone {
			f.stopLocked(r.b)
		}
		f.mu.Unlock()
		if gone {
			f.finish(r.b, "lost")
		}
	}
}

// Adopt connects to the caller's container if one is running (also one of an
// earlier process), without making one; nil, nil when there is none.
func (f *Fleet) Adopt(ctx context.Context, r Request) (*Lease, error) {
	if err := f.engineKnown(ctx, f.startTimeout()); err != nil {
		return nil, fmt.Errorf("cannot adopt the container of %s: %w", r.Key, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if !f.open || f.closed {
			return nil, fmt.Errorf("cannot adopt the container of %s: %w", r.Key, errClosed)
		}
		b := f.berths[r.Key]
		if b == nil || b.state == berthStopping {
			return nil, nil
		}
		if lease, err, again := f.boardLocked(ctx, b, r); !again {
			return lease, err
		}
	}
}

// Remove removes the caller's container now; also one that is in use. It
// returns when nothing is left of it; when ctx ends first the removal goes on.
func (f *Fleet) Remove(ctx context.Context, key string) error {
	if err := f.engineKnown(ctx, engineAwaits); err != nil {
		return fmt.Errorf("cannot remove the container of %s: %w", key, err)
	}
	f.mu.Lock()
	for {
		if !f.open || f.closed {
			f.mu.Unlock()
			return fmt.Errorf("cannot remove the container of %s: %w", key, errClosed)
		}
		b := f.berths[key]
		if b == nil {
			f.mu.Unlock()
			return nil
		}
		switch b.state {
		case berthStarting:
			b.abandon(errRemoved)
		case berthReady, berthOrphan:
			f.stopLocked(b)
			done := make(chan error, 1)
			f.tasks.Go(func() { done <- f.finish(b, "removed") })
			f.mu.Unlock()
			select {
			case err := <-done:
				return err
			case <-ctx.Done():
				return fmt.Errorf("cannot await the removal of %s: %w", key, context.Cause(ctx))
			}
		}
		settled := b.settled
		f.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("cannot await the removal of %s: %w", key, context.Cause(ctx))
		}
		f.mu.Lock()
	}
}

// Room is how many more callers would get a container without waiting, and without
// anybody's being put to sleep for them.
func (f *Fleet) Room() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.capacity()-len(f.berths)-len(f.line), 0)
}

// HostStatus is one line of the fleet's list.
type HostStatus struct {
	Key      string    `json:"key"`
	ID       string    `json:"id,omitempty"`
	State    string    `json:"state"` // starting, busy, idle, queued, orphan, stopping
	Place    int       `json:"place,omitempty"`
	Since    time.Time `json:"since"`
	Leases   int       `json:"leases"`
	Live     int       `json:"live"` // background processes
	SleepsAt time.Time `json:"sleeps_at,omitzero"`
}

// List tells the state of every container and waiting caller, by key; those in
// line last, by place. Runners that can be asked at once are asked for their live
// processes; of others it tells what was known last. With keys it looks at their
// containers alone: an installation has many, and each is asked.
func (f *Fleet) List(ctx context.Context, keys ...string) []HostStatus {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	f.mu.Lock()
	if !f.open || f.closed {
		f.mu.Unlock()
		return nil
	}
	type line struct {
		b    *berth
		host *Host
	}
	var ask []line
	var list []HostStatus
	others := func(key string) bool { return len(keys) > 0 && !slices.Contains(keys, key) }
	for _, b := range f.berths {
		if others(b.key) {
			continue
		}
		s := HostStatus{Key: b.key, ID: b.id, Since: b.since, Leases: b.leases, Live: b.live}
		switch {
		case b.state == berthStarting:
			s.State = "starting"
		case b.state == berthStopping:
			s.State = "stopping"
		case b.leases > 0:
			s.State = "busy"
		default:
			s.State, s.Since, s.SleepsAt = "idle", b.idle, b.idle.Add(f.sleepAfter())
			if b.state == berthOrphan {
				s.State = "orphan"
			}
		}
		if b.state == berthReady && !lost(b.host) {
			ask = append(ask, line{b, b.host})
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b HostStatus) int { return cmp.Compare(a.Key, b.Key) })
	for i, w := range f.line {
		if others(w.key) {
			continue
		}
		list = append(list, HostStatus{Key: w.key, State: "queued", Place: i + 1, Since: w.since})
	}
	f.mu.Unlock()

	var group sync.WaitGroup
	var mu sync.Mutex // guards live
	live := map[string]int{}
	for _, l := range ask {
		group.Go(func() {
			cmds, err := l.host.Commands(ctx)
			if err != nil {
				return
			}
			n := 0
			for _, c := range cmds {
				if c.Running && c.Background {
					n++
				}
			}
			mu.Lock()
			live[l.b.key] = n
			mu.Unlock()
		})
	}
	group.Wait()
	for i, s := range list {
		if n, ok := live[s.Key]; ok {
			list[i].Live = n
		}
	}
	return list
}

// Close stops the fleet's goroutines. Containers stay when keep is set, for the
// next process to adopt; otherwise they are removed. Who waits for a container
// gets an error; a start that is under way is undone.
func (f *Fleet) Close(ctx context.Context, keep bool) error {
	f.mu.Lock()
	if !f.open || f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.movedLocked()
	f.mu.Unlock()
	f.stop(errClosed)
	if err := f.wait(ctx); err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, b := range f.berths {
			if b.host != nil {
				b.host.Close()
			}
			b.mounts.release()
		}
		return err
	}
	// Nothing but this runs now.
	var errs []error
	var group sync.WaitGroup
	var mu sync.Mutex // guards errs
	for _, v := range f.drain() {
		f.tasks.Add(1)
		group.Go(func() {
			defer f.tasks.Done()
			if err := f.scrap(v); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	for _, b := range slices.Collect(maps.Values(f.berths)) {
		if keep {
			if b.host != nil {
				b.host.Close()
			}
			b.mounts.release()
			continue
		}
		f.stopLocked(b)
		f.tasks.Add(1)
		group.Go(func() {
			defer f.tasks.Done()
			if err := f.finish(b, "removed"); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
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
