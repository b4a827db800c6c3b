package agent

import (
	"context"
	"path"
	"slices"
	"sync"

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
	if c := (record.Command{Shell: q.Command()}); c.Shell != "" && t.turn.Judge(c) {
		if err := k.permit(ctx, t, c); err != nil {
			t.permitted(q, PermissionDeny)
			return optionFor(q, false), nil
		}
		k.granted.add(c)
		t.permitted(q, PermissionAllow)
		return optionFor(q, true), nil
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

// permit applies the rules of the base to a command. The time of the turn does not go on while a person is asked.
func (k *Process) permit(ctx context.Context, t *transcript, c record.Command) error {
	k.mu.Lock()
	said, clock := k.said, k.clock
	k.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if said != nil {
		defer context.AfterFunc(said, cancel)()
	}
	clock.Pause()
	defer clock.Resume()
	t.settle()
	return t.turn.Permit(ctx, c)
}

// permitTerminal is permit for a command that the agent has ramus run.
func (k *Process) permitTerminal(ctx context.Context, c record.Command) error {
	k.mu.Lock()
	t := k.heard
	k.mu.Unlock()
	if t == nil || k.granted.takePermission(c) || !t.turn.Judge(c) {
		return nil // without a turn nothing was said to the agent, so that its own preparations run
	}
	return k.permit(ctx, t, c)
}

// granted has the commands that a person permitted and the agent has not run yet.
type granted struct {
	mu   sync.Mutex // guards list
	list []string
}

// maxGranted is the number of such commands.
const maxGranted = 100

func (g *granted) add(c record.Command) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.list) < maxGranted {
		g.list = append(g.list, lineOf(c))
	}
}

// takePermission reports whether a command was permitted. It is permitted once.
func (g *granted) takePermission(c record.Command) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.list, lineOf(c))
	if at >= 0 {
		g.list = slices.Delete(g.list, at, at+1)
	}
	return at >= 0
}

// lineOf returns the line of a command. It is the same for a line and for a shell that gets the line as its argument.
func lineOf(c record.Command) string {
	if len(c.Args) == 3 && slices.Contains([]string{"sh", "bash", "dash", "zsh"}, path.Base(c.Args[0])) &&
		(c.Args[1] == "-c" || c.Args[1] == "-lc") {
		return c.Args[2]
	}
	return c.Line()
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
