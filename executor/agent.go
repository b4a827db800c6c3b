package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Bounds of a request for an agent.
const (
	maxTitle  = 500 // bytes
	maxLabel  = 200 // bytes
	maxChecks = 20
)

// newDialogues returns the dialogues of all runs.
func (x *Executor) newDialogues() *dialogue.Dialogues {
	_, served := x.Door["/mcp"]
	return &dialogue.Dialogues{
		Context: x.life.ctx,
		Agents:  func() map[string]agent.Agent { return x.options().Agents },
		Bounds: func() dialogue.Bounds {
			o := x.options()
			return dialogue.Bounds{Timeout: o.Timeout, RunTimeout: o.RunTimeout, Output: o.Limits.WithDefaults().Output}
		},
		Fleet:       x.Fleet,
		Shells:      x.shells,
		Inspector:   x.viewer.Inspector,
		Folder:      x.folder,
		Attachments: x.Attachments,
		History:     x,
		MCP:         served,
		Bot:         x.Bot,
		Secrets:     x.Secrets,
		Waits:       x.tuning.waits,
		Now:         x.Now,
	}
}

// Image returns the image that the run's container must be made of, or "" for any.
func (l *liveRun) Image() string {
	if l.Initial.Agent == nil {
		return ""
	}
	return l.x.options().Agents[l.Initial.Agent.Name].Image
}

// Speaks reports whether a step is a turn with an agent of agent.ProtocolACP.
func (l *liveRun) Speaks(s step.Info) bool {
	return s.Kind == string(record.KindAgent) && l.Initial.Agent != nil &&
		l.x.options().Agents[l.Initial.Agent.Name].Protocol == agent.ProtocolACP
}

// Say gives a prompt to a run's agent for its next turn. It is durable when Say returns. The error is ErrConflict if
// the run is not an agent's, or if the agent has had its last turn, so that a new run is needed. A prompt whose key
// this run has already is not an error, also if the run has ended meanwhile.
func (x *Executor) Say(ctx context.Context, run string, p record.Prompt) error {
	if err := x.say(ctx, run, p); err != nil {
		return fmt.Errorf("cannot speak to %s: %w", run, err)
	}
	return nil
}

func (x *Executor) say(ctx context.Context, run string, p record.Prompt) error {
	r, err := x.AgentRun(ctx, run)
	if err != nil {
		return err
	}
	if err := x.options().Agents[r.Agent.Name].Accepts(p.Text, p.Files); err != nil {
		return err
	}
	p.Key = cmp.Or(p.Key, newPromptKey())
	if len(p.Key) > 200 {
		return fmt.Errorf("%w key: it has more than 200 bytes", record.ErrInvalid)
	}
	if p.Key == record.FirstPrompt {
		return fmt.Errorf("%w key %q: it is that of the run's first prompt", record.ErrInvalid, p.Key)
	}
	files := cleanFiles(x.Secrets, p.Files)
	// Its key too, because it is compared with the journalled one.
	p = redact.Clean(x.Secrets, p)
	p.Files = files
	l := x.runs.alive(r.Caller, r.ID)
	if l != nil {
		if err = l.dialogue.Say(p); !errors.Is(err, dialogue.ErrOver) {
			return err
		}
	}
	if err := x.life.err(); err != nil {
		return err // the next process continues the run
	}
	// The prompt may have been journalled before the run ended, and only the answer was lost.
	for e, err := range x.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return err
		}
		if said, ok := e.Prompt(); ok && said.Key == p.Key {
			return nil
		}
	}
	return dialogue.ErrOver
}

// newPromptKey returns a key for a prompt that came without one.
func newPromptKey() string { return record.NewToken() + record.NewToken() }

// dialogueOf returns the dialogue of an agent's run at work. The error is [dialogue.ErrOver] if the run is over.
func (x *Executor) dialogueOf(ctx context.Context, run string) (*dialogue.Dialogue, error) {
	r, err := x.AgentRun(ctx, run)
	if err != nil {
		return nil, err
	}
	l := x.runs.alive(r.Caller, r.ID)
	if l == nil {
		return nil, dialogue.ErrOver
	}
	return l.dialogue, nil
}

// Steer gives a prompt to a run's agent at once, before all that wait, see [dialogue.Dialogue.Hurry]. The prompt is durable when
// Steer returns. The errors are those of [Executor.Say].
func (x *Executor) Steer(ctx context.Context, run string, p record.Prompt) (how string, err error) {
	p.Now, p.Key = true, cmp.Or(p.Key, newPromptKey())
	if err := x.Say(ctx, run, p); err != nil {
		return "", err
	}
	r, err := x.Run(ctx, run)
	if err != nil {
		return "", err
	}
	l := x.runs.alive(r.Caller, r.ID)
	if l == nil {
		return dialogue.Queued, nil
	}
	if how, err = l.dialogue.Hurry(ctx, p); err != nil {
		return "", fmt.Errorf("cannot interrupt %s: %w", run, err)
	}
	return how, nil
}

// CanSteer reports whether the agent at work takes words into its turn.
func (x *Executor) CanSteer(r record.Run) bool {
	l := x.runs.alive(r.Caller, r.ID)
	return l != nil && l.dialogue.CanSteer()
}

// InTurn reports whether a turn of a run's agent works, so that StopTurn can end it.
func (x *Executor) InTurn(r record.Run) bool {
	l := x.runs.alive(r.Caller, r.ID)
	return l != nil && l.dialogue.InTurn()
}

// StopTurn ends the turn of a run's agent that works, see [dialogue.Dialogue.StopTurn].
func (x *Executor) StopTurn(ctx context.Context, run string, by gitd.Person) (back []record.Prompt, err error) {
	d, err := x.dialogueOf(ctx, run)
	if err == nil {
		back, err = d.StopTurn(by)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot stop the turn of %s: %w", run, err)
	}
	return back, nil
}

// saidTo returns all prompts of a run's agent, as one call.
func (x *Executor) saidTo(ctx context.Context, r record.Run) (*record.AgentCall, error) {
	a, err := x.dialogues.Agent(r.Agent.Name)
	if err != nil {
		return nil, err
	}
	events, err := x.AllEvents(ctx, r.Name())
	if err != nil {
		return nil, err
	}
	prompts := r.Prompts(events)
	call := &record.AgentCall{Name: a.Name, Prompt: dialogue.Join(prompts), Title: r.Agent.Title, Session: r.Agent.Session,
		Plan: r.Agent.Plan, Checks: r.Agent.Checks}
	if len(call.Prompt) > a.MaxPrompt() {
		// Each was short enough, but all of them are not. They become a file.
		call.Files = []record.Attachment{{Name: "prompts.txt", Type: "text/plain", Content: []byte(call.Prompt)}}
		call.Prompt = prompts[0].Text
	}
	for _, p := range prompts {
		files, err := x.Attachments(r).Read(ctx, p)
		if err != nil {
			return nil, err
		}
		call.Files = append(call.Files, files...)
	}
	return call, nil
}
