package runs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/ramus-dev/ramus/executor/archive"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Events follows a run from after a sequence number. It yields the journal's events, then the output so far of steps that began
// after that number and are at work, then new events and live output, until the run has ended or waits for a person, or ctx ends.
// Without follow it stops at the journal's end.
func (rd *Reader) Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error] {
	return rd.events(ctx, run, after, record.Span{}, follow)
}

// EventsFrom is Events with follow, for a reader that has the standard output of the step that began with have.Seq up to the byte
// have.To. The next output of that step begins there, or later. [Reader.Words] reads the words between the two.
func (rd *Reader) EventsFrom(ctx context.Context, run string, after int64, have record.Span) iter.Seq2[record.Event, error] {
	return rd.events(ctx, run, after, have, true)
}

func (rd *Reader) events(ctx context.Context, run string, after int64, have record.Span, follow bool) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		r, err := rd.Run(ctx, run)
		if err != nil {
			yield(record.Event{}, err)
			return
		}
		l := rd.Live.AtWork(r.Caller, r.ID)
		if l == nil {
			events, err := rd.sealedEvents(ctx, r)
			if err != nil {
				yield(record.Event{}, err)
				return
			}
			for _, e := range events {
				if e.Seq > after && !yield(e, nil) {
					return
				}
			}
			return
		}
		if !follow {
			for _, e := range l.Journalled() {
				if e.Seq > after && !yield(e, nil) {
					return
				}
			}
			return
		}
		f := l.Follow(after, have)
		defer l.Unfollow(f)
		for e := range f.Events(ctx) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// sealedEvents returns the journal of a run that is not at work here.
func (rd *Reader) sealedEvents(ctx context.Context, r record.Run) ([]record.Event, error) {
	repo, err := rd.Git.Repo(r.Repo)
	if err != nil {
		return nil, err
	}
	text, err := repo.ReadFile(ctx, record.RunRef(r.Caller, r.ID), archive.JournalFile, 1<<30)
	if errors.Is(err, gitd.ErrNotFound) {
		// It is not sealed, because the server that worked on it ended. Its journal is in live/.
		text, err = os.ReadFile(rd.Folder.Journal(r))
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal of %s: %w", r.Name(), err)
	}
	return record.ParseJournal(text)
}

// Watch follows the events of every run from now on, or of every run of one caller.
func (rd *Reader) Watch(ctx context.Context, caller string) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		var c record.Caller
		if caller != "" {
			status, err := rd.Caller(ctx, caller)
			if err != nil {
				yield(record.Event{}, err)
				return
			}
			c = status.Caller
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(rd.Context, cancel)()
		f := rd.Folder.Watch(c)
		defer rd.Folder.Unwatch(f)
		for e := range f.Events(ctx) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Queue returns the prompts of a run's agent, those that it has got and those that wait.
func (rd *Reader) Queue(ctx context.Context, run string) (record.Queue, error) {
	r, err := rd.AgentRun(ctx, run)
	if err != nil {
		return record.Queue{}, fmt.Errorf("cannot read what was said to %s: %w", run, err)
	}
	if l := rd.Live.AtWork(r.Caller, r.ID); l != nil {
		return r.Queue(l.Journalled()), nil
	}
	events, err := rd.sealedEvents(ctx, r)
	return r.Queue(events), err
}

// AgentRun returns a run by its name. The error is ErrConflict if it is not an agent's.
func (rd *Reader) AgentRun(ctx context.Context, run string) (record.Run, error) {
	r, err := rd.Run(ctx, run)
	if err == nil && (r.Kind != record.KindAgent || r.Agent == nil) {
		err = fmt.Errorf("%w: it is no agent's run", record.ErrConflict)
	}
	return r, err
}

// AllEvents returns the journal of a run as it is now.
func (rd *Reader) AllEvents(ctx context.Context, run string) (events []record.Event, err error) {
	for e, err := range rd.Events(ctx, run, 0, false) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}
