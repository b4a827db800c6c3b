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

// Adding up the disk space of a container from outside, name by name, takes time. So the fleet measures a container
// only after the disks have given away, to all containers together, as much as this container may still take. A
// container that writes little is never measured, however long it exists. All measurements together take a small part
// of one core.
const (
	// diskTick is the pause between two system calls that ask the disks for their free space.
	diskTick = 250 * time.Millisecond
	// lookRest is the pause after a measurement, as a multiple of its duration.
	lookRest    = 19
	lookTimeout = 30 * time.Second
	// lookBlind is the pause between two measurements of a container in use if a disk cannot be asked.
	lookBlind = 10 * time.Second
	// killAwait bounds the wait for the end of killed commands.
	killAwait = 20 * time.Second
)

// disks are the file systems that containers write to.
type disks struct {
	paths []string
	free  []layer.Usage // at the last call of ask
	spent layer.Usage   // the sum of the space given away between calls of ask; space that came back does not count
	blind bool          // at least one disk cannot be asked
}

// ask reads the free space of each file system, and adds the space given away since the last call to spent.
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

// diskWatch enforces Limits.Disk. One goroutine owns its fields.
type diskWatch struct {
	f      *Fleet
	keeper layer.Keeper
	dir    string // Fleet.Dir, absolute
	disks  disks
	inside []string  // volumes of the engine
	rest   time.Time // no measurement before this time
}

// watchDisk enforces Limits.Disk until the fleet is closed.
func (f *Fleet) watchDisk() {
	dir, err := filepath.Abs(f.Dir)
	if err != nil {
		f.log().Error("limits.disk is not enforced", "err", err)
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

// dueLocked returns the container to measure next. Returns nil if no container is due.
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

// settledLocked reports whether the slot has a container that is neither starting nor stopping.
func (b *slot) settledLocked() bool { return b.state == slotReady || b.state == slotOrphan }

// look measures the disk space of a container. It has the commands of the container killed if that is too much.
func (w *diskWatch) look(b *slot) {
	f := w.f
	f.mu.Lock()
	from, host, most, output, spent := *b, b.host, b.quota.most, b.quota.output, f.spent
	b.quota.looked = f.now()
	f.mu.Unlock()

	used, err := w.usage(&from, 2*most.Files)
	tooDeep := errors.Is(err, layer.ErrTooMany)
	if err != nil && !tooDeep && f.base.Err() == nil && !errors.Is(err, layer.ErrGone) && !errors.Is(err, ErrGone) {
		f.log().Warn("limits.disk is enforced in part only", "key", b.key, "err",
			err) // the space that was counted still counts
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
		if killed == 0 && !errors.Is(err, errElsewhere) { // otherwise the next measurement finds the same
			b.quota.raise()
		}
	})
}

// usage returns the disk space of a container.
func (w *diskWatch) usage(b *slot, most int64) (layer.Usage, error) {
	ctx, cancel := context.WithTimeout(w.f.base, lookTimeout)
	defer cancel()
	s := layer.Storage{Dir: filepath.Join(w.dir, "hosts", filepath.Base(b.dir))}
	for _, path := range w.inside {
		if path != WorkDir || !b.bound { // the upper of a bound work tree covers the volume, and is in Dir
			s.Inside = append(s.Inside, path)
		}
	}
	if engine, ok := w.f.Engine.(Usages); ok && len(s.Inside) > 0 {
		return w.usageElsewhere(ctx, engine, b.id, s, most)
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
		s.Inside = nil // only root may enter the volumes
		used, err = w.keeper.Usage(ctx, s, most)
	}
	return used, err
}

// usageElsewhere returns the disk space of a container whose volumes are on another machine.
func (w *diskWatch) usageElsewhere(ctx context.Context, engine Usages, id string, s layer.Storage,
	most int64) (layer.Usage, error) {
	used, err := engine.Usage(ctx, id, s.Inside, most)
	if err != nil {
		return used, err
	}
	s.Inside = nil
	here, err := w.keeper.Usage(ctx, s, most)
	used.Bytes += here.Bytes
	used.Files += here.Files
	return used, err
}

// kept returns how many bytes of commands' output the runner keeps. They are in files without a name.
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

// killFull kills the running commands of a container, waits until they have ended, and returns their number.
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
		return err != nil || !slices.ContainsFunc(list,
			func(c CommandState) bool { return c.Running && slices.Contains(ids, c.ID) })
	})
	return len(ids), errors.Join(errs...)
}
