package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/gitd"
)

// Executor claims, begins and follows runs.
type Executor interface {
	Claim(ctx context.Context, r record.Request) (run record.Run, fresh bool, err error)
	Begin(ctx context.Context, run string, r record.Request) (record.Run, error)
	End(ctx context.Context, run string, e executor.Ending) (record.Run, error)
	Note(ctx context.Context, run string, e record.Event) error
	Tell(ctx context.Context, run string, data json.RawMessage) error
	Find(c record.Caller, id string) (record.Run, bool)
	Settled(ctx context.Context, c record.Caller, id string) (record.Run, error)
	Untold(ctx context.Context) ([]record.Run, error)
	Watch(ctx context.Context, caller string) iter.Seq2[record.Event, error]
}

// Task is a task that a trigger submits to the engineer.
type Task struct {
	// Key makes the submission idempotent.
	Key                                     string
	Description, Context, Repo, Base, Agent string
	Asker                                   gitd.Person
}

// Tasks takes tasks.
type Tasks interface {
	Submit(ctx context.Context, t Task) (record.Task, error)
	Task(ctx context.Context, id string) (record.Task, error)
}

// Branches lists the branches of repositories.
type Branches interface {
	// Tips returns the tips of all branches of a repository, by name.
	Tips(ctx context.Context, repo string) (map[string]gitd.Hash, error)
	// MadeBy returns the caller that a commit is the work of, as its trailers name it. Returns "" if it names none.
	MadeBy(ctx context.Context, repo string, commit gitd.Hash) (string, error)
}

// Triggers starts the work of triggers. The exported fields are options and may be changed until Open is called.
// Methods are safe for concurrent use.
type Triggers struct {
	List     []Trigger
	Executor Executor
	// Tasks takes the tasks. If it is nil, triggers with tasks fail.
	Tasks    Tasks
	Branches Branches
	// Upstream returns the repository at a forge of a local one. If it is nil, none is at a forge.
	Upstream func(repo string) (forge.Repo, bool)
	Dir      string // of the files of states; Open makes it
	// Look is how often branches are compared with their last seen tips. The default is 2 s.
	Look time.Duration
	Log  *slog.Logger
	Now  func() time.Time
	// Sleep waits, or returns the cause of ctx's end. The default uses a timer.
	Sleep func(ctx context.Context, d time.Duration) error

	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
	heard   chan struct{} // limits how many webhooks are read at the same time
	order   []string
	entries map[string]*entry // by name; not changed after Open

	mu       sync.Mutex // guards the fields below
	closed   bool
	followed map[string]chan struct{} // runs by name, with a channel that is closed once the run has begun
}

// maxHeard limits how many webhooks are read at the same time, because anybody may send a body before its signature
// can be checked. Further webhooks wait.
const maxHeard = 8

// source is the source of the origin of a trigger's runs.
const source = record.SourceTrigger

// Open reads the states, continues the work that an earlier process left, and begins to wait for events.
func (t *Triggers) Open(ctx context.Context) error {
	if t.Log == nil {
		t.Log = slog.New(slog.DiscardHandler)
	}
	if t.Now == nil {
		t.Now = time.Now
	}
	if t.Sleep == nil {
		t.Sleep = retry.Sleep
	}
	if t.Look <= 0 {
		t.Look = 2 * time.Second
	}
	if err := os.MkdirAll(t.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of triggers: %w", err)
	}
	t.ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	t.heard = make(chan struct{}, maxHeard)
	t.entries, t.followed = make(map[string]*entry), make(map[string]chan struct{})
	for _, one := range t.List {
		if err := one.Check(); err != nil {
			return err
		}
		if t.entries[one.Name] != nil {
			return fmt.Errorf("cannot use trigger %q: there are two of that name", one.Name)
		}
		e, err := openEntry(one, t.Dir, t.Now())
		if err != nil {
			return err
		}
		t.entries[one.Name], t.order = e, append(t.order, one.Name)
	}
	left, err := t.Executor.Untold(ctx)
	if err != nil {
		return err
	}
	for _, run := range left {
		if run.Origin.Source == source {
			t.follow(run)
		}
	}
	pushes := false
	for _, name := range t.order {
		e := t.entries[name]
		if e.Cron != nil {
			t.wg.Go(func() { t.keepTime(t.ctx, e) })
		}
		pushes = pushes || e.Push != nil
	}
	if pushes {
		t.wg.Go(func() { t.watchBranches(t.ctx) })
	}
	return nil
}

