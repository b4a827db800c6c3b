package gitd

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
)

// withDefaults sets zero fields to their defaults.
func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.PackBytes, 2<<30)
	def(&l.Objects, 5_000_000)
	def(&l.ObjectBytes, 512<<20)
	def(&l.LFSBytes, 8<<30)
	def(&l.Memory, 4<<30)
	dur(&l.Time, time.Hour)
	dur(&l.CPU, 10*time.Minute)
	dur(&l.Idle, 2*time.Minute)
	if l.Processes <= 0 {
		l.Processes = 4 * runtime.NumCPU()
	}
	return l
}

// slotWait is the time that a request waits for a git child before it is told to try again.
const slotWait = 30 * time.Second

var errBusy = object.Refuse(ErrTooLarge, "the server is busy; try again in a minute")

// slots bounds the git children at work for all clients, and for each of them. A client that opens clones and
// reads nothing from them must not lock out all others.
type slots struct {
	all chan struct{}
	max int // of one client

	mu   sync.Mutex // guards each
	each map[string]int
}

func newSlots(n int) *slots {
	return &slots{all: make(chan struct{}, n), max: max(1, n*3/4), each: map[string]int{}}
}

// acquire waits for a git child of the client. release must be called once.
func (s *slots) acquire(ctx context.Context, client string) (release func(), err error) {
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for !s.addClient(client) {
		select {
		case <-retry.C:
		case <-timer.C:
			return nil, errBusy
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	select {
	case s.all <- struct{}{}:
	case <-timer.C:
		s.removeClient(client)
		return nil, errBusy
	case <-ctx.Done():
		s.removeClient(client)
		return nil, context.Cause(ctx)
	}
	return sync.OnceFunc(func() {
		<-s.all
		s.removeClient(client)
	}), nil
}

func (s *slots) addClient(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.each[client] >= s.max {
		return false
	}
	s.each[client]++
	return true
}

func (s *slots) removeClient(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.each[client]--; s.each[client] <= 0 {
		delete(s.each, client)
	}
}

// errIdle ends a transfer whose client neither sends nor reads anything.
var errIdle = errors.New("the client was idle for too long")
