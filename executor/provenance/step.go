package provenance

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// task is the task that a caller works for. It is zero if the caller has none.
type task = record.Task

// taskRun is the id of the run of a caller that has the record of its task.
const taskRun = "task"

// step is a step of a run, as the journal has it.
type step struct {
	run    record.Run
	events []record.Event
	began  record.Event // zero if its beginning was not journalled
	ended  record.Event // zero while it works
	was    gitd.Hash    // the commit that it made, if the asked one is a copy
	inside bool         // the command made the asked commit by itself
	until  int          // number of events up to its beginning, with it
}

// addStep adds the step that made the commit of a cause.
func (s *search) addStep(ctx context.Context, c *Cause) error {
	var err error
	if c.Squashes, err = s.through(ctx, c.Commit); err != nil {
		return err
	}
	st, err := s.findStep(ctx, c)
	if err != nil || st == nil {
		return err
	}
	r := st.run
	c.Run, c.Kind, c.Branch, c.Person, c.Pull = r.Name(), r.Kind, r.Branch, r.Asker, r.Pull
	c.Was, c.Inside = st.was, st.inside
	for _, e := range []record.Event{st.began, st.ended} {
		if e.Type == "" {
			continue
		}
		c.Step, c.Time = e.Step, e.Time
		for _, field := range []struct {
			into *string
			from string
		}{{&c.Node, e.Node}, {&c.Command, e.Command}, {&c.Task, e.Task}, {&c.Reason, e.Reason}} {
			if field.from != "" {
				*field.into = field.from
			}
		}
	}
	c.Exit, c.DurationMS = st.ended.Exit, st.ended.DurationMS
	if r.Origin != nil {
		c.Origin = &record.Origin{Source: r.Origin.Source, Session: r.Origin.Session, Key: r.Origin.Key}
	}
	s.addTask(c, r.Caller)
	if r.Agent != nil {
		c.Agent, c.Prompts = r.Agent.Name, st.prompts()
	}
	if s.q.Brief {
		return nil
	}
	c.Stdout, c.Stderr = end(st.ended.Stdout), end(st.ended.Stderr)
	c.Checks, err = s.checksAfter(ctx, st)
	return err
}

// end returns the end of a stream.
func end(stream *record.Stream) string {
	if stream == nil {
		return ""
	}
	return text.ClipEnd(stream.Tail, maxOutput)
}

// addTask adds the issue and the pull request of the task that a caller works for.
func (s *search) addTask(c *Cause, caller record.Caller) {
	t, have := s.tasks[caller]
	if !have {
		if r, known := s.reader.Runs.Find(caller, taskRun); known && s.q.Sees(r) {
			_ = json.Unmarshal(r.Record, &t) // of a broken record nothing is known
		}
		s.tasks[caller] = t
	}
	if t.Ticket != (record.Ticket{}) {
		c.Ticket = &t.Ticket
	}
	if t.PRNumber != 0 && c.Pull == nil {
		c.Pull = &record.Pull{Number: t.PRNumber, URL: t.PRURL, Branch: t.Base}
	}
}

// findStep returns the step that made the commit of a cause, or nil.
func (s *search) findStep(ctx context.Context, c *Cause) (*step, error) {
	commit := s.commits[c.Commit]
	name, id := commit.Trailer(record.TrailerCaller), commit.Trailer(record.TrailerRun)
	if name == "" || id == "" || commit.Trailer(record.TrailerStep) == "" {
		if len(commit.Parents) > 1 || s.grafts[c.Commit] != nil {
			return nil, nil // a merge
		}
		return s.insideStep(ctx, commit)
	}
	caller, err := record.ParseCaller(name)
	if err != nil || !record.ValidID(id) {
		c.Claimed = text.OneLine(name+"/"+id, 200)
		return nil, nil
	}
	r, known := s.reader.Runs.Find(caller, id)
	if known && s.q.Sees(r) {
		st, err := s.madeBy(ctx, r, commit)
		if err != nil || st != nil {
			return st, err
		}
	}
	c.Claimed = caller.String() + "/" + id
	return nil, nil
}

// madeBy returns the step of a run that made a commit, or nil if the journal has none.
func (s *search) madeBy(ctx context.Context, r record.Run, commit gitd.Commit) (*step, error) {
	events, err := s.events(ctx, r)
	if err != nil {
		return nil, err
	}
	name, open := commit.Trailer(record.TrailerStep), true
	for _, e := range slices.Backward(events) {
		if e.Step != name || e.Type != record.EventStepFinished && e.Type != record.EventStepStarted {
			continue
		}
		working := open && e.Type == record.EventStepStarted
		open = false
		if working {
			// It works, or its server ended. The branch has the commit then.
			on, err := s.onBranch(ctx, r, e.Parent, commit.Hash)
			if err != nil || !on {
				return nil, err
			}
			return newStep(r, events, e, record.Event{}), nil
		}
		if e.Type == record.EventStepStarted {
			continue
		}
		for _, made := range s.commitsOf(r, e) {
			if made == commit.Hash {
				return newStep(r, events, beginning(events, e), e), nil
			}
			same, err := s.q.Repo.IsCopy(ctx, commit.Hash, made)
			if err != nil && !errors.Is(err, gitd.ErrNotFound) {
				return nil, err
			}
			if same {
				st := newStep(r, events, beginning(events, e), e)
				st.was = made
				return st, nil
			}
		}
	}
	return nil, nil
}

