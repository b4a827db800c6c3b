package live

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
)

// Watcher follows the events of all runs.
type Watcher interface {
	Watch(ctx context.Context, caller string) iter.Seq2[record.Event, error]
	// Find returns the run of a caller with this id.
	Find(c record.Caller, id string) (record.Run, bool)
}

// TopicMe is the topic of everything that a person may see.
const TopicMe = "me"

// TopicNode is the topic of the machine.
const TopicNode = "node"

// callerTopic begins the topics of callers.
const callerTopic = "caller/"

// CallerTopic returns the topic of a caller.
func CallerTopic(c record.Caller) string { return callerTopic + c.Slug() }

// RunTopic returns the topic of a run.
func RunTopic(r record.Run) string { return "run/" + r.Name() }

// RepoTopic returns the topic of a repository.
func RepoTopic(name string) string { return "repo/" + name }

// Hub wakes the views of topics. The zero value is ready for use. All methods are safe for concurrent use.
type Hub struct {
	mu      sync.Mutex // guards all below
	sleeper map[*sleeper]struct{}
	taps    map[*tap]struct{}
}

// sleeper is a view that waits for a change.
type sleeper struct {
	topics  []string
	listens bool     // topics are known
	changed []string // topics that changed before listens was set, each once
	person  string
	wake    chan struct{} // holds a token if something has changed since
}

// maxChanged bounds the topics that a sleeper notes. More of them wake it.
const maxChanged = 64

// Wake wakes the views of topics, here and at other replicas.
func (h *Hub) Wake(topics ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range h.taps {
		t.add(topics)
	}
	h.wake(topics)
}

// WakeHere wakes the views of topics of this server alone.
func (h *Hub) WakeHere(topics ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake(topics)
}

// WakeAll wakes all views of this server.
func (h *Hub) WakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sleeper {
		s.signal()
	}
}

// wake wakes views. mu is held.
func (h *Hub) wake(topics []string) {
	for s := range h.sleeper {
		switch {
		case !s.listens:
			s.note(topics)
		case overlap(s.topics, topics):
			s.signal()
		}
	}
}

// note notes a change for the time when the topics of the view are known.
func (s *sleeper) note(topics []string) {
	for _, t := range topics {
		if len(s.changed) < maxChanged && !slices.Contains(s.changed, t) {
			s.changed = append(s.changed, t)
		}
	}
	if len(s.changed) == maxChanged {
		s.signal()
	}
}

// overlap reports whether two lists of topics have one in common.
func overlap(some, others []string) bool {
	return slices.ContainsFunc(some, func(t string) bool { return slices.Contains(others, t) })
}

// Present returns the people with an open view of a topic, each once, in order.
func (h *Hub) Present(topic string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for s := range h.sleeper {
		if s.person != "" && slices.Contains(s.topics, topic) && !slices.Contains(names, s.person) {
			names = append(names, s.person)
		}
	}
	slices.Sort(names)
	return names
}

func (s *sleeper) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// join adds a view without topics. Until listen is called, the hub notes the changes, because the topics of the view
// are unknown. The caller of join calls leave.
func (h *Hub) join(person string) *sleeper {
	s := &sleeper{person: person, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sleeper == nil {
		h.sleeper = map[*sleeper]struct{}{}
	}
	h.sleeper[s] = struct{}{}
	return s
}

// listen sets the topics of a view. If one of them has changed since join, the view wakes. If they are others than
// before, the views of the topics that show the people who are there wake.
func (h *Hub) listen(s *sleeper, topics []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.listens = true; overlap(s.changed, topics) {
		s.signal()
	}
	s.changed = nil
	if slices.Equal(s.topics, topics) {
		return
	}
	before := s.topics
	s.topics = topics
	h.comeOrGo(s, before)
	h.comeOrGo(s, topics)
}

func (h *Hub) leave(s *sleeper) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sleeper, s)
	h.comeOrGo(s, s.topics)
}

// comeOrGo wakes the views of other people of a caller's topic. Lists do not show who is there. mu is held.
func (h *Hub) comeOrGo(s *sleeper, topics []string) {
	for _, t := range topics {
		if !strings.HasPrefix(t, callerTopic) {
			continue
		}
		for other := range h.sleeper {
			if other.person != s.person && slices.Contains(other.topics, t) {
				other.signal()
			}
		}
	}
}

// Follow wakes views by the events of runs, until ctx ends.
func (h *Hub) Follow(ctx context.Context, w Watcher) {
	for e, err := range w.Watch(ctx, "") {
		if err != nil {
			return
		}
		h.Wake(topicsOf(w, e)...)
	}
}

// topicsOf returns the topics that an event concerns.
func topicsOf(w Watcher, e record.Event) []string {
	caller, id, _ := strings.Cut(e.Run, "/")
	c, err := record.ParseCaller(caller)
	if err != nil {
		return []string{TopicMe}
	}
	topics := []string{CallerTopic(c), "run/" + e.Run}
	if e.Type == record.EventOutput || e.Type == record.EventAgent {
		return topics // lists do not show output
	}
	topics = append(topics, TopicMe, TopicNode)
	if r, ok := w.Find(c, id); ok {
		topics = append(topics, RepoTopic(r.Repo))
	}
	return topics
}
