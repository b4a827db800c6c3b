package chat

import "sync"

// homeTabs orders the publications of the Home tabs of people, so that the last one that was asked for is the last one that is published. Its
// zero value is ready.
type homeTabs struct {
	mu   sync.Mutex // guards all below
	tabs map[string]*homeTab
}

// homeTab is the Home tab of a person, while publications of it wait or work.
type homeTab struct {
	publishing sync.Mutex // held by the publication at work

	asked, left int // publications that were asked for, and those that have not ended; guarded by homeTabs.mu
}

// homeTurn is the place of a publication among those of one Home tab.
type homeTurn struct {
	of     *homeTabs
	key    string
	tab    *homeTab
	number int
}

// next returns the turn after all that it returned for the same Home tab. publish must be called with it.
func (h *homeTabs) next(key string) homeTurn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tabs == nil {
		h.tabs = map[string]*homeTab{}
	}
	tab := h.tabs[key]
	if tab == nil {
		tab = &homeTab{}
		h.tabs[key] = tab
	}
	tab.asked++
	tab.left++
	return homeTurn{h, key, tab, tab.asked}
}

// publish calls f unless a later turn exists, which shows the choices of both. It waits for the publication at work.
func (t homeTurn) publish(f func()) {
	t.tab.publishing.Lock()
	defer t.tab.publishing.Unlock()
	t.of.mu.Lock()
	last := t.number == t.tab.asked
	t.of.mu.Unlock()
	if last {
		f()
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.tab.left--; t.tab.left == 0 {
		delete(t.of.tabs, t.key)
	}
}
