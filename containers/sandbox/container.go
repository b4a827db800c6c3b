package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/cgroup"
)

// List returns the containers of one owner, oldest first. A container whose state cannot be read is logged and left out,
// because nothing is known of it.
func (s *Engine) List(ctx context.Context, owner string) ([]containers.Container, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot list sandboxes: %w", err)
	}
	var list []containers.Container
	for _, e := range entries {
		id := e.Name()
		s.mu.Lock()
		starting := s.starting[id]
		s.mu.Unlock()
		if starting || !validContainerID(id) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("cannot list sandboxes: %w", err)
		}
		st, err := s.load(id)
		if errors.Is(err, containers.ErrGone) {
			continue
		} else if err != nil {
			s.log().Warn("a container is left out of the list", "id", id, "err", err)
			continue
		}
		if st.Owner != owner {
			continue
		}
		list = append(list, containers.Container{ID: id, Key: st.Key, Running: s.alive(&st), Created: st.Created,
			Labels: st.Labels})
	}
	slices.SortFunc(list, func(a, b containers.Container) int { return a.Created.Compare(b.Created) })
	return list, nil
}

// Dial connects to the socket of the runner.
func (s *Engine) Dial(ctx context.Context, id string) (net.Conn, error) {
	st, err := s.load(id)
	if err != nil {
		return nil, err
	}
	if !s.alive(&st) {
		return nil, fmt.Errorf("cannot reach container %s: its process 1 has ended: %w", id, containers.ErrGone)
	}
	conn, err := dialUnix(ctx, s.home(id), "runner.sock")
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot reach container %s: %w: %w", id, containers.ErrGone, err)
	} else if err != nil {
		return nil, fmt.Errorf("cannot reach container %s: %w", id, err)
	}
	return conn, nil
}

const (
	// removeTimeout bounds the clean-up of a start that failed.
	removeTimeout = 30 * time.Second
	// statusGrace is the time from the start of bubblewrap until it has named its child. Only after a crash of ramus in between
	// is it waited for.
	statusGrace = 5 * time.Second
)

// Remove kills a container and its sidecars, waits until the last process is gone, and deletes its state. Files in its folder
// stay.
func (s *Engine) Remove(ctx context.Context, id string) error {
	if !validContainerID(id) {
		return nil
	}
	st, err := s.load(id)
	if errors.Is(err, containers.ErrGone) {
		if err := os.RemoveAll(s.home(id)); err != nil { // begun, with no state yet
			return fmt.Errorf("cannot remove container %s: %w", id, err)
		}
		return nil
	} else if err != nil {
		return err
	}
	if err := s.kill(ctx, &st); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", id, err)
	}
	// After the kill: a sidecar that is being started finds that the container is gone, or is found here.
	if err := s.endSidecars(ctx, id); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", id, err)
	}
	if err := cgroup.Remove(ctx, st.Cgroups); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", id, err)
	}
	if st.Dir != "" {
		if err := os.Remove(filepath.Join(st.Dir, hostsName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove container %s: %w", id, err)
		}
	}
	s.assigning.Lock() // prevents a write into the folder
	defer s.assigning.Unlock()
	// Last, so that a second Remove can continue a first one that failed.
	if err := os.RemoveAll(s.home(id)); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", id, err)
	}
	return nil
}

// Process returns the number and the start time of process 1 of a container. See [containers.Processes].
func (s *Engine) Process(ctx context.Context, id string) (pid int, start uint64, err error) {
	st, err := s.load(id)
	if err != nil {
		return 0, 0, err
	}
	if !s.alive(&st) {
		return 0, 0, fmt.Errorf("cannot find the process of container %s: it has ended: %w", id, containers.ErrGone)
	}
	return st.PID, st.Start, nil
}

// SetNames writes the names into the hosts file of a container. See [containers.Names].
func (s *Engine) SetNames(_ context.Context, id string, names map[string]netip.Addr) error {
	st, err := s.load(id)
	if err != nil {
		return err
	}
	if !s.alive(&st) {
		return fmt.Errorf("cannot name addresses in container %s: it has ended: %w", id, containers.ErrGone)
	}
	if err := containers.WriteNames(filepath.Join(st.Dir, hostsName), names); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	return nil
}

// Assign gives a container its caller. List returns the new key and labels, also after a restart. See [containers.Assigner].
func (s *Engine) Assign(_ context.Context, id, key string, labels map[string]string) error {
	wrap := func(err error) error { return fmt.Errorf("cannot give container %s to %s: %w", id, key, err) }
	if key == "" {
		return wrap(errors.New("a key is needed"))
	}
	s.assigning.Lock()
	defer s.assigning.Unlock()
	st, err := s.load(id)
	if err != nil {
		return wrap(err)
	}
	st.Key, st.Labels = key, labels
	if err := s.save(st); err != nil {
		return wrap(err)
	}
	return nil
}
