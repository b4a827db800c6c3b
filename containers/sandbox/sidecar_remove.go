package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/cgroup"
)

// removeSidecar kills the processes of a sidecar and deletes its state.
func (s *Engine) removeSidecar(ctx context.Context, st *state) error {
	wrap := func(err error) error { return fmt.Errorf("cannot remove sidecar %s: %w", st.ID, err) }
	if err := s.kill(ctx, st); err != nil {
		return wrap(err)
	}
	if err := cgroup.Remove(ctx, st.Cgroups); err != nil {
		return wrap(err)
	}
	if err := os.RemoveAll(s.home(st.ID)); err != nil {
		return wrap(err)
	}
	return nil
}

// endSidecars ends the sidecars of one container, including those that an earlier process started.
func (s *Engine) endSidecars(ctx context.Context, of string) error {
	s.mu.Lock()
	var ours []*run
	for _, run := range s.sidecars {
		if run.of == of {
			ours = append(ours, run)
		}
	}
	s.mu.Unlock()
	for _, run := range ours {
		run.stop(fmt.Errorf("container %s was removed: %w", of, containers.ErrGone))
	}
	for _, run := range ours {
		select {
		case <-run.ended:
		case <-ctx.Done():
			return fmt.Errorf("a sidecar does not end: %w", context.Cause(ctx))
		}
	}
	return s.sweepSidecars(ctx, func(st state) bool { return st.Of == of })
}

// SweepSidecars removes the sidecars of an owner, apart from those that run in [Engine.RunSidecar].
func (s *Engine) SweepSidecars(ctx context.Context, owner string) error {
	if owner == "" {
		return errors.New("cannot sweep sidecars: an owner is needed")
	}
	return s.sweepSidecars(ctx, func(st state) bool { return st.Owner == owner })
}

// sweepSidecars removes the sidecars that which accepts, apart from those of this process.
func (s *Engine) sweepSidecars(ctx context.Context, which func(state) bool) error {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot list sidecars: %w", err)
	}
	var errs []error
	for _, e := range entries {
		id := e.Name()
		s.mu.Lock()
		ours := s.sidecars[id] != nil
		s.mu.Unlock()
		if ours || !validSidecarID(id) {
			continue
		}
		st, err := s.load(id)
		if errors.Is(err, containers.ErrGone) {
			// Just removed, or begun when ramus crashed, with nothing started.
			if fi, err := e.Info(); err == nil && s.now().Sub(fi.ModTime()) > statusGrace {
				errs = append(errs, os.RemoveAll(s.home(id)))
			}
			continue
		} else if err != nil {
			errs = append(errs, err)
			continue
		}
		if which(st) {
			errs = append(errs, s.removeSidecar(ctx, &st))
		}
	}
	return errors.Join(errs...)
}
