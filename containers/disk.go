package containers

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/proc"
)

// What a container takes on disk is added up from outside, name by name, which costs time.
// So nobody looks before the disks have given away as much as the container may still
// take, to whomever. One that writes little is never looked at, however long it lives, and all
// looks together take a small part of one core.
const (
	// diskTick is how often the disks are asked what they have left: a system call each.
	diskTick = 250 * time.Millisecond
	// lookRest is how many times as long as a look took there is none.
	lookRest    = 19
	lookTimeout = 30 * time.Second
	// lookBlind is how often a container in use is looked at where a disk cannot be asked.
	lookBlind = 10 * time.Second
	// killAwait bounds the wait for the end of commands that were killed.
	killAwait = 20 * time.Second
)

// disks are the file systems that containers write to.
type disks struct {
	paths []string
	free  []layer.Usage // when asked last
	spent layer.Usage   // given away between two questions, all told: what came back does not count
	blind bool          // one cannot be asked
}

// ask asks what is left.
func (d *disks) ask() {
	free := make([]layer.Usage, len(d.paths))
	seen := map[unix.Fsid]bool{}
	d.blind = false
	for i, path := range d.paths {
		var st unix.Statfs_t
		if path == "" || unix.Statfs(path, &st) != nil {
			d.blind = true
			continue
		}
		if seen[st.Fsid] {
			continue
		}
		seen[st.Fsid] = true
		free[i] = layer.Usage{Bytes: int64(st.Bfree) * st.Bsize, Files: int64(st.Ffree)}
		if i < len(d.free) {
			d.spent.Bytes += max(d.free[i].Bytes-free[i].Bytes, 0)
			d.spent.Files += max(d.free[i].Files-free[i].Files, 0)
		}
	}
	d.free = free
}

// diskWatch looks after Limits.Disk. Its fields are one goroutine's.
type diskWatch struct {
	f      *Fleet
	keeper layer.Keeper
	dir    string // Fleet.Dir, absolute
	disks  disks
	inside []string  // volumes of the engine's
	rest   time.Time // no look before
}

// watchDisk looks after Limits.Disk until the fleet is closed.
func (f *Fleet) watchDisk() {
	dir, err := filepath.Abs(f.Dir)
	if err != nil {
		f.log().Error("limits.disk is not looked after", "err", err)
		return
	}
	w := &diskWatch{f: f, keeper: f.Keeper, dir: dir}
	if w.keeper == nil {
		w.keeper = layer.NewLocal(dir)
	}
	tick := time.NewTicker(diskTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.tick()
		case <-f.base.Done():
			return
		}
	}
}

func (w *diskWatch) tick() {
	f := w.f
	f.mu.Lock()
	none := len(f.slots) == 0
	f.mu.Unlock()
	if none {
		return
	}
	if w.disks.paths == nil {
		w.disks.paths = []string{w.dir}
		if engine, ok := f.Engine.(Volumes); ok {
			inside, storage := engine.Volumes(f.base)
			if w.inside = inside; len(inside) > 0 {
				w.disks.paths = append(w.disks.paths, storage)
			}
		}
	}
	w.disks.ask()
	f.mu.Lock()
	f.spent = w.disks.spent
	b := f.dueLocked(w.disks.blind)
	f.mu.Unlock()
	if began := time.Now(); b != nil && began.After(w.rest) {
		w.look(b)
		w.rest = time.Now().Add(lookRest * time.Since(began))
	}
}

// dueLocked is the container that is to be looked at next; nil when none is.
func (f *Fleet) dueLocked(blind bool) *slot {
	var due *slot
	for _, b := range f.slots {
		if !b.settledLocked() {
			continue
		}
		q := b.quota
		old := blind && b.leases > 0 && q.most.Bytes > 0 && !q.ending && f.now().Sub(q.looked) > lookBlind
		if (old || q.due(f.spent)) && (due == nil || q.looked.Before(due.quota.looked)) {
			due = b
		}
	}
	return due
}

// settledLocked tells whether the slot has a container that is neither on its way nor on its way out.
func (b *slot) settledLocked() bool { return b.state == slotReady || b.state == slotOrphan }