// Close stops waiting for events and waits until no work is in progress. The next Open continues the work.
func (t *Triggers) Close() error {
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	t.mu.Unlock()
	if closed || t.stop == nil {
		return nil
	}
	t.stop()
	t.wg.Wait()
	return nil
}

// Reasons for which an event starts nothing.
var (
	// ErrPaused means that the trigger is paused.
	ErrPaused = fmt.Errorf("%w: it is paused", record.ErrConflict)
	// ErrLimit means that the trigger has started enough work for now.
	ErrLimit = errors.New("it has started as much work as its limit allows")
)

// isRefused reports whether a trigger refuses an event.
func isRefused(err error) bool { return errors.Is(err, ErrPaused) || errors.Is(err, ErrLimit) }

// maxActive limits the runs of one trigger that have not ended.
const maxActive = 200

// runKey is the id of the run of an event. Its caller tells events apart.
const runKey = "trigger"

// claimRun claims the run of an event. The run is durable when claimRun returns. known is true if the event was claimed
// before. A person may run a paused trigger.
func (t *Triggers) claimRun(ctx context.Context, e *entry, ev Event) (run record.Run, known bool, err error) {
	e.claiming.Lock()
	defer e.claiming.Unlock()
	caller, err := callerOf(e.Name, ev.Key)
	if err != nil {
		return run, false, err
	}
	if have, ok := t.Executor.Find(caller, runKey); ok {
		return have, true, nil
	}
	if err := t.admit(e, ev); err != nil {
		return run, false, err
	}
	data, err := json.Marshal(ev)
	if err != nil {
		return run, false, err
	}
	run, fresh, err := t.Executor.Claim(ctx,
		record.Request{Key: runKey, Caller: caller, Repo: e.Repo, Base: e.base(ev), Asker: person(e.Name),
			Origin: &record.Origin{Source: source, Session: record.TriggerSession(e.Name), Key: ev.Key, Event: data}})
	if err != nil {
		return run, false, fmt.Errorf("cannot start trigger %s: %w", e.Name, err)
	}
	if !fresh {
		return run, true, nil
	}
	e.mu.Lock()
	e.starts = append(e.starts, t.Now())
	e.mu.Unlock()
	if err := e.change(func(s *state) { s.Run = run.Name() }); err != nil {
		t.Log.Error("the list of triggers will not show the last run", "trigger", e.Name, "err", err)
	}
	t.Log.Info("a trigger has fired", "trigger", e.Name, "kind", ev.Kind, "run", run.Name())
	t.follow(run)
	return run, false, nil
}

// base returns the branch that the work of an event begins from. It is empty for the base of the repository.
func (e *entry) base(ev Event) string {
	if e.Base != "" {
		return e.Base
	}
	return ev.Base
}

// admit returns an error if the trigger starts nothing now.
func (t *Triggers) admit(e *entry, ev Event) error {
	if ev.Kind == KindPerson {
		return nil
	}
	s, active := e.snapshot()
	err := ErrLimit
	switch {
	case !s.Paused.IsZero():
		err = ErrPaused
	case active < maxActive && e.started(t.Now()) < e.limit():
		return nil
	}
	e.mu.Lock()
	e.refused++
	e.mu.Unlock()
	t.Log.Debug("a trigger refuses an event", "trigger", e.Name, "kind", ev.Kind, "err", err)
	return fmt.Errorf("trigger %s: %w", e.Name, err)
}

// started returns how much work the trigger has started in the hour before now.
func (e *entry) started(now time.Time) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.starts) > 0 && now.Sub(e.starts[0]) >= time.Hour {
		e.starts = e.starts[1:]
	}
	return len(e.starts)
}

// named returns the trigger with a name.
func (t *Triggers) named(name string) (*entry, error) {
	if e := t.entries[name]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("trigger %.100q: %w; `ramus trigger ls` shows them", name, record.ErrNotFound)
}

