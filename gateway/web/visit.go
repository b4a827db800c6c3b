package web

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
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
	executor *executor.Executor
	log      *slog.Logger
	now      func() time.Time

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

// beginWatch has watch look at visits from now on, until visits are stopped. added is a new one, or zero.
func (v *visits) beginWatch(added record.Caller) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stopped {
		return
	}
	if v.end == nil {
		ctx, cancel := context.WithCancel(context.Background())
		v.end, v.added = cancel, make(chan record.Caller, maxVisits)
		v.work.Go(func() { v.watch(ctx, v.added) })
	}
	if added != (record.Caller{}) {
		select {
		case v.added <- added:
		default: // the next start of the server finds it
		}
	}
}

// visit begins a workspace at a tick for a terminal. It is removed when its terminals have ended and nothing was changed.
func (h *timelineActions) visit(c *route.Call, s workspace.Workspace, t *timeline.Tick, _ record.Run) error {
	at, err := commitOf(t)
	if err != nil {
		return err
	}
	r, err := h.workspaces.Create(c.R.Context(), c.Who,
		workspace.Wish{Key: visitKey + strings.ToLower(rand.Text()[:12]), From: s.ID, Commit: at})
	if err != nil {
		return err
	}
	h.visits.beginWatch(r.Caller)
	return see(c, workspacePath(r.Caller.Slug())+"?pane="+paneShell)
}

// isVisit reports whether a caller with these runs, the oldest first, is a visit.
func isVisit(runs []record.Run) bool { return len(runs) > 0 && strings.HasPrefix(runs[0].ID, visitKey) }

// watch removes visits that are over. It begins with those that an earlier server left.
func (v *visits) watch(ctx context.Context, added <-chan record.Caller) {
	open := map[record.Caller]bool{}
	runs, err := v.executor.Runs(ctx, record.Filter{Max: maxVisits,
		Keep: func(r record.Run) bool { return strings.HasPrefix(r.ID, visitKey) }})
	if err != nil {
		v.log.Warn("cannot list visits", "err", err)
	}
	for _, r := range runs {
		open[r.Caller] = true
	}
	every := time.NewTicker(visitsEvery)
	defer every.Stop()
	for {
		for c := range open {
			ended, err := v.endVisit(ctx, c)
			if err != nil && ctx.Err() == nil {
				v.log.Warn("cannot end a visit", "caller", c, "err", err)
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
func (v *visits) endVisit(ctx context.Context, c record.Caller) (ended bool, err error) {
	runs := v.executor.OfCaller(c)
	if !isVisit(runs) {
		return true, nil
	}
	st, err := v.executor.Caller(ctx, c.String())
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
	if !used && v.now().Sub(first.CreatedAt) < visitUnused {
		return false, nil
	}
	_, err = v.executor.Remove(ctx, c.String(), first.Asker)
	return err == nil, err
}