// onBranch reports whether the branch of a run has a commit that it had not when a step began, at parent.
func (s *search) onBranch(ctx context.Context, r record.Run, parent, commit gitd.Hash) (bool, error) {
	if r.Repo != s.q.Repo.Name() || parent == "" {
		return false, nil
	}
	tip, err := s.q.Repo.Resolve(ctx, "refs/heads/"+r.Branch)
	if errors.Is(err, gitd.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return s.between(ctx, parent, commit, tip)
}

// commitsOf returns the commits that a step made in the repository of the question.
func (s *search) commitsOf(r record.Run, e record.Event) (list []gitd.Hash) {
	if r.Repo == s.q.Repo.Name() && e.Commit != "" {
		list = append(list, e.Commit)
	}
	for _, m := range e.With {
		if m.Repo == s.q.Repo.Name() && m.Commit != "" {
			list = append(list, m.Commit)
		}
	}
	return list
}

// clockSkew is how much the clock of a container may differ from the server's, for commits that commands made
// themselves.
const clockSkew = 5 * time.Minute

// insideStep returns the step whose command made a commit by itself, or nil. Such a commit is between the branch before
// the step and after it.
func (s *search) insideStep(ctx context.Context, commit gitd.Commit) (*step, error) {
	if s.foreign++; s.foreign > maxForeign {
		return nil, nil
	}
	runs, err := s.changing(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if commit.When.Before(r.CreatedAt.Add(-clockSkew)) ||
			!r.EndedAt.IsZero() && commit.When.After(r.EndedAt.Add(clockSkew)) {
			continue
		}
		if in, err := s.between(ctx, r.Start, commit.Hash, r.Head); err != nil {
			return nil, err
		} else if !in {
			continue
		}
		events, err := s.events(ctx, r)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if e.Type != record.EventStepFinished || e.Parent == "" && beginning(events, e).Parent == "" {
				continue
			}
			began := beginning(events, e)
			before := e.Parent
			if before == "" {
				before = began.Parent
			}
			for _, made := range s.commitsOf(r, e) {
				in, err := s.between(ctx, before, commit.Hash, made)
				if err != nil {
					return nil, err
				}
				if in {
					st := newStep(r, events, began, e)
					st.inside = true
					return st, nil
				}
			}
		}
	}
	return nil, nil
}

// between reports whether the history of after has a commit, and that of before has not.
func (s *search) between(ctx context.Context, before, commit, after gitd.Hash) (bool, error) {
	in, err := s.q.Repo.Descends(ctx, after, commit)
	if errors.Is(err, gitd.ErrNotFound) || err == nil && !in {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	old, err := s.q.Repo.Descends(ctx, before, commit)
	if errors.Is(err, gitd.ErrNotFound) {
		return false, nil
	}
	return !old, err
}

// beginning returns the beginning of the step that ended with e. Returns the zero Event if there is none.
func beginning(events []record.Event, e record.Event) record.Event {
	for _, b := range slices.Backward(events) {
		if b.Type == record.EventStepStarted && b.Step == e.Step && b.Seq < e.Seq {
			return b
		}
	}
	return record.Event{}
}

func newStep(r record.Run, events []record.Event, began, ended record.Event) *step {
	st := &step{run: r, events: events, began: began, ended: ended}
	st.until = slices.IndexFunc(events, func(e record.Event) bool { return e.Seq == max(began.Seq, 1) }) + 1
	return st
}

// prompts returns the prompts that the agent got with the turn, or with the last turn before a step that is none.
func (st *step) prompts() []Prompt {
	q := st.run.Queue(nil)
	from := 0
	for _, e := range st.events[:st.until] {
		before := q.Heard
		q.Apply(e)
		if q.Heard > before {
			from = before
		}
	}
	var list []Prompt
	for _, p := range q.Prompts[from:max(q.Heard, from)] {
		if len(list) == maxPrompts {
			break
		}
		list = append(list, Prompt{By: p.By.Name, Text: text.Clip(p.Text, maxPrompt)})
	}
	return list
}

// checksAfter returns the checks that ran after a step, in its run and in later ones of the caller.
func (s *search) checksAfter(ctx context.Context, st *step) ([]Check, error) {
	list := checksIn(st.run, st.events, max(st.began.Seq, st.ended.Seq))
	later := s.reader.Runs.OfCaller(st.run.Caller)
	at := slices.IndexFunc(later, func(r record.Run) bool { return r.ID == st.run.ID && r.Repo == st.run.Repo })
	later = later[at+1:]
	for _, r := range later[:min(len(later), maxLater)] {
		if len(list) >= maxChecks {
			break
		}
		if r.Passive() || !s.q.Sees(r) {
			continue
		}
		events, err := s.events(ctx, r)
		if err != nil {
			return nil, err
		}
		list = append(list, checksIn(r, events, 0)...)
	}
	return list[:min(len(list), maxChecks)], nil
}

// checksIn returns the checks of a run that began after an event. A check that was skipped has no beginning, and has
// the place of its event.
func checksIn(r record.Run, events []record.Event, after int64) (list []Check) {
	last := map[string]int64{} // the last event of a step
	for _, e := range events {
		if e.Type == record.EventStepStarted || e.Type == record.EventCheck {
			last[e.Step] = e.Seq
		}
	}
	for _, c := range record.NewManifest(r, "", events, nil).Checks {
		if last[c.Step] > after {
			list = append(list, Check{Run: r.Name(), ManifestCheck: c})
		}
	}
	return list
}