// Run starts the work of a trigger at the request of a person, with further values. A second call with the same key
// returns the run of the first. It works for a paused trigger too.
func (t *Triggers) Run(ctx context.Context, name, key string, values map[string]any, by gitd.Person) (record.Run, error) {
	e, err := t.named(name)
	if err != nil {
		return record.Run{}, err
	}
	if key == "" {
		key = record.NewToken()
	}
	if len(key) > maxID {
		return record.Run{}, fmt.Errorf("%w key: it has more than %d bytes", record.ErrInvalid, maxID)
	}
	f := fields{}
	if b, err := json.Marshal(values); err == nil && len(values) > 0 {
		if f, err = parseFields(b); err != nil {
			return record.Run{}, fmt.Errorf("%w values: %w", record.ErrInvalid, err)
		}
	}
	ev := Event{Kind: KindPerson, Key: "person " + key, Title: "by " + by.Name, Time: t.Now().UTC()}.fill(&e.Trigger, f)
	for input := range f {
		if v, ok := f.value(input); ok && e.Workflow != "" {
			ev.Values[input] = v
		}
	}
	run, _, err := t.claimRun(ctx, e, ev)
	if err != nil {
		return run, err
	}
	return t.awaitBegin(ctx, run), nil
}

// beginMay limits the wait for the work of a person's event to begin, so that the person can follow it.
const beginMay = 10 * time.Second

// awaitBegin returns a run once it has begun or ended, or after [beginMay] as it is.
func (t *Triggers) awaitBegin(ctx context.Context, run record.Run) record.Run {
	t.mu.Lock()
	begun := t.followed[run.Name()]
	t.mu.Unlock()
	if begun != nil {
		ctx, cancel := context.WithTimeout(ctx, beginMay)
		defer cancel()
		select {
		case <-begun:
		case <-ctx.Done():
		}
	}
	if now, ok := t.Executor.Find(run.Caller, run.ID); ok {
		return now
	}
	return run
}

// Resume lets a paused trigger start work again, and forgets its failures.
func (t *Triggers) Resume(name string) (Status, error) {
	e, err := t.named(name)
	if err != nil {
		return Status{}, err
	}
	err = e.change(func(s *state) { s.Paused, s.Failures, s.Why = time.Time{}, 0, "" })
	e.mu.Lock()
	e.refused = 0
	e.mu.Unlock()
	return t.status(e), err
}

// Pause has a trigger start nothing until it is resumed.
func (t *Triggers) Pause(name string) (Status, error) {
	e, err := t.named(name)
	if err != nil {
		return Status{}, err
	}
	err = e.change(func(s *state) {
		if s.Paused.IsZero() {
			s.Paused = t.Now().UTC()
		}
	})
	return t.status(e), err
}

// Status is a trigger as lists show it.
type Status struct {
	Name  string `json:"name"`
	Repo  string `json:"repo"`
	Cause string `json:"cause"`
	Work  string `json:"work"`
	// Paused is the time since which it starts nothing. It is zero if it is not paused.
	Paused   time.Time `json:"paused,omitzero"`
	Failures int       `json:"failures,omitempty"` // the latest runs that failed, one after another
	Why      string    `json:"why,omitempty"`      // the error of the last of them
	Next     time.Time `json:"next,omitzero"`      // of a schedule
	Active   int       `json:"active,omitempty"`   // runs that have not ended
	Refused  int64     `json:"refused,omitempty"`  // events since the start of the server that started nothing
	// Last is the last run. It is nil if there is none, or if it was removed.
	Last *record.Run `json:"last,omitempty"`
}

// Statuses returns all triggers for which keep returns true, by name. A nil keep keeps all.
func (t *Triggers) Statuses(keep func(Status) bool) []Status {
	list := []Status{}
	for _, name := range t.order {
		if s := t.status(t.entries[name]); keep == nil || keep(s) {
			list = append(list, s)
		}
	}
	return list
}

func (t *Triggers) status(e *entry) Status {
	s, active := e.snapshot()
	e.mu.Lock()
	refused := e.refused
	e.mu.Unlock()
	out := Status{Name: e.Name, Repo: e.Repo, Cause: e.Cause(), Work: oneLine(e.Work()), Paused: s.Paused,
		Failures: s.Failures, Why: s.Why,
		Active: active, Refused: refused}
	if e.Cron != nil && s.Paused.IsZero() {
		out.Next = e.Cron.Next(t.Now())
	}
	name, id, _ := strings.Cut(s.Run, "/")
	if caller, err := record.ParseCaller(name); err == nil {
		if run, known := t.Executor.Find(caller, id); known {
			out.Last = &run
		}
	}
	return out
}
