package agent

import (
	"context"
	"slices"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
)

// Permit implements acp.Client. It answers by the agent's policy.
func (k *Process) Permit(ctx context.Context, q acp.Question) (option string, err error) {
	k.mu.Lock()
	t, said, clock := k.heard, k.said, k.clock
	k.mu.Unlock()
	if t == nil || said == nil || said.Err() != nil {
		return "", nil // no turn, nothing that could be allowed
	}
	q.Tool = t.about(q.Tool)
	verdict := k.o.Agent.Permission
	if verdict == "" || slices.Contains(k.o.Agent.Allow, q.Tool.Kind) {
		verdict = PermissionAllow
	}
	if verdict == PermissionAsk {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(said, cancel)()
		clock.Pause()
		defer clock.Resume()
		t.settle()
		option, err := t.turn.AskPermission(ctx, q)
		if ctx.Err() != nil {
			return "", nil
		}
		return option, err
	}
	t.permitted(q, verdict)
	return optionFor(q, verdict == PermissionAllow), nil
}

// optionFor returns the id of the option that means yes or no. If an agent offers none the turn counts as cancelled,
// which no agent takes for a yes.
func optionFor(q acp.Question, yes bool) string {
	o, _ := q.Pick(yes)
	return o.ID
}

// about returns a tool call with the state that is known of it.
func (t *transcript) about(u acp.Tool) acp.Tool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.tools[u.ID]
	now.ID = u.ID
	if u.Title != "" {
		now.Title = u.Title
	}
	if u.Kind != "" {
		now.Kind = u.Kind
	}
	now.RawInput = u.RawInput // a person who is asked learns of all of it
	return now
}

// settle shows the words that are held back, because a person reads them before the question.
func (t *transcript) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.endThought()
	t.endMessage()
}

// permitted journals the policy's answer.
func (t *transcript) permitted(q acp.Question, verdict string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.endThought()
	t.endMessage()
	q.Tool.RawInput = bounded(q.Tool.RawInput)
	t.emit(KindPermission, verdict+": "+q.Tool.Words(), record.Marshal(q.Tool))
}
