package executor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// Queue returns the prompts of a run's agent, those that it has got and those that wait.
func (x *Executor) Queue(ctx context.Context, run string) (record.Queue, error) {
	r, err := x.Run(ctx, run)
	if err != nil {
		return record.Queue{}, err
	}
	if r.Kind != record.KindAgent || r.Agent == nil {
		return record.Queue{}, fmt.Errorf("%w: %s is no agent's run", record.ErrConflict, r.Name())
	}
	if l := x.runs.alive(r.Caller, r.ID); l != nil {
		return r.Queue(l.Journalled()), nil
	}
	events, err := x.sealedEvents(ctx, r)
	return r.Queue(events), err
}

// Unsay takes back a prompt that the run's agent has not got, and returns it. That is durable when Unsay returns. The error is
// ErrConflict if the agent has the prompt already. A prompt that was taken back before is not an error.
func (x *Executor) Unsay(ctx context.Context, run, key string, by gitd.Person) (p record.Prompt, err error) {
	err = x.changeQueue(ctx, run, func(l *liveRun, q record.Queue) error {
		var open bool
		if p, open, err = findWaiting(q, key); err != nil || !open {
			if err != nil && l.saidLocked(key) {
				err = nil // taken back before
			}
			return err
		}
		return l.changed(record.QueueUnsaid, "took back", record.QueueChange{Key: key, By: by})
	})
	if err != nil {
		return record.Prompt{}, fmt.Errorf("cannot take back what was said to %s: %w", run, err)
	}
	return p, nil
}

// Resay replaces the text of a prompt that the run's agent has not got. It is said by the person who changed it from then on. See
// [Executor.Unsay] for errors.
func (x *Executor) Resay(ctx context.Context, run, key, words string, by gitd.Person) error {
	err := x.changeQueue(ctx, run, func(l *liveRun, q record.Queue) error {
		p, _, err := findWaiting(q, key)
		if err != nil {
			return err
		}
		if err := x.options().Agents[l.Initial.Agent.Name].Accepts(words, nil); err != nil {
			return err
		}
		if words = x.Secrets.String(words); words == p.Text {
			return nil
		}
		return l.changed(record.QueueEdited, "changed", record.QueueChange{Key: key, Text: words, By: by})
	})
	if err != nil {
		return fmt.Errorf("cannot change what was said to %s: %w", run, err)
	}
	return nil
}

// Reorder puts the prompts that wait into the order of their keys. Prompts whose keys are missing keep their places.
func (x *Executor) Reorder(ctx context.Context, run string, keys []string, by gitd.Person) error {
	err := x.changeQueue(ctx, run, func(l *liveRun, q record.Queue) error {
		if len(keys) > maxUnheard {
			return fmt.Errorf("%w order: it has %d prompts, at most %d can wait", record.ErrInvalid, len(keys), maxUnheard)
		}
		for i, key := range keys {
			if _, _, err := findWaiting(q, key); err != nil {
				return err
			}
			if slices.Contains(keys[:i], key) {
				return fmt.Errorf("%w order: %q is there twice", record.ErrInvalid, text.Clip(key, 100))
			}
		}
		return l.changed(record.QueueOrdered, "reordered", record.QueueChange{Order: keys, By: by})
	})
	if err != nil {
		return fmt.Errorf("cannot reorder what was said to %s: %w", run, err)
	}
	return nil
}

// changeQueue calls f with the prompts of a run at work, while nobody else changes them.
func (x *Executor) changeQueue(ctx context.Context, run string, f func(*liveRun, record.Queue) error) error {
	r, err := x.Run(ctx, run)
	if err != nil {
		return err
	}
	if r.Kind != record.KindAgent || r.Agent == nil {
		return fmt.Errorf("%w: it is no agent's run", record.ErrConflict)
	}
	l := x.runs.alive(r.Caller, r.ID)
	if l == nil {
		return errOver
	}
	l.Lock()
	defer l.Unlock()
	if l.OverLocked() {
		return errOver
	}
	return f(l, r.Queue(l.EventsLocked()))
}

// findWaiting returns a prompt that waits. waits is false together with the error if there is none.
func findWaiting(q record.Queue, key string) (p record.Prompt, waits bool, err error) {
	at := q.Index(key)
	switch {
	case at < 0:
		return p, false, fmt.Errorf("prompt %q: %w", text.Clip(key, 100), record.ErrNotFound)
	case key == record.FirstPrompt:
		return p, false, fmt.Errorf("%w: the run is about its first prompt; stop the run instead", record.ErrConflict)
	case at < q.Heard:
		return p, false, fmt.Errorf("%w: the agent has it already", record.ErrConflict)
	}
	return q.Prompts[at], true, nil
}

// changed journals a change of the prompts that wait. mu is held.
func (l *liveRun) changed(kind, verb string, c record.QueueChange) error {
	c = redact.Clean(l.x.Secrets, c)
	words := strings.TrimSpace(c.By.Name + " " + verb)
	return l.EmitLocked(record.Event{Type: record.EventQueue, Kind: kind, Message: text.Clip(words, maxTitle),
		Data: record.Marshal(c)}, true)
}
