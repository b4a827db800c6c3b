package conversation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Executor is the part of the executor that conversations need.
type Executor interface {
	Journals
	AgentNames() []string
	Watch(ctx context.Context, caller string) iter.Seq2[record.Event, error]
	Sessions(ctx context.Context, caller string) ([]record.Session, error)
	Submit(ctx context.Context, r record.Request) (record.Run, error)
	Queue(ctx context.Context, run string) (record.Queue, error)
	Stop(ctx context.Context, name string, by gitd.Person) error
	Decide(ctx context.Context, run string, d record.Decision) (record.Run, error)
}

// Prompts gives prompts to the agents of runs. See [dialogue.Prompts].
type Prompts interface {
	Say(ctx context.Context, run string, p record.Prompt) error
	Steer(ctx context.Context, run string, p record.Prompt) (how string, err error)
	Unsay(ctx context.Context, run, key string, by gitd.Person) (record.Prompt, error)
	Resay(ctx context.Context, run, key, words string, by gitd.Person) error
	Reorder(ctx context.Context, run string, keys []string, by gitd.Person) error
	StopTurn(ctx context.Context, run string, by gitd.Person) ([]record.Prompt, error)
	CanSteer(r record.Run) bool
	InTurn(r record.Run) bool
}

// Names has the names that people gave to sessions.
type Names interface {
	// Name returns the name of a session that began at a time, or "" if it has none. The name of an earlier session of
	// the same id is none.
	Name(caller record.Caller, session string, began time.Time) string
	// SetName names a session. An empty name takes its name away. began has all sessions of the caller, with their
	// times.
	SetName(ctx context.Context, caller record.Caller, session, name string, began map[string]time.Time,
		by gitd.Person) error
}

// Session is a session of a workspace with an agent.
type Session struct {
	ID        string `json:"id"`
	Workspace string `json:"workspace"` // the caller's slug
	// Name replaces the label for people. It is empty if nobody set it, or if it is the label of another session by
	// now.
	Name string `json:"name,omitempty"`
	record.Session
	// Run is the run at work, CALLER/RUN, or empty.
	Run     string `json:"run,omitempty"`
	InTurn  bool   `json:"in_turn,omitempty"`
	Steers  bool   `json:"steers,omitempty"`  // words that are said at once reach the turn, see dialogue.Prompts.Steer
	Waiting int    `json:"waiting,omitempty"` // prompts that the agent has not got
}

// SessionID returns the id of the session with an agent under a label.
func SessionID(agent, label string) string {
	if label == "" {
		return agent
	}
	sum := sha256.Sum256([]byte(label))
	return agent + "." + hex.EncodeToString(sum[:5])
}

// Talk speaks to the agents of workspaces. Its fields are its options, and may not change after the first call.
type Talk struct {
	Executor Executor
	Prompts  Prompts
	Find     *lookup.Lookup
	// Names has the names of sessions. Nil means that they have none.
	Names Names
	// Named is called after the name of a session of a caller has changed. Nil means that nothing is called.
	Named func(record.Caller)
}

// Sessions returns the sessions of a caller, the most recently used first.
func (k *Talk) Sessions(ctx context.Context, caller record.Caller) ([]Session, error) {
	list, err := k.Executor.Sessions(ctx, caller.String())
	if err != nil {
		return nil, err
	}
	all := make([]Session, 0, len(list))
	for _, s := range list {
		one := Session{ID: SessionID(s.Agent, s.Label), Workspace: caller.Slug(), Session: s}
		one.Name = k.name(caller, s, list)
		if s.State == record.SessionRunning {
			r, err := k.Executor.Run(ctx, s.Last)
			if err != nil {
				return nil, err
			}
			if q, err := k.Executor.Queue(ctx, r.Name()); err == nil {
				one.Waiting = len(q.Waiting())
			}
			one.Run, one.InTurn, one.Steers = r.Name(), k.Prompts.InTurn(r), k.Prompts.CanSteer(r)
		}
		all = append(all, one)
	}
	return all, nil
}

// Session returns a session by its id.
func (k *Talk) Session(ctx context.Context, caller record.Caller, id string) (Session, error) {
	all, err := k.Sessions(ctx, caller)
	if err != nil {
		return Session{}, err
	}
	at := slices.IndexFunc(all, func(s Session) bool { return s.ID == id })
	if at < 0 {
		return Session{}, route.NotFound("session", id)
	}
	return all[at], nil
}

// name returns the name of a session, or "" if it has none that counts. list has all sessions of its caller.
func (k *Talk) name(caller record.Caller, s record.Session, list []record.Session) string {
	if k.Names == nil {
		return ""
	}
	name := k.Names.Name(caller, SessionID(s.Agent, s.Label), s.Began)
	if isLabel(name, s, list) {
		return ""
	}
	return name
}

// isLabel reports whether a name of a session is the label of another one in list. The label of a session without one
// is its agent.
func isLabel(name string, of record.Session, list []record.Session) bool {
	name = text.Visible(name)
	return name != "" && slices.ContainsFunc(list, func(s record.Session) bool {
		return (s.Agent != of.Agent || s.Label != of.Label) &&
			strings.EqualFold(name, text.Visible(cmp.Or(s.Label, s.Agent)))
	})
}

