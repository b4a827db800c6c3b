package web

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// visitKey begins the key of the request, and so the id of the first run, of a workspace that is removed if nothing is changed in it.
const visitKey = "visit-"

const (
	// visitUnused is how long a visit without a terminal stays.
	visitUnused = time.Hour
	visitsEvery = 15 * time.Second
	maxVisits   = 200
)

// visits removes the visits that are over. A visit is a workspace that a person began to look around at a tick.
type visits struct {
	mu      sync.Mutex // guards all below
	end     context.CancelFunc
	added   chan record.Caller
	stopped bool
	work    sync.WaitGroup
}

func (v *visits) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stopped = true
	if v.end != nil {
		v.end()
	}
}

// beginWatch has watch look at visits from now on, until visits are stopped. It gets each new one.
func (v *visits) beginWatch(added record.Caller, watch func(ctx context.Context, added <-chan record.Caller)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stopped {
		return
	}
	if v.end == nil {
		ctx, cancel := context.WithCancel(context.Background())
		v.end, v.added = cancel, make(chan record.Caller, maxVisits)
		v.work.Go(func() { watch(ctx, v.added) })
	}
	if added != (record.Caller{}) {
		select {
		case v.added <- added:
		default: // the next start of the server finds it
		}
	}
}

// visit begins a workspace at a tick for a terminal. It is removed when its terminals have ended and nothing was changed.
func (api *API) visit(c *route.Call, s workspace.Workspace, t *timeline.Tick, _ record.Run) error {
	at, err := commitOf(t)
	if err != nil {
		return err
	}
	r, err := api.Workspaces.Create(c.R.Context(), c.Who,
		workspace.Wish{Key: visitKey + strings.ToLower(rand.Text()[:12]), From: s.ID, Commit: at})
	if err != nil {
		return err
	}
	api.visits.beginWatch(r.Caller, api.watchVisits)
	return api.see(c, workspacePath(r.Caller.Slug())+"?pane="+paneShell)
}

// isVisit reports whether a caller with these runs, the oldest first, is a visit.
func isVisit(runs []record.Run) bool { return len(runs) > 0 && strings.HasPrefix(runs[0].ID, visitKey) }

// watchVisits removes visits that are over. It begins with those that an earlier server left.
func (api *API) watchVisits(ctx context.Context, added <-chan record.Caller) {
	open := map[record.Caller]bool{}
	runs, err := api.Executor.Runs(ctx, record.Filter{Max: maxVisits,
		Keep: func(r record.Run) bool { return strings.HasPrefix(r.ID, visitKey) }})
	if err != nil {
		api.Log.Warn("cannot list visits", "err", err)
	}
	for _, r := range runs {
		open[r.Caller] = true
	}
	every := time.NewTicker(visitsEvery)
	defer every.Stop()
	for {
		for c := range open {
			ended, err := api.endVisit(ctx, c)
			if err != nil && ctx.Err() == nil {
				api.Log.Warn("cannot end a visit", "caller", c, "err", err)
			}
			if ended {
				delete(open, c)
			}
		}
		select {
		case c := <-added:
			open[c] = true
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// endVisit removes a visit whose terminals have ended, if nothing was changed in it. It reports whether it is no visit any more: it was removed,
// or changed, and then it stays as a workspace.
func (api *API) endVisit(ctx context.Context, c record.Caller) (ended bool, err error) {
	runs := api.Executor.OfCaller(c)
	if !isVisit(runs) {
		return true, nil
	}
	st, err := api.Executor.Caller(ctx, c.String())
	if errors.Is(err, record.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	first := runs[0]
	if st.Head == "" {
		return true, nil // it was removed
	}
	used := false
	for _, r := range runs {
		if !r.Ended() {
			return false, nil
		}
		used = used || r.Kind == record.KindTerminal
		for _, a := range r.With {
			if a.Changed() {
				return true, nil
			}
		}
	}
	if st.Head != first.Start || st.Kept != "" {
		return true, nil
	}
	if !used && api.Now().Sub(first.CreatedAt) < visitUnused {
		return false, nil
	}
	_, err = api.Executor.Remove(ctx, c.String(), first.Asker)
	return err == nil, err
}
