package grant

import (
	"sync"
	"time"
)

// watch is one observer of a token.
type watch struct {
	ended chan struct{}
	once  sync.Once
	timer *time.Timer // nil if the end of the token is not known
}

func (w *watch) close() { w.once.Do(func() { close(w.ended) }) }

// Watch returns a channel that is closed when a token is revoked, or when it ends. A token that is not in the list ends
// only by its revocation. stop ends the observation, and must be called.
func (l *Ledger) Watch(id string) (ended <-chan struct{}, stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &watch{ended: make(chan struct{})}
	t := l.tokens[id]
	if t != nil && !t.Revoked.IsZero() {
		w.close()
		return w.ended, func() {}
	}
	if l.watches == nil {
		l.watches = map[string]map[*watch]struct{}{}
	}
	if l.watches[id] == nil {
		l.watches[id] = map[*watch]struct{}{}
	}
	l.watches[id][w] = struct{}{}
	if t != nil && !t.Expires.IsZero() {
		w.timer = time.AfterFunc(t.Expires.Sub(l.Now()), w.close)
	}
	return w.ended, func() { l.unwatch(id, w) }
}

func (l *Ledger) unwatch(id string, w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	delete(l.watches[id], w)
	if len(l.watches[id]) == 0 {
		delete(l.watches, id)
	}
}

// wake wakes all observers of a token. mu is held.
func (l *Ledger) wake(id string) {
	for w := range l.watches[id] {
		w.close()
	}
}