// Rename names a session that is there, for people. An empty name has it shown by its label again. The error is a
// problem if another session of the caller has the name, as its name or its label.
func (k *Talk) Rename(ctx context.Context, caller record.Caller, id, name string, by gitd.Person) (Session, error) {
	s, err := k.Session(ctx, caller, id)
	if err != nil {
		return Session{}, err
	}
	if k.Names == nil {
		return Session{}, route.NewProblem(route.KindUnavailable, "this server keeps no names of sessions")
	}
	list, err := k.Executor.Sessions(ctx, caller.String())
	if err != nil {
		return Session{}, err
	}
	if isLabel(name, s.Session, list) {
		return Session{}, route.NewProblem(route.KindExists, "another session of %s has the label %q", caller,
			text.OneLine(text.Visible(name), 200)).WithHint("choose another name")
	}
	began := map[string]time.Time{}
	for _, s := range list {
		began[SessionID(s.Agent, s.Label)] = s.Began
	}
	if err := k.Names.SetName(ctx, caller, id, name, began, by); err != nil {
		return Session{}, err
	}
	if k.Named != nil {
		k.Named(caller)
	}
	s.Name = k.name(caller, s.Session, list)
	return s, nil
}

// Saying is a wish to say something in a session.
type Saying struct {
	Caller         record.Caller
	Repo           string
	Agent, Session string
	Prompt         record.Prompt
	// New begins a run also while another one of the session works. Without it the agent at work hears the prompt.
	New bool
}

// Said is where a prompt went.
type Said struct {
	Run string `json:"run"`
	Key string `json:"key"`
	// How is "queued", "steered" or "interrupted", or "begun" for a new run.
	How string `json:"how"`
}

// Say says something in a session. The agent at work hears it, or a new run of the session begins with it. The prompt is durable when
// Say returns. With the key of an earlier prompt nothing happens twice.
func (k *Talk) Say(ctx context.Context, who route.Who, s Saying) (Said, error) {
	if s.Prompt.Key == "" {
		s.Prompt.Key = record.NewToken() + record.NewToken()
	}
	runs := k.Executor.OfCaller(s.Caller)
	for _, r := range slices.Backward(runs) {
		if r.Agent == nil || r.Agent.Name != s.Agent || r.Agent.Session != s.Session || r.Aside() {
			continue
		}
		if r.ID == RunOf(s.Prompt.Key) {
			return Said{Run: r.Name(), Key: s.Prompt.Key, How: "begun"}, nil
		}
		if s.New {
			break
		}
		how, err := dialogue.Queued, error(nil)
		if s.Prompt.Now {
			how, err = k.Prompts.Steer(ctx, r.Name(), s.Prompt)
		} else {
			err = k.Prompts.Say(ctx, r.Name(), s.Prompt)
		}
		if err == nil {
			return Said{Run: r.Name(), Key: s.Prompt.Key, How: how}, nil
		}
		if !errors.Is(err, record.ErrConflict) || !r.Ended() && !k.ended(ctx, r) {
			return Said{}, err
		}
		break
	}
	req := record.Request{Key: RunOf(s.Prompt.Key), Caller: s.Caller, Repo: s.Repo, Asker: s.Prompt.By,
		Agent: &record.AgentCall{Name: s.Agent, Prompt: s.Prompt.Text, Session: s.Session, Files: s.Prompt.Files}}
	if err := k.Find.Bind(ctx, who, &req); err != nil {
		return Said{}, err
	}
	r, err := k.Executor.Submit(ctx, req)
	if err != nil {
		return Said{}, err
	}
	return Said{Run: r.Name(), Key: s.Prompt.Key, How: "begun"}, nil
}

// ended reports whether a run takes no more prompts because it has ended or is about to.
func (k *Talk) ended(ctx context.Context, r record.Run) bool {
	q, err := k.Executor.Queue(ctx, r.Name())
	return err == nil && len(q.Waiting()) == 0
}

// RunOf returns the id of the run that a prompt begins, by the key of the prompt.
func RunOf(key string) string {
	sum := sha256.Sum256([]byte("prompt\x00" + key))
	return "say-" + hex.EncodeToString(sum[:8])
}

// Sent returns where the prompt with a key went, if one of the last runs of a caller has it. most is the number of runs to look at.
func (k *Talk) Sent(ctx context.Context, c record.Caller, key string, most int) (Said, bool, error) {
	runs := k.Executor.OfCaller(c)
	for _, r := range slices.Backward(runs[max(0, len(runs)-most):]) {
		if r.ID == RunOf(key) {
			return Said{Run: r.Name(), Key: key, How: "begun"}, true, nil
		}
		if r.Agent == nil {
			continue
		}
		q, err := k.Executor.Queue(ctx, r.Name())
		if errors.Is(err, record.ErrNotFound) {
			continue // it was removed in between
		}
		if err != nil {
			return Said{}, false, err
		}
		if q.Index(key) >= 0 {
			return Said{Run: r.Name(), Key: key, How: dialogue.Queued}, true, nil
		}
	}
	return Said{}, false, nil
}
