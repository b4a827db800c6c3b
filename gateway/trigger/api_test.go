package trigger

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// TestAPI lists, runs, pauses and resumes triggers.
func TestAPI(t *testing.T) {
	x := newFake()
	x.endAs(complete)
	one := scheduled(t, "0 0 1 1 *")
	all := open(t, x, t.TempDir(), one)
	defer all.Close()
	hidden := route.Who{Subject: "run:x", Repo: "app", Scopes: []string{gitd.ScopeRead}, Read: []string{"refs/heads/main"}}
	elsewhere := route.Who{Subject: "lib", Repo: "lib", Scopes: []string{gitd.ScopeRead}}
	for _, c := range []struct {
		name         string
		api          *API
		who          route.Who
		method, path string
		body         string
		status       int
		want         string
	}{
		{"none", &API{}, route.Local, "GET", "/api/triggers", "", 409, "in a server alone"},
		{"run of none", &API{}, route.Local, "POST", "/api/triggers/nightly/run", "{}", 409, "in a server alone"},
		{"pause of none", &API{}, route.Local, "POST", "/api/triggers/nightly/pause", "", 409, "in a server alone"},
		{"resume of none", &API{}, route.Local, "POST", "/api/triggers/nightly/resume", "", 409, "in a server alone"},
		{"hook of none", &API{}, route.Local, "POST", "/hooks/nightly", "{}", 401, ""},
		{"list", &API{Triggers: all}, route.Local, "GET", "/api/triggers", "", 200, `"nightly"`},
		{"list of another repository", &API{Triggers: all}, elsewhere, "GET", "/api/triggers", "", 200, "[]"},
		{"list of a token for some branches", &API{Triggers: all}, hidden, "GET", "/api/triggers", "", 200, "[]"},
		{"pause", &API{Triggers: all}, route.Local, "POST", "/api/triggers/nightly/pause", "", 200, `"paused"`},
		{"resume", &API{Triggers: all}, route.Local, "POST", "/api/triggers/nightly/resume", "", 200, `"nightly"`},
		{"run", &API{Triggers: all}, route.Local, "POST", "/api/triggers/nightly/run", `{"key":"k"}`, 201, `"workflow"`},
		{"unknown run", &API{Triggers: all}, route.Local, "POST", "/api/triggers/x/run", `{}`, 404, ""},
		{"unknown pause", &API{Triggers: all}, route.Local, "POST", "/api/triggers/x/pause", ``, 404, ""},
		{"unknown resume", &API{Triggers: all}, route.Local, "POST", "/api/triggers/x/resume", ``, 404, ""},
		{"broken run", &API{Triggers: all}, route.Local, "POST", "/api/triggers/nightly/run", `{`, 400, ""},
		{"hook of a schedule", &API{Triggers: all}, route.Local, "POST", "/hooks/nightly", "{}", 401, ""},
	} {
		mux := &route.Mux{}
		rec, r := httptest.NewRecorder(), httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		mux.Handler(c.api.Routes(), &c.who).ServeHTTP(rec, r)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.want) ||
			rec.Code == http.StatusOK && c.want == "[]" && strings.TrimSpace(rec.Body.String()) != "[]" {
			t.Errorf("%s: %d %s, want %d %s", c.name, rec.Code, rec.Body, c.status, c.want)
		}
	}
	x.settle(t)
	if got := x.names(); len(got) != 1 {
		t.Errorf("runs: %q", got)
	}
}

// log keeps the messages of faults.
type log struct {
	slog.Handler
	mu   sync.Mutex // guards text
	text []string
}

func newLog() *log { return &log{Handler: slog.DiscardHandler} }

func (l *log) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (l *log) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, r.Message)
	return nil
}

// lost is a repository whose branches cannot be read while down is set.
type lost struct {
	repo
	down  bool
	looks int
}

func (r *lost) Tips(ctx context.Context, name string) (map[string]gitd.Hash, error) {
	r.mu.Lock()
	down := r.down
	r.looks++
	r.mu.Unlock()
	if down {
		return nil, errors.New("the disk is gone")
	}
	return r.repo.Tips(ctx, name)
}

