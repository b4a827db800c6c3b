package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// firstList bounds the wait of Open for the engine. listAgain is the pause between two attempts. engineAwaits bounds
// the wait of a caller that wants a new container.
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
		err = f.takeOverLocked(list)
		f.mu.Unlock()
		if err == nil {
			f.log().Info("the container engine answers")
			return
		}
		f.log().Error("cannot take over the containers of an earlier process", "err", err)
	}
}

// engineKnown waits until the containers of the engine were listed. Before that the fleet does not know whether a
// caller has a container.
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

// takeOverLocked takes over the containers of an earlier process.
func (f *Fleet) takeOverLocked(list []Container) error {
	// The newest container comes first. If two have the same key, the newer one belongs to the caller.
	slices.SortFunc(list, func(a, b Container) int { return b.Created.Compare(a.Created) })
	inUse := map[string]bool{}
	for _, c := range list {
		name, ok := folderLabel(c.Labels)
		rec, taken := f.record(name)
		if taken {
			c.Key, c.Labels = rec.Key, rec.Labels
		} else if c.Labels[labelPool] != "" {
			c.Key = "" // made for the pool by an earlier process and never used; no caller may get it
		}
		if c.Running && ok && c.Key != "" && f.slots[c.Key] == nil {
			inUse[name] = true
			f.slots[c.Key] = &slot{
				key: c.Key, companionOf: c.Labels[labelCompanion], state: slotOrphan, since: f.opened, idle: f.opened,
				id: c.ID, dir: f.folder(name), made: c, door: new(door), bound: rec.Bound,
				quota: newQuota(Limits{Disk: rec.Disk, Output: rec.Output}, f.spent),
			}
			f.slots[c.Key].quota.known = false
			continue
		}
		if ok {
			inUse[name] = true // removed with its container, below
		}
		f.unclean[c.ID] = remains{name, !c.Running}
	}
	f.dropStraysLocked()
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
				f.log().Warn("the folder of a removed container stays", "folder", e.Name(), "err", err)
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

// bounded calls fn and returns its result. If fn has not returned after d and cleanGrace, bounded returns an error,
// even if fn ignores its context. So an engine that hangs costs a goroutine and does not block a caller. late gets a
// value that comes later.
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

// dial connects to the runner of a container.
func (f *Fleet) dial(ctx context.Context, limit time.Duration, door *door, name, id string) (*Host, error) {
	d := &Dialer{Engine: f.Engine, Signer: f.signer, Pin: filePin(filepath.Join(f.folder(name), "host_key")), Door: door}
	return bounded(f, ctx, limit, func(ctx context.Context) (*Host, error) { return d.Dial(ctx, id) },
		func(h *Host) { h.Close() })
}

// ended reports whether the last process of a container is known to be gone. When process 1 ends, the kernel ends all others of its
// namespace and lets process 1 go after them.
func (f *Fleet) ended(id string) bool {
	_, err := bounded(f, context.WithoutCancel(f.base), askTimeout, func(ctx context.Context) (struct{}, error) {
		_, _, err := f.process(ctx, id)
		return struct{}{}, err
	}, nil)
	return errors.Is(err, ErrGone)
}

// process returns process 1 of a container. Returns [ErrLacks] if the engine does not name processes.
func (f *Fleet) process(ctx context.Context, id string) (pid int, start uint64, err error) {
	engine, err := AsProcesses(f.Engine)
	if err != nil {
		return 0, 0, err
	}
	return engine.Process(ctx, id)
}

// TaskUID returns the user of commands on the host. Returns -1 if the engine is not a [TaskUser], which a fleet with a
// Keeper does not allow.
func (f *Fleet) TaskUID() int {
	if engine, err := AsTaskUser(f.Engine); err == nil {
		return engine.TaskUID()
	}
	return -1
}

// canBind reports whether the engine has the abilities that binding a work tree from outside needs.
func (f *Fleet) canBind() error {
	_, processes := AsProcesses(f.Engine)
	_, user := AsTaskUser(f.Engine)
	if err := errors.Join(processes, user); err != nil {
		return fmt.Errorf("cannot bind work trees from outside: %w", err)
	}
	return nil
}
