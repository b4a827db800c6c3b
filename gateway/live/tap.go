package live

import (
	"context"
	"maps"
	"slices"
	"time"
)

// tapEvery is the shortest time between two messages of a tap.
const tapEvery = 100 * time.Millisecond

// maxTapped bounds the topics of a message of a tap. More of them are told as [TopicAll].
const maxTapped = 1000

// TopicAll stands for all topics.
const TopicAll = "all"

// tap collects the topics that change here, for another server.
type tap struct {
	topics map[string]bool
	wake   chan struct{} // holds a token if there are topics
}

// add adds topics. The mutex of the hub is held.
func (t *tap) add(topics []string) {
	for _, topic := range topics {
		t.topics[topic] = true
	}
	if len(t.topics) > maxTapped {
		t.topics = map[string]bool{TopicAll: true}
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Topics calls send with the topics that change here, sorted and each once, until ctx ends or send returns an error. Those that change
// within a tenth of a second are one message.
func (api *API) Topics(ctx context.Context, send func(topics []string) error) {
	api.mu.Lock()
	api.holdTap()
	api.mu.Unlock()
	defer func() {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.release()
	}()
	h := api.Hub
	t := &tap{topics: map[string]bool{}, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	if h.taps == nil {
		h.taps = map[*tap]struct{}{}
	}
	h.taps[t] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.taps, t)
	}()
	rest := time.NewTicker(tapEvery)
	defer rest.Stop()
	for {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}
		h.mu.Lock()
		topics := slices.Sorted(maps.Keys(t.topics))
		clear(t.topics)
		h.mu.Unlock()
		if send(topics) != nil {
			return
		}
		select {
		case <-rest.C:
		case <-ctx.Done():
			return
		}
	}
}

// holdTap has views wake by events until release is called as often. mu is held.
func (api *API) holdTap() {
	if api.held++; api.held == 1 {
		api.asleep = api.watch()
	}
}

// release ends a hold. mu is held.
func (api *API) release() {
	if api.held--; api.held == 0 {
		api.asleep()
	}
}

// watch wakes views by events until end is called.
func (api *API) watch() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); api.Hub.Follow(ctx, api.Watch) }()
	return func() { cancel(); <-done }
}

// follow wakes views by the topics of other servers until end is called.
func (api *API) follow() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if api.Others == nil {
			return
		}
		api.Others(ctx, func(topics ...string) {
			if slices.Contains(topics, TopicAll) {
				api.Hub.WakeAll()
				return
			}
			api.Hub.WakeHere(topics...)
		}, api.Hub.WakeAll)
	}()
	return func() { cancel(); <-done }
}