// TestBranchesAway says once that branches cannot be read, and goes on when they can.
func TestBranchesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, r, l := newFake(), &lost{repo: repo{tips: map[string]gitd.Hash{"main": "a"}}, down: true}, newLog()
		x.endAs(complete)
		all := &Triggers{Executor: x, Branches: r, Dir: t.TempDir(), Log: slog.New(l),
			List: []Trigger{{Name: "pushed", Repo: "app", Push: &Push{Branches: []string{"v*"}}, Workflow: "w"}}}
		if err := all.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		pass := func(down bool, faults int) {
			t.Helper()
			r.mu.Lock()
			r.down, r.looks = down, 0
			r.mu.Unlock()
			time.Sleep(time.Hour)
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(l.text) != faults || r.looks < 2 {
				t.Errorf("after %d looks the log has %q, want %d faults", r.looks, l.text, faults)
			}
		}
		pass(true, 1)
		pass(false, 1)
		// A trigger without a branch remembers that, so that its first branch is news.
		r.move("v1", "b")
		pass(false, 1)
		if got := x.names(); len(got) != 1 || x.began[got[0]].Base != "v1" {
			t.Errorf("pushes started %q", got)
		}
		pass(true, 2)
	})
}

// busy is an executor that cannot claim runs at first, and that tells of the states of runs.
type busy struct {
	*fake
	refusals int
	events   chan record.Event
}

func (b *busy) Claim(ctx context.Context, r record.Request) (record.Run, bool, error) {
	b.mu.Lock()
	b.refusals--
	refused := b.refusals >= 0
	b.mu.Unlock()
	if refused {
		return record.Run{}, false, errors.New("the disk is full")
	}
	return b.fake.Claim(ctx, r)
}

func (b *busy) Watch(ctx context.Context, _ string) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for {
			select {
			case e := <-b.events:
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				yield(record.Event{}, ctx.Err())
				return
			}
		}
	}
}

// TestScheduleTriesAgain says that the work of a schedule could not start, and starts it later.
func TestScheduleTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, l := &busy{fake: newFake(), refusals: 2}, newLog()
		x.endAs(complete)
		all := &Triggers{Executor: x, Branches: noBranches{}, Dir: t.TempDir(), Log: slog.New(l), List: []Trigger{scheduled(t, "*/10 * * * *")}}
		if err := all.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		all.Close()
		if got := x.names(); len(got) != 1 {
			t.Errorf("runs: %q", got)
		}
		if len(l.text) != 2 || !strings.Contains(l.text[0], "cannot start the work of a schedule") {
			t.Errorf("log: %q", l.text)
		}
	})
}

// TestReview goes on with a run that waited for a person at once, when it hears of the run's state.
func TestReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &busy{fake: newFake(), events: make(chan record.Event)}
		x.endAs(func(record.Request) (record.State, record.Reason, string) { return record.StateAwaitingReview, "", "" })
		all := &Triggers{Executor: x, Branches: noBranches{}, Dir: t.TempDir(), List: []Trigger{scheduled(t, "0 0 1 1 *")}}
		if err := all.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		run, err := all.Run(t.Context(), "nightly", "k", nil, gitd.Person{Name: "Ada", Email: "ada@example.org"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begin := time.Now()
		x.state(run.Name(), record.StateComplete)
		x.events <- record.Event{Type: record.EventRunState}
		x.settle(t)
		if late := time.Since(begin); late > 0 {
			t.Errorf("the end of the run was noticed %v late", late)
		}
	})
}

// TestOutcome decides which ends of runs and tasks are failures.
func TestOutcome(t *testing.T) {
	task := map[string]any{outputTask: "0123456789abcdef"}
	for name, c := range map[string]struct {
		run    record.Run
		tasks  Tasks
		failed bool
		why    string
	}{
		"complete":             {record.Run{State: record.StateComplete}, nil, false, ""},
		"failed":               {record.Run{State: record.StateFailed, Error: "no"}, nil, true, "no"},
		"stopped":              {record.Run{State: record.StateFailed, Reason: record.ReasonCancelled, Error: "stopped"}, nil, false, "stopped"},
		"task":                 {record.Run{State: record.StateComplete, Output: task}, &tasks{end: record.StateFailed}, true, "no luck"},
		"task without tasks":   {record.Run{State: record.StateComplete, Output: task}, nil, false, ""},
		"task that is unknown": {record.Run{State: record.StateComplete, Output: task}, &tasks{}, false, ""},
	} {
		all := &Triggers{Tasks: c.tasks}
		if failed, why, err := all.outcome(t.Context(), c.run); failed != c.failed || why != c.why || err != nil {
			t.Errorf("%s: %t %q, %v; want %t %q", name, failed, why, err, c.failed, c.why)
		}
	}
}
