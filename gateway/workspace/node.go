package workspace

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Health is the state of a machine.
type Health string

// The health of machines.
const (
	Healthy   Health = "healthy"
	Unhealthy Health = "unhealthy" // its container engine has not answered
)

// staleAfter is the age of a heartbeat, in seconds, above which a machine counts as stale. The server's own machine is never stale, because
// it answers the question itself.
const staleAfter = 180

// Machine is a machine that runs containers. There is one, the server's own.
type Machine struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status State  `json:"status"`
	Health Health `json:"health_status"`
	// LastHeartbeat is when the machine last answered.
	LastHeartbeat time.Time `json:"last_heartbeat_at"`
	StaleAfter    int       `json:"heartbeat_stale_after_seconds"`
	Engine        string    `json:"engine"`
	Version       string    `json:"version"`
	Platform      string    `json:"platform"`
	Processors    int       `json:"processors"`
	// Containers are in use, of Capacity. Queue is the number of workspaces in line.
	Containers int `json:"containers"`
	Capacity   int `json:"capacity"`
	Queue      int `json:"queue"`
	// Stats are the numbers of /health.
	Stats executor.Stats `json:"-"`
}

// Machines shows the machines. Its fields are its options.
type Machines struct {
	// Stats returns the numbers of the executor.
	Stats func() executor.Stats
	// Engine and Version are the container engine and the version of this program.
	Engine, Version string
	Workspaces      *Workspaces
	Now             func() time.Time
}

// This returns the server's own machine.
func (m *Machines) This() Machine {
	stats := m.Stats()
	n := Machine{ID: Node, Name: "This machine", Status: Running, Health: Healthy,
		LastHeartbeat: m.Now().UTC().Truncate(time.Second), StaleAfter: staleAfter,
		Engine: m.Engine, Version: m.Version, Platform: runtime.GOOS + " " + runtime.GOARCH,
		Processors: runtime.NumCPU(), Capacity: stats.Capacity,
		Queue: stats.Queue, Stats: stats}
	if stats.EngineAway {
		n.Health = Unhealthy
	}
	for state, count := range stats.Hosts {
		if state != hostQueued {
			n.Containers += count
		}
	}
	return n
}

// machineTypes are the events of a machine.
var machineTypes = []string{record.EventContainer, record.EventQueued, record.EventSetup, record.EventRecovered}

// maxAsked bounds the workspaces whose events a list of events of a machine has.
const maxAsked = 50

// Events returns the events of the machine's containers that who may see, the newest first.
func (m *Machines) Events(ctx context.Context, who route.Who) ([]record.Event, error) {
	callers, err := m.Workspaces.Executor.Callers(ctx, record.Filter{Max: maxAsked, Keep: func(r record.Run) bool {
		return r.Repo != lookup.InboxRepo && who.SeesRun(r)
	}})
	if err != nil {
		return nil, err
	}
	all := []record.Event{}
	for _, st := range callers {
		list, err := m.Workspaces.events(ctx, st.Last, machineTypes)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b record.Event) int { return cmp.Compare(b.Time.UnixNano(), a.Time.UnixNano()) })
	return all[:min(len(all), maxEvents)], nil
}
