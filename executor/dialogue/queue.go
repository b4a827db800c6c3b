package dialogue

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of the prompts of a run's agent.
const (
	// Prompts that wait are given together, as far as they fit into one turn.
	maxTurnText = 1 << 20
	maxUnheard  = 100 // prompts
	maxWords    = 500 // bytes of the message of an event
)

// ErrOver is the error of a run that takes no more prompts.
var ErrOver = fmt.Errorf("%w: its agent has had its last turn; start a new run", record.ErrConflict)

// Say journals a prompt, whose key and texts have no secrets. It holds the lock under which the run's owner decides that
// there is no other turn. The error is ErrOver if there is none. A prompt with the key of an earlier one is not an error.
func (d *Dialogue) Say(p record.Prompt) error {
	given := attachment.Named(p.Files)
	p.Files = attachment.WithoutContent(given)
	files := d.all.Attachments(d.run.Initial)
	dir, discard, err := files.Keep(given)
	defer discard()
	d.run.Lock()
	defer d.run.Unlock()
	if d.saidLocked(p.Key) {
		return nil
	}
	switch {
	case d.run.OverLocked() || d.noPrompts:
		return ErrOver // and its folder may be gone already
	case err != nil:
		return err
	case len(d.waitingLocked()) >= maxUnheard:
		return fmt.Errorf("%w: %d prompts wait for its agent already", record.ErrConflict, maxUnheard)
	}
	if dir != "" {
		if err := files.Place(dir, p.Key); err != nil {
			return err
		}
	}
	return d.run.EmitLocked(record.Event{Type: record.EventPrompt, Message: text.Clip(p.Text, 4<<10),
		Data: record.Marshal(p)}, true)
}

// saidLocked reports whether a prompt with the key was journalled, also if it was taken back. The lock is held.
func (d *Dialogue) saidLocked(key string) bool {
	return slices.ContainsFunc(d.run.EventsLocked(), func(e record.Event) bool {
		before, ok := e.Prompt()
		return ok && before.Key == key
	})
}

// queueLocked returns the prompts of the run. The lock is held.
func (d *Dialogue) queueLocked() record.Queue { return d.run.Initial.Queue(d.run.EventsLocked()) }

// waitingLocked returns the prompts that the agent has not got. The lock is held.
func (d *Dialogue) waitingLocked() []record.Prompt { return d.queueLocked().Waiting() }

// unheard reports whether prompts wait for the run's agent.
func (d *Dialogue) unheard() bool {
	d.run.Lock()
	defer d.run.Unlock()
	return len(d.waitingLocked()) > 0
}

// isLastTurn ends the conversation if there is no further prompt, and reports that. From then on Say refuses.
func (d *Dialogue) isLastTurn() bool {
	d.run.Lock()
	defer d.run.Unlock()
	d.noPrompts = len(d.waitingLocked()) == 0
	return d.noPrompts
}

// refusePrompts ends the conversation, also if there are further prompts.
func (d *Dialogue) refusePrompts() {
	d.run.Lock()
	d.noPrompts = true
	d.run.Unlock()
}

// Unsay takes back a prompt that the agent has not got, and returns it. It is durable when Unsay returns. The error is
// ErrConflict if the agent has the prompt already. A prompt that was taken back before is not an error.
func (d *Dialogue) Unsay(key string, by gitd.Person) (p record.Prompt, err error) {
	err = d.changeQueue(func(q record.Queue) error {
		var open bool
		if p, open, err = findWaiting(q, key); err != nil || !open {
			if err != nil && d.saidLocked(key) {
				err = nil // taken back before
			}
			return err
		}
		return d.emitChange(record.QueueUnsaid, "took back", record.QueueChange{Key: key, By: by})
	})
	return p, err
}

// Resay replaces the text of a prompt that the agent has not got. It is said by the person who changed it from then on.
func (d *Dialogue) Resay(key, words string, by gitd.Person) error {
	return d.changeQueue(func(q record.Queue) error {
		p, _, err := findWaiting(q, key)
		if err != nil {
			return err
		}
		if err := d.all.Agents()[d.run.Initial.Agent.Name].Accepts(words, nil); err != nil {
			return err
		}
		if words = d.all.Secrets.String(words); words == p.Text {
			return nil
		}
		return d.emitChange(record.QueueEdited, "changed", record.QueueChange{Key: key, Text: words, By: by})
	})
}

// Reorder puts the prompts that wait into the order of their keys. Prompts whose keys are missing keep their places.
func (d *Dialogue) Reorder(keys []string, by gitd.Person) error {
	return d.changeQueue(func(q record.Queue) error {
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
		return d.emitChange(record.QueueOrdered, "reordered", record.QueueChange{Order: keys, By: by})
	})
}

// changeQueue calls f with the prompts of the run, while nobody else changes them. The error is ErrOver if the run is over.
func (d *Dialogue) changeQueue(f func(record.Queue) error) error {
	d.run.Lock()
	defer d.run.Unlock()
	if d.run.OverLocked() {
		return ErrOver
	}
	return f(d.queueLocked())
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

// emitChange journals a change of the prompts that wait. The lock is held.
func (d *Dialogue) emitChange(kind, verb string, c record.QueueChange) error {
	c = redact.Clean(d.all.Secrets, c)
	words := strings.TrimSpace(c.By.Name + " " + verb)
	return d.run.EmitLocked(record.Event{Type: record.EventQueue, Kind: kind, Message: text.Clip(words, maxWords),
		Data: record.Marshal(c)}, true)
}

// Join returns the text of several prompts for one turn.
func Join(prompts []record.Prompt) string {
	texts := make([]string, len(prompts))
	for i, p := range prompts {
		texts[i] = strings.TrimSpace(p.Text)
	}
	return strings.Join(texts, "\n\n")
}
