package containers

import (
	"context"
	"log/slog"
	"net/http"
	"time"
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
	// SleepAfter removes a container that had no command and no live background
	// process for so long; default 10 min.
	SleepAfter time.Duration
	Log        *slog.Logger
	Now        func() time.Time
	// Event, when set, hears of containers started, adopted, asleep, lost and removed.
	Event func(FleetEvent)
}

// FleetEvent tells of a change in the fleet.
type FleetEvent struct {
	Time  time.Time
	Key   string
	What  string // started, adopted, warm, asleep, lost, removed, queued
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
	// Waiting is told the place in line (1 = next) whenever it changes.
	Waiting func(place int)
}

// Lease is the use of a host; the container stays awake until Release.
type Lease struct {
	Host  *Host
	Fresh bool // this call made the container
	// Release gives the host back; idle time starts now. Safe to call twice.
	Release func()
}

// Open lists the containers that an earlier process left: dead ones are removed,
// live ones kept for Adopt until the first SleepAfter has passed.
func (f *Fleet) Open(ctx context.Context) error { panic("not built") }

// Acquire returns the caller's host, made if there is none. One caller may hold several leases at once.
func (f *Fleet) Acquire(ctx context.Context, r Request) (*Lease, error) { panic("not built") }

// Adopt connects to the caller's container if one is running (also one of an
// earlier process), without making one; nil, nil when there is none.
func (f *Fleet) Adopt(ctx context.Context, r Request) (*Lease, error) { panic("not built") }

// Remove removes the caller's container now; also one that is in use.
func (f *Fleet) Remove(ctx context.Context, key string) error { panic("not built") }

// HostStatus is one line of the fleet's list.
type HostStatus struct {
	Key      string    `json:"key"`
	ID       string    `json:"id,omitempty"`
	State    string    `json:"state"` // starting, busy, idle, queued, orphan
	Place    int       `json:"place,omitempty"`
	Since    time.Time `json:"since"`
	Leases   int       `json:"leases"`
	Live     int       `json:"live"` // background processes
	SleepsAt time.Time `json:"sleeps_at,omitzero"`
}

// List tells the state of every container and waiting caller.
func (f *Fleet) List(ctx context.Context) []HostStatus { panic("not built") }

// Close stops the fleet's goroutines. Containers stay when keep is set, for the
// next process to adopt; otherwise they are removed.
func (f *Fleet) Close(ctx context.Context, keep bool) error { panic("not built") }
