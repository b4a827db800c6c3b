package containers

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// HostStatus is the state of one container or of one waiting caller.
type HostStatus struct {
	Key      string    `json:"key"`
	ID       string    `json:"id,omitempty"`
	State    string    `json:"state"`           // starting, busy, idle, queued, orphan, stopping
	Place    int       `json:"place,omitempty"` // position in the queue; 1 is next
	Since    time.Time `json:"since"`
	Leases   int       `json:"leases"`
	Live     int       `json:"live"` // background processes
	SleepsAt time.Time `json:"sleeps_at,omitzero"`
}

// Keys returns the callers that have a container or get one. It asks no runner.
func (f *Fleet) Keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []string
	for key, b := range f.slots {
		if b.state != slotStopping {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// List returns the state of every container by key, then the callers in the queue by position. With keys it returns
// only those, because an installation has many containers and each is asked. Connected runners are asked for their live
// processes. For others Live is the last known number.
func (f *Fleet) List(ctx context.Context, keys ...string) []HostStatus {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	list, hosts := f.statuses(keys)

	var group sync.WaitGroup
	var mu sync.Mutex // guards live
	live := map[string]int{}
	for key, host := range hosts {
		group.Go(func() {
			commands, err := host.Commands(ctx)
			if err != nil {
				return
			}
			n := 0
			for _, c := range commands {
				if c.Running && c.Background {
					n++
				}
			}
			mu.Lock()
			live[key] = n
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

// statuses returns the list without asking a runner, and the hosts that are connected, by key.
func (f *Fleet) statuses(keys []string) (list []HostStatus, hosts map[string]*Host) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open || f.closed {
		return nil, nil
	}
	wanted := func(key string) bool { return len(keys) == 0 || slices.Contains(keys, key) }
	hosts = map[string]*Host{}
	for _, b := range f.slots {
		if !wanted(b.key) {
			continue
		}
		if b.state == slotReady && !lost(b.host) {
			hosts[b.key] = b.host
		}
		list = append(list, f.statusLocked(b))
	}
	slices.SortFunc(list, func(a, b HostStatus) int { return cmp.Compare(a.Key, b.Key) })
	for i, w := range f.waiters {
		if wanted(w.key) {
			list = append(list, HostStatus{Key: w.key, State: "queued", Place: i + 1, Since: w.since})
		}
	}
	return list, hosts
}

func (f *Fleet) statusLocked(b *slot) HostStatus {
	s := HostStatus{Key: b.key, ID: b.id, Since: b.since, Leases: b.leases, Live: b.live}
	switch {
	case b.state == slotStarting:
		s.State = "starting"
	case b.state == slotStopping:
		s.State = "stopping"
	case b.leases > 0:
		s.State = "busy"
	default:
		s.State, s.Since, s.SleepsAt = "idle", b.idle, b.idle.Add(f.sleepAfter())
		if b.state == slotOrphan {
			s.State = "orphan"
		}
	}
	return s
}
