package live

import (
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
)

// watchers are the readers of the events of all runs, or of all runs of one caller.
type watchers struct {
	mu   sync.Mutex // guards list
	list map[*Follower]record.Caller
}

// Watch returns a reader of the events of every run from now on, or of every run of one caller.
func (f *Folder) Watch(c record.Caller) *Follower {
	w := newFollower()
	f.watchers.mu.Lock()
	defer f.watchers.mu.Unlock()
	if f.watchers.list == nil {
		f.watchers.list = make(map[*Follower]record.Caller)
	}
	f.watchers.list[w] = c
	return w
}

// Unwatch ends a Watch.
func (f *Folder) Unwatch(w *Follower) {
	f.watchers.mu.Lock()
	delete(f.watchers.list, w)
	f.watchers.mu.Unlock()
}

// Publish sends watchers an event, which names its run.
func (f *Folder) Publish(e record.Event) {
	f.watchers.mu.Lock()
	defer f.watchers.mu.Unlock()
	for w, c := range f.watchers.list {
		if c.IsZero() || hasCaller(e.Run, c) {
			w.push(e)
		}
	}
}

// watched reports whether anybody reads the events of all runs.
func (f *Folder) watched() bool {
	f.watchers.mu.Lock()
	defer f.watchers.mu.Unlock()
	return len(f.watchers.list) > 0
}

func hasCaller(run string, c record.Caller) bool {
	prefix := c.String() + "/"
	return len(run) > len(prefix) && run[:len(prefix)] == prefix
}
