package dialogue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// talk is a turn of a run's agent while it works.
type talk struct {
	step string
	end  context.CancelCauseFunc
	// steer gives the agent words in its turn. taken is false if it cannot take them now. Nil means that it never can.
	steer func(ctx context.Context, words string) (taken bool, err error)
}

// errInterrupted is the cause of the end of a turn that a person interrupted.
var errInterrupted = errors.New("the turn was interrupted")

// reasonStopped is the reason of a turn's step that a person interrupted. It is no failure.
const reasonStopped = "stopped"

// steerWait is how long an agent may take to take words into its turn.
const steerWait = 30 * time.Second

// Ways in which a prompt that is said at once reaches an agent, see [Dialogue.Hurry].
const (
	Steered     = "steered"     // the agent took it into its turn
	Interrupted = "interrupted" // the turn ends, and the next one begins with it
	Queued      = "queued"      // no turn works, the next one begins with it
)

// CanSteer reports whether the agent at work takes words into its turn.
func (d *Dialogue) CanSteer() bool {
	d.run.Lock()
	defer d.run.Unlock()
	return d.talk != nil && d.talk.steer != nil
}

// InTurn reports whether a turn of the agent works, so that StopTurn can end it.
func (d *Dialogue) InTurn() bool {
	d.run.Lock()
	defer d.run.Unlock()
	return d.talk != nil
}

// Hurry has a prompt that waits heard at once. An agent that supports steering takes it into its turn. The turn of any other
// agent is ended, its changes are committed, and the next turn has the prompt.
func (d *Dialogue) Hurry(ctx context.Context, p record.Prompt) (how string, err error) {
	d.run.Lock()
	now := d.talk
	d.run.Unlock()
	if now != nil && now.steer != nil && len(p.Files) == 0 {
		sctx, cancel := context.WithTimeout(ctx, steerWait)
		taken, err := now.steer(sctx, p.Text)
		cancel()
		if err == nil && taken {
			d.run.Lock()
			defer d.run.Unlock()
			if _, waits, _ := findWaiting(d.queueLocked(), p.Key); !waits {
				return Steered, nil
			}
			return Steered, d.emitChange(record.QueueHeard, "steered", record.QueueChange{Key: p.Key, By: p.By})
		}
	}
	d.run.Lock()
	defer d.run.Unlock()
	if _, waits, _ := findWaiting(d.queueLocked(), p.Key); !waits || d.talk == nil {
		return Queued, nil
	}
	return Interrupted, d.interruptLocked(record.InterruptSay, p.By)
}

// interruptLocked ends the turn that works, durably. The next process ends it too. The lock is held.
func (d *Dialogue) interruptLocked(kind string, by gitd.Person) error {
	e := record.Event{Type: record.EventInterrupt, Step: d.talk.step, Kind: kind, Message: by.Or(d.all.Bot).Name,
		Data: record.Marshal(record.Interrupt{By: redact.Clean(d.all.Secrets, by)})}
	if err := d.run.EmitLocked(e, true); err != nil {
		return err
	}
	d.talk.end(errInterrupted)
	return nil
}

// StopTurn ends the turn of the agent that works. Its changes are committed. The prompts that wait are taken back and returned,
// so the run ends after its checks unless something else is said. The error is ErrConflict if no turn works.
func (d *Dialogue) StopTurn(by gitd.Person) (back []record.Prompt, err error) {
	err = d.changeQueue(func(q record.Queue) error {
		if d.talk == nil {
			return fmt.Errorf("%w: no turn of its agent works", record.ErrConflict)
		}
		for _, p := range q.Waiting() {
			if err := d.emitChange(record.QueueUnsaid, "took back", record.QueueChange{Key: p.Key, By: by}); err != nil {
				return err
			}
			back = append(back, p)
		}
		return d.interruptLocked(record.InterruptStop, by)
	})
	return back, err
}

// interrupted reports whether a person ended the turn of a step since it began the last time.
func (d *Dialogue) interrupted(step string) bool {
	d.run.Lock()
	defer d.run.Unlock()
	return d.interruptedLocked(step)
}

func (d *Dialogue) interruptedLocked(step string) bool {
	for _, e := range slices.Backward(d.run.EventsLocked()) {
		switch {
		case e.Step != step:
		case e.Type == record.EventInterrupt:
			return true
		case e.Type == record.EventStepStarted:
			return false
		}
	}
	return false
}

// open lets people interrupt the turn. end ends it with a cause, and done after the work of the turn.
func (t *turn) open(ctx context.Context, w *step.Work) (tctx context.Context, end context.CancelCauseFunc, done func()) {
	tctx, end = context.WithCancelCause(ctx)
	run := t.run
	run.Lock()
	defer run.Unlock()
	t.d.talk = &talk{step: w.Info.ID, end: end}
	if t.d.interruptedLocked(w.Info.ID) { // before the server was restarted
		end(errInterrupted)
	}
	return tctx, end, func() {
		run.Lock()
		t.d.talk = nil
		run.Unlock()
		end(nil)
	}
}

// steerable has the words that are said at once go to the agent's process as long as the turn works.
func (t *turn) steerable() {
	k := t.process
	if !k.Conn.Agent.Steers {
		return
	}
	t.run.Lock()
	defer t.run.Unlock()
	if t.d.talk != nil {
		t.d.talk.steer = k.Steer
	}
}

// markStopped makes the outcome of a turn that a person interrupted one that did not fail.
func markStopped(o *step.Outcome) {
	o.Exit = containers.Exit{Duration: o.Exit.Duration, Reason: reasonStopped, Stdout: o.Exit.Stdout, Stderr: o.Exit.Stderr}
	o.Result.OK, o.Result.Error = true, ""
	o.Result.Output["exit_code"], o.Result.Output["stop_reason"] = 0, reasonStopped
}
