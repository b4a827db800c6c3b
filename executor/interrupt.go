package executor

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

// Ways in which a prompt that is said at once reaches an agent, see [Executor.Steer].
const (
	Steered     = "steered"     // the agent took it into its turn
	Interrupted = "interrupted" // the turn ends, and the next one begins with it
	Queued      = "queued"      // no turn works, the next one begins with it
)

// Steer gives a prompt to a run's agent at once, before all that wait. An agent that supports steering takes it into its turn. The turn
// of any other agent is ended, its changes are committed, and the next turn has the prompt. The prompt is durable when Steer returns.
// The errors are those of [Executor.Say].
func (x *Executor) Steer(ctx context.Context, run string, p record.Prompt) (how string, err error) {
	p.Now = true
	if p.Key == "" {
		p.Key = record.NewToken() + record.NewToken()
	}
	if err := x.Say(ctx, run, p); err != nil {
		return "", err
	}
	r, err := x.Run(ctx, run)
	if err != nil {
		return "", err
	}
	l := x.runs.alive(r.Caller, r.ID)
	if l == nil {
		return Queued, nil
	}
	if how, err = l.hurry(ctx, p); err != nil {
		return "", fmt.Errorf("cannot interrupt %s: %w", run, err)
	}
	return how, nil
}

// CanSteer reports whether the agent at work takes words into its turn.
func (x *Executor) CanSteer(r record.Run) bool {
	l := x.runs.alive(r.Caller, r.ID)
	if l == nil {
		return false
	}
	l.Lock()
	defer l.Unlock()
	return l.talk != nil && l.talk.steer != nil
}

// InTurn reports whether a turn of a run's agent works, so that StopTurn can end it.
func (x *Executor) InTurn(r record.Run) bool {
	l := x.runs.alive(r.Caller, r.ID)
	if l == nil {
		return false
	}
	l.Lock()
	defer l.Unlock()
	return l.talk != nil
}

// hurry has a prompt that waits heard at once.
func (l *liveRun) hurry(ctx context.Context, p record.Prompt) (how string, err error) {
	l.Lock()
	now := l.talk
	l.Unlock()
	if now != nil && now.steer != nil && len(p.Files) == 0 {
		sctx, cancel := context.WithTimeout(ctx, steerWait)
		taken, err := now.steer(sctx, p.Text)
		cancel()
		if err == nil && taken {
			l.Lock()
			defer l.Unlock()
			if _, waits, _ := findWaiting(l.Initial.Queue(l.EventsLocked()), p.Key); !waits {
				return Steered, nil
			}
			return Steered, l.changed(record.QueueHeard, "steered", record.QueueChange{Key: p.Key, By: p.By})
		}
	}
	l.Lock()
	defer l.Unlock()
	if _, waits, _ := findWaiting(l.Initial.Queue(l.EventsLocked()), p.Key); !waits || l.talk == nil {
		return Queued, nil
	}
	return Interrupted, l.interruptLocked(record.InterruptSay, p.By)
}

// interruptLocked ends the turn that works, durably. The next process ends it too. mu is held.
func (l *liveRun) interruptLocked(kind string, by gitd.Person) error {
	e := record.Event{Type: record.EventInterrupt, Step: l.talk.step, Kind: kind, Message: by.Or(l.x.Bot).Name,
		Data: record.Marshal(record.Interrupt{By: cleanPerson(l.x.Secrets, by)})}
	if err := l.EmitLocked(e, true); err != nil {
		return err
	}
	l.talk.end(errInterrupted)
	return nil
}

// StopTurn ends the turn of a run's agent that works. Its changes are committed. The prompts that wait are taken back and returned, so
// the run ends after its checks unless something else is said. The error is ErrConflict if no turn works.
func (x *Executor) StopTurn(ctx context.Context, run string, by gitd.Person) (back []record.Prompt, err error) {
	err = x.changeQueue(ctx, run, func(l *liveRun, q record.Queue) error {
		if l.talk == nil {
			return fmt.Errorf("%w: no turn of its agent works", record.ErrConflict)
		}
		for _, p := range q.Waiting() {
			if err := l.changed(record.QueueUnsaid, "took back", record.QueueChange{Key: p.Key, By: by}); err != nil {
				return err
			}
			back = append(back, p)
		}
		return l.interruptLocked(record.InterruptStop, by)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot stop the turn of %s: %w", run, err)
	}
	return back, nil
}

// interrupted reports whether a person ended the turn of a step since it began the last time.
func (l *liveRun) interrupted(step string) bool {
	l.Lock()
	defer l.Unlock()
	return l.interruptedLocked(step)
}

func (l *liveRun) interruptedLocked(step string) bool {
	for _, e := range slices.Backward(l.EventsLocked()) {
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
	l := t.l
	l.Lock()
	defer l.Unlock()
	l.talk = &talk{step: w.Info.ID, end: end}
	if l.interruptedLocked(w.Info.ID) { // before the server was restarted
		end(errInterrupted)
	}
	return tctx, end, func() {
		l.Lock()
		l.talk = nil
		l.Unlock()
		end(nil)
	}
}

// steerable has the words that are said at once go to the agent's process as long as the turn works.
func (t *turn) steerable() {
	k := t.process
	if !k.Conn.Agent.Steers {
		return
	}
	t.l.Lock()
	defer t.l.Unlock()
	if t.l.talk != nil {
		t.l.talk.steer = k.Steer
	}
}

// markStopped makes the outcome of a turn that a person interrupted one that did not fail.
func markStopped(o *step.Outcome) {
	o.Exit = containers.Exit{Duration: o.Exit.Duration, Reason: reasonStopped, Stdout: o.Exit.Stdout, Stderr: o.Exit.Stderr}
	o.Result.OK, o.Result.Error = true, ""
	o.Result.Output["exit_code"], o.Result.Output["stop_reason"] = 0, reasonStopped
}
