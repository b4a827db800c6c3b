package replica

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// The home orders machines for all replicas, because machines report to it. A container of another replica that waits for
// room has the home order one.

const (
	// roomEvery is the time between two questions to the home while a container waits.
	roomEvery = 2 * time.Second
	// roomStale is how long an answer of the home is shown.
	roomStale = 20 * time.Second
)

// room is the last answer of the home to a container that waits for room.
type room struct {
	mu       sync.Mutex // guards the fields below
	asking   bool
	asked    time.Time
	text     string
	answered time.Time
}

// IsHome reports whether this replica is the home.
func (f *Front) IsHome() bool { return f.isHome() }

// Room has the home order a machine, and returns what is done, for people. It does not wait for the home, and may be called
// often.
func (f *Front) Room() string {
	r := &f.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asking && time.Since(r.asked) >= roomEvery && f.closing.Err() == nil {
		r.asking, r.asked = true, time.Now()
		f.work.Go(f.askRoom)
	}
	if time.Since(r.answered) > roomStale {
		return fmt.Sprintf("no node has room; the replica %s, which orders nodes, is asked for one", f.Home)
	}
	return r.text
}

func (f *Front) askRoom() {
	ctx, cancel := context.WithTimeout(f.closing, findWait)
	defer cancel()
	var text string
	err := f.askHome(ctx, "/replica/room", nil, &text)
	r := &f.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asking = false; err == nil {
		r.text, r.answered = text, time.Now()
	}
}

func (f *Front) serveRoom(w http.ResponseWriter, _ *http.Request) {
	if f.Order == nil {
		answer(w, fmt.Sprintf("no node has room, and the replica %s orders none", f.Group.Name))
		return
	}
	answer(w, f.Order())
}
