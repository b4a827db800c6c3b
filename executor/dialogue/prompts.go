package dialogue

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/runs"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Prompts gives prompts to the agents of runs by the names of the runs. Its fields are set before the first use, and all are
// required. Methods are safe for concurrent use.
type Prompts struct {
	Runs *runs.Reader
	// At returns the dialogue of a run at work, or nil.
	At func(c record.Caller, id string) *Dialogue
	// Open returns an error if the server is closing. The next process goes on with the run.
	Open func() error
	// Dialogues has the configured agents, and the secrets that are removed from prompts.
	Dialogues *Dialogues
}

// Say gives a prompt to a run's agent for its next turn. It is durable when Say returns. The error is ErrConflict if
// the run is not an agent's, or if the agent has had its last turn, so that a new run is needed. A prompt whose key
// this run has already is not an error, also if the run has ended meanwhile.
func (ps *Prompts) Say(ctx context.Context, run string, p record.Prompt) error {
	if err := ps.sayPrompt(ctx, run, p); err != nil {
		return fmt.Errorf("cannot speak to %s: %w", run, err)
	}
	return nil
}

func (ps *Prompts) sayPrompt(ctx context.Context, run string, p record.Prompt) error {
	r, err := ps.Runs.AgentRun(ctx, run)
	if err != nil {
		return err
	}
	if err := ps.Dialogues.Agents()[r.Agent.Name].Accepts(p.Text, p.Files); err != nil {
		return err
	}
	p.Key = cmp.Or(p.Key, newPromptKey())
	if len(p.Key) > 200 {
		return fmt.Errorf("%w key: it has more than 200 bytes", record.ErrInvalid)
	}
	if p.Key == record.FirstPrompt {
		return fmt.Errorf("%w key %q: it is that of the run's first prompt", record.ErrInvalid, p.Key)
	}
	files := attachment.Clean(ps.Dialogues.Secrets, p.Files)
	// Its key too, because it is compared with the journalled one.
	p = redact.Clean(ps.Dialogues.Secrets, p)
	p.Files = files
	d := ps.At(r.Caller, r.ID)
	if d != nil {
		if err = d.Say(p); !errors.Is(err, ErrOver) {
			return err
		}
	}
	if err := ps.Open(); err != nil {
		return err // the next process continues the run
	}
	// The prompt may have been journalled before the run ended, and only the answer was lost.
	for e, err := range ps.Runs.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return err
		}
		if said, ok := e.Prompt(); ok && said.Key == p.Key {
			return nil
		}
	}
	return ErrOver
}

// newPromptKey returns a key for a prompt that came without one.
func newPromptKey() string { return record.NewToken() + record.NewToken() }

// of returns the dialogue of an agent's run at work. The error is [ErrOver] if the run is over.
func (ps *Prompts) of(ctx context.Context, run string) (*Dialogue, error) {
	r, err := ps.Runs.AgentRun(ctx, run)
	if err != nil {
		return nil, err
	}
	d := ps.At(r.Caller, r.ID)
	if d == nil {
		return nil, ErrOver
	}
	return d, nil
}

// Steer gives a prompt to a run's agent at once, before all that wait, see [Dialogue.Hurry]. The prompt is durable when
// Steer returns. The errors are those of [Prompts.Say].
func (ps *Prompts) Steer(ctx context.Context, run string, p record.Prompt) (how string, err error) {
	p.Now, p.Key = true, cmp.Or(p.Key, newPromptKey())
	if err := ps.Say(ctx, run, p); err != nil {
		return "", err
	}
	r, err := ps.Runs.Run(ctx, run)
	if err != nil {
		return "", err
	}
	d := ps.At(r.Caller, r.ID)
	if d == nil {
		return Queued, nil
	}
	if how, err = d.Hurry(ctx, p); err != nil {
		return "", fmt.Errorf("cannot interrupt %s: %w", run, err)
	}
	return how, nil
}

// CanSteer reports whether the agent at work takes words into its turn.
func (ps *Prompts) CanSteer(r record.Run) bool {
	d := ps.At(r.Caller, r.ID)
	return d != nil && d.CanSteer()
}

// InTurn reports whether a turn of a run's agent works, so that StopTurn can end it.
func (ps *Prompts) InTurn(r record.Run) bool {
	d := ps.At(r.Caller, r.ID)
	return d != nil && d.InTurn()
}

// StopTurn ends the turn of a run's agent that works, see [Dialogue.StopTurn].
func (ps *Prompts) StopTurn(ctx context.Context, run string, by gitd.Person) (back []record.Prompt, err error) {
	d, err := ps.of(ctx, run)
	if err == nil {
		back, err = d.StopTurn(by)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot stop the turn of %s: %w", run, err)
	}
	return back, nil
}

// Unsay takes back a prompt that the run's agent has not got, see [Dialogue.Unsay].
func (ps *Prompts) Unsay(ctx context.Context, run, key string, by gitd.Person) (p record.Prompt, err error) {
	d, err := ps.of(ctx, run)
	if err == nil {
		p, err = d.Unsay(key, by)
	}
	if err != nil {
		return record.Prompt{}, fmt.Errorf("cannot take back what was said to %s: %w", run, err)
	}
	return p, nil
}

// Resay replaces the text of a prompt that the run's agent has not got, see [Dialogue.Resay].
func (ps *Prompts) Resay(ctx context.Context, run, key, words string, by gitd.Person) error {
	d, err := ps.of(ctx, run)
	if err == nil {
		err = d.Resay(key, words, by)
	}
	if err != nil {
		return fmt.Errorf("cannot change what was said to %s: %w", run, err)
	}
	return nil
}

// Reorder puts the prompts that wait into the order of their keys. Prompts whose keys are missing keep their places.
func (ps *Prompts) Reorder(ctx context.Context, run string, keys []string, by gitd.Person) error {
	d, err := ps.of(ctx, run)
	if err == nil {
		err = d.Reorder(keys, by)
	}
	if err != nil {
		return fmt.Errorf("cannot reorder what was said to %s: %w", run, err)
	}
	return nil
}

// Again returns all prompts of a run's agent, as one call.
func (ps *Prompts) Again(ctx context.Context, r record.Run) (*record.AgentCall, error) {
	a, err := ps.Dialogues.Agent(r.Agent.Name)
	if err != nil {
		return nil, err
	}
	events, err := ps.Runs.AllEvents(ctx, r.Name())
	if err != nil {
		return nil, err
	}
	prompts := r.Prompts(events)
	call := &record.AgentCall{Name: a.Name, Prompt: Join(prompts), Title: r.Agent.Title, Session: r.Agent.Session,
		Plan: r.Agent.Plan, Checks: r.Agent.Checks}
	if len(call.Prompt) > a.MaxPrompt() {
		// Each was short enough, but all of them are not. They become a file.
		call.Files = []record.Attachment{{Name: "prompts.txt", Type: "text/plain", Content: []byte(call.Prompt)}}
		call.Prompt = prompts[0].Text
	}
	for _, p := range prompts {
		files, err := ps.Runs.Attachments(r).Read(ctx, p)
		if err != nil {
			return nil, err
		}
		call.Files = append(call.Files, files...)
	}
	return call, nil
}