// look finds out what a container takes, and has its commands killed if that is too much.
func (w *diskWatch) look(b *slot) {
	f := w.f
	f.mu.Lock()
	from, host, most, output, spent := *b, b.host, b.quota.most, b.quota.output, f.spent
	b.quota.looked = f.now()
	f.mu.Unlock()

	used, err := w.usage(&from, 2*most.Files)
	tooDeep := errors.Is(err, layer.ErrTooMany)
	if err != nil && !tooDeep && f.base.Err() == nil && !errors.Is(err, layer.ErrGone) && !errors.Is(err, ErrGone) {
		f.log().Warn("limits.disk is looked after in part only", "key", b.key, "err", err) // what was counted counts
	}
	if !lost(host) {
		used.Bytes += f.kept(host, output)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.slots[b.key] != b || !b.settledLocked() || !b.quota.found(used, spent, tooDeep) {
		return
	}
	message := b.quota.message(tooDeep)
	b.quota.ending = true
	f.tasks.Go(func() {
		killed, err := f.killFull(b, host, message)
		f.log().Info("a container takes too much of the disk", "key", b.key, "bytes", used.Bytes, "files", used.Files,
			"bound", most.Bytes, "killed", killed, "err", err)
		f.mu.Lock()
		defer f.mu.Unlock()
		b.quota.ending, b.quota.killed = false, killed > 0
		if killed == 0 && !errors.Is(err, errElsewhere) { // then the next look finds the same
			b.quota.raise()
		}
	})
}

// usage adds up what a container has on disk.
func (w *diskWatch) usage(b *slot, most int64) (layer.Usage, error) {
	ctx, cancel := context.WithTimeout(w.f.base, lookTimeout)
	defer cancel()
	s := layer.Storage{Dir: filepath.Join(w.dir, "hosts", filepath.Base(b.dir))}
	for _, path := range w.inside {
		if path != WorkDir || !b.bound { // there an upper lies over the volume, and in Dir
			s.Inside = append(s.Inside, path)
		}
	}
	if len(s.Inside) > 0 {
		var err error
		if b.place != nil {
			s.PID, s.Start = b.place.PID, b.place.Start
		} else if s.PID, s.Start, err = w.f.process(ctx, b.id); err != nil {
			return layer.Usage{}, err
		}
	}
	used, err := w.keeper.Usage(ctx, s, most)
	if errors.Is(err, layer.ErrUnable) && len(s.Inside) > 0 {
		s.Inside = nil // without root's rights there is no way into them
		used, err = w.keeper.Usage(ctx, s, most)
	}
	return used, err
}

// kept is what the runner keeps of commands' output: in files that have no name.
func (f *Fleet) kept(host *Host, output int64) (n int64) {
	list, err := bounded(f, f.base, askTimeout, host.Commands, nil)
	if err != nil {
		return 0
	}
	for _, c := range list {
		n += min(c.Exit.Stdout, output) + min(c.Exit.Stderr, output)
	}
	return n
}

// killFull kills what runs in a container, and returns how many commands when they have ended.
func (f *Fleet) killFull(b *slot, host *Host, message string) (int, error) {
	host, done, err := f.reach(b, host)
	if err != nil {
		return 0, err
	}
	defer done()
	list, err := bounded(f, f.base, askTimeout, host.Commands, nil)
	if err != nil {
		return 0, err
	}
	var ids []string
	var errs []error
	for _, c := range list {
		if !c.Running {
			continue
		}
		_, err := bounded(f, f.base, askTimeout, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, host.killFull(ctx, c.ID, message)
		}, nil)
		if err == nil {
			ids = append(ids, c.ID)
		}
		errs = append(errs, err)
	}
	ctx, cancel := context.WithTimeout(f.base, killAwait)
	defer cancel()
	proc.Await(ctx, killAwait, host.Done(), func() bool {
		list, err := bounded(f, ctx, askTimeout, host.Commands, nil)
		return err != nil || !slices.ContainsFunc(list, func(c CommandState) bool { return c.Running && slices.Contains(ids, c.ID) })
	})
	return len(ids), errors.Join(errs...)
}
