package session

import (
	"sync"
	"time"
)

// watch is one observer of a session.
type watch struct {
	ended chan struct{}
	once  sync.Once
	timer *time.Timer
}

func (w *watch) close() { w.once.Do(func() { close(w.ended) }) }

// Watch returns a channel that is closed when the session ends, or when the roles of its account change. stop ends the
// observation, and must be called. A session that has ended already has a closed channel.
func (s *Store) Watch(id string) (ended <-chan struct{}, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watch{ended: make(chan struct{})}
	k := s.byID[id]
	if k == nil {
		w.close()
		return w.ended, func() {}
	}
	if s.watches[id] == nil {
		s.watches[id] = map[*watch]struct{}{}
	}
	s.watches[id][w] = struct{}{}
	w.timer = time.AfterFunc(k.Ends.Sub(s.Now()), w.close)
	return w.ended, func() { s.unwatch(id, w) }
}

func (s *Store) unwatch(id string, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.timer.Stop()
	delete(s.watches[id], w)
	if len(s.watches[id]) == 0 {
		delete(s.watches, id)
	}
	if k := s.byID[id]; k != nil {
		k.Used = s.Now() // a session with a socket is in use until the socket is closed
	}
}

// wake wakes all observers of a session.
func (s *Store) wake(id string) {
	for w := range s.watches[id] {
		w.timer.Stop()
		w.close()
	}
}
