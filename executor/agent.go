package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// agent returns an agent by its name. The name may be empty if there is only one agent.
func (x *Executor) agent(name string) (agent.Agent, error) {
	agents := x.options().Agents
	names := slices.Sorted(maps.Keys(agents))
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	if a, ok := agents[name]; ok {
		return a, nil
	}
	switch {
	case len(names) == 0:
		return agent.Agent{}, fmt.Errorf("%w agent %q: none is configured; see `agents` in the configuration",
			record.ErrInvalid, name)
	case name == "":
		return agent.Agent{}, fmt.Errorf("%w request: it names no agent; known are %s", record.ErrInvalid,
			strings.Join(names, ", "))
	}
	return agent.Agent{}, fmt.Errorf("%w agent %q; known are %s", record.ErrInvalid, name, strings.Join(names, ", "))
}

// Bounds of the prompts of a run's agent.
const (
	// Prompts that wait are given together, as far as they fit into one turn.
	maxTurnText = 1 << 20
	maxUnheard  = 100 // prompts
	maxTitle    = 500
	maxLabel    = 200
	maxChecks   = 20 // of a request
)

// Image returns the image that the run's container must be made of, or "" for any.
func (l *liveRun) Image() string {
	if l.Initial.Agent == nil {
		return ""
	}
	return l.x.options().Agents[l.Initial.Agent.Name].Image
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
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

// errOver is the error of a run that takes no more prompts.
var errOver = fmt.Errorf("%w: its agent has had its last turn; start a new run", record.ErrConflict)

func (x *Executor) say(ctx context.Context, run string, p record.Prompt) error {
	r, err := x.Run(ctx, run)
	if err != nil {
		return err
	}
	if r.Kind != record.KindAgent || r.Agent == nil {
		return fmt.Errorf("%w: it is no agent's run", record.ErrConflict)
	}
	if err := x.options().Agents[r.Agent.Name].Accepts(p.Text, p.Files); err != nil {
		return err
	}
	if p.Key == "" {
		p.Key = record.NewToken() + record.NewToken()
	}
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
		if err = l.say(p); !errors.Is(err, errOver) {
			return err
		}
	}
	if err := x.isOpen(); err != nil {
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
	return errOver
}

// say journals a prompt. It holds the lock under which the run's owner decides that there is no other turn.
func (l *liveRun) say(p record.Prompt) error {
	given := attachment.Named(p.Files)
	p.Files = attachment.WithoutContent(given)
	dir, discard, err := l.x.attachments(l.Initial).Keep(given)
	defer discard()
	l.Lock()
	defer l.Unlock()
	if l.saidLocked(p.Key) {
		return nil
	}
	switch {
	case l.OverLocked() || l.noPrompts:
		return errOver // and its folder may be gone already
	case err != nil:
		return err
	case len(l.Initial.Queue(l.EventsLocked()).Waiting()) >= maxUnheard:
		return fmt.Errorf("%w: %d prompts wait for its agent already", record.ErrConflict, maxUnheard)
	}
	if dir != "" {
		if err := l.x.attachments(l.Initial).Place(dir, p.Key); err != nil {
			return err
		}
	}
	return l.EmitLocked(record.Event{Type: record.EventPrompt, Message: text.Clip(p.Text, 4<<10),
		Data: record.Marshal(p)}, true)
}

// saidLocked reports whether a prompt with the key was journalled, also if it was taken back. mu is held.
func (l *liveRun) saidLocked(key string) bool {
	return slices.ContainsFunc(l.EventsLocked(), func(e record.Event) bool {
		before, ok := e.Prompt()
		return ok && before.Key == key
	})
}

// unheard reports whether prompts wait for the run's agent.
func (l *liveRun) unheard() bool {
	l.Lock()
	defer l.Unlock()
	return l.unheardLocked()
}

func (l *liveRun) unheardLocked() bool { return len(l.Initial.Queue(l.EventsLocked()).Waiting()) > 0 }

// lastTurn ends the conversation if there is no further prompt. From then on Say refuses.
func (l *liveRun) lastTurn() bool {
	l.Lock()
	defer l.Unlock()
	l.noPrompts = !l.unheardLocked()
	return l.noPrompts
}

// refusePrompts ends the conversation, also if there are further prompts.
func (l *liveRun) refusePrompts() {
	l.Lock()
	l.noPrompts = true
	l.Unlock()
}

// saidTo returns all prompts of a run's agent, as one call.
func (x *Executor) saidTo(ctx context.Context, r record.Run) (*record.AgentCall, error) {
	a, err := x.agent(r.Agent.Name)
	if err != nil {
		return nil, err
	}
	var events []record.Event
	for e, err := range x.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	prompts := r.Prompts(events)
	call := &record.AgentCall{Name: a.Name, Prompt: joinPrompts(prompts), Title: r.Agent.Title, Session: r.Agent.Session,
		Plan: r.Agent.Plan, Checks: r.Agent.Checks}
	if len(call.Prompt) > a.MaxPrompt() {
		// Each was short enough, but all of them are not. They become a file.
		call.Files = []record.Attachment{{Name: "prompts.txt", Type: "text/plain", Content: []byte(call.Prompt)}}
		call.Prompt = prompts[0].Text
	}
	for _, p := range prompts {
		files, err := x.attachments(r).Read(ctx, p)
		if err != nil {
			return nil, err
		}
		call.Files = append(call.Files, files...)
	}
	return call, nil
}

// joinPrompts returns the text of several prompts for one turn.
func joinPrompts(prompts []record.Prompt) string {
	texts := make([]string, len(prompts))
	for i, p := range prompts {
		texts[i] = strings.TrimSpace(p.Text)
	}
	return strings.Join(texts, "\n\n")
}
