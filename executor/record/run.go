package record

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// State is the state of a run.
type State string

// The states of a run (seed 3).
const (
	StateSubmitted          State = "submitted"
	StateRunning            State = "running"
	StateAwaitingReview     State = "awaiting_review"
	StateAddressingComments State = "addressing_comments"
	StateComplete           State = "complete"
	StateFailed             State = "failed"
)

// Kind is the kind of a run.
type Kind string

// The kinds of runs.
const (
	KindWorkflow Kind = "workflow"
	KindExec     Kind = "exec"  // one command
	KindTask     Kind = "task"  // one library task
	KindAgent    Kind = "agent" // a coding agent, and the checks after it
	// KindRequest is a request that is not decided yet, or that was answered without running anything. See
	// executor.Executor.Claim.
	KindRequest Kind = "request"
	// KindConversation is a task with several runs, see executor.Executor.Stand.
	KindConversation Kind = "conversation"
	// KindTerminal is a terminal. Each command that a person types there is a step of the run.
	KindTerminal Kind = "terminal"
)

// Run is one piece of work of a caller, as run.json keeps it.
type Run struct {
	ID         string    `json:"id"`     // unique within the caller
	Caller     Caller    `json:"caller"` // "run:fancy-mallard"
	Kind       Kind      `json:"kind"`
	Repo       string    `json:"repo"`
	Base       string    `json:"base"`        // the branch that Branch was created from
	BaseCommit gitd.Hash `json:"base_commit"` // the tip of Base then
	// BaseRefreshed is the time at which the base was last known to equal its upstream, when the run began. It is zero
	// if it never was, or if the base has no upstream.
	BaseRefreshed time.Time `json:"base_refreshed,omitzero"`
	Branch        string    `json:"branch"`
	// With has the additional repositories of the caller. It is nil if the caller has one repository.
	With     []Addition      `json:"with,omitempty"`
	Start    gitd.Hash       `json:"start"`          // branch tip when the run began
	Head     gitd.Hash       `json:"head,omitempty"` // branch tip when it was last read
	Workflow string          `json:"workflow,omitempty"`
	File     string          `json:"file,omitempty"` // the workflow's path in the base
	Input    map[string]any  `json:"input,omitempty"`
	Output   map[string]any  `json:"output,omitempty"` // a workflow's state at its end
	Task     *TaskCall       `json:"task,omitempty"`
	Exec     *Command        `json:"exec,omitempty"`
	Agent    *AgentCall      `json:"agent,omitempty"`
	Terminal *TerminalCall   `json:"terminal,omitempty"`
	Session  string          `json:"session,omitempty"` // id of the agent's own session; empty if it has none
	Origin   *Origin         `json:"origin,omitempty"`  // nil for a request by the command line or the API
	Told     *Told           `json:"told,omitempty"`    // nil until the origin knows the run's end
	Record   json.RawMessage `json:"record,omitempty"`  // of KindConversation, its owner's data
	Usage    *Usage          `json:"usage,omitempty"`   // of models by the run's agent; nil for none
	Group    string          `json:"group,omitempty"`   // at most one run of it works at a time in the repository
	Drawn    bool            `json:"drawn,omitempty"`   // its request named no caller, so the caller was drawn
	Fresh    bool            `json:"fresh,omitempty"`   // its checks run although their results are known
	Apart    bool            `json:"apart,omitempty"`   // the same, and no later check gets their results
	Unasked  bool            `json:"unasked,omitempty"` // nobody is asked about its commands
	Sub      bool            `json:"sub,omitempty"`     // started by a node of Parent, which uses its result
	Command  string          `json:"command,omitempty"`
	Asker    gitd.Person     `json:"asker"`
	State    State           `json:"state"`
	Reason   Reason          `json:"reason,omitempty"`
	Error    string          `json:"error,omitempty"`        // in a sentence
	Hint     string          `json:"hint,omitempty"`         // the remedy for Error, for people
	Parent   string          `json:"parent,omitempty"`       // the run, as CALLER/RUN, that it was started, retried or forked from
	Fork     *Fork           `json:"fork,omitempty"`         // of the first run of a forked caller
	From     string          `json:"from,omitempty"`         // the node that the run resumed at
	Step     string          `json:"step,omitempty"`         // current or last step
	Gate     *Gate           `json:"gate,omitempty"`         // the question that the run waits with
	Place    int             `json:"place,omitempty"`        // position in the queue for a container, from 1
	Exit     *int            `json:"exit,omitempty"`         // of KindExec and KindTerminal
	Image    string          `json:"image,omitempty"`        // of the container, with its digest; empty if the engine has no images
	Merged   gitd.Hash       `json:"merged,omitempty"`       // base's tip after merge_on_success
	Pull     *Pull           `json:"pull_request,omitempty"` // that merge_on_success opened instead of a merge
	// Secrets are the names of the secrets that came with the request.
	Secrets []string `json:"secrets,omitempty"`
	// Required are the checks that must have passed on the last change for the run to be verified, as the repository's
	// configuration had them when the run was claimed.
	Required []RequiredCheck `json:"required,omitempty"`
	// Imported is set for a run of another server, which only the words of that server prove.
	Imported  *Imported `json:"imported,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
}

// Imported is the origin of a run that came in a file of another server.
type Imported struct {
	Origin string `json:"origin,omitempty"` // the address of the server, as the file has it; empty if it had none
	Run    string `json:"run"`              // CALLER/RUN there
	Asker  string `json:"asker,omitempty"`  // the name of the person who asked there
	// Verdict is the one that the file has. The run is unverified here.
	Verdict  Verdict     `json:"verdict,omitempty"`
	Exported string      `json:"exported_by"` // by whom, as the file has it
	By       gitd.Person `json:"by"`          // who imported it here
	Time     time.Time   `json:"time"`        // of the import
}

// RequiredCheck is a check that a repository's configuration requires.
type RequiredCheck struct {
	Task    string `json:"task"`    // a task of the library, or [CommandCheck]
	Command string `json:"command"` // with its parameters
}

// Origin is the place outside ramus where a run was asked for, such as a mention in a thread.
type Origin struct {
	Source  string          `json:"source"`          // "slack"
	Session string          `json:"session"`         // key of the conversation: "slack:T1:C1:1700000000.000100"
	Key     string          `json:"key"`             // of the event: "C1:1700000000.000100"
	Event   json.RawMessage `json:"event,omitempty"` // the event, as the gateway understood it
}

// Told proves that a run's origin knows how the run ended. A starting server takes up each run that has an Origin and
// no Told.
type Told struct {
	Time time.Time       `json:"time"`
	Data json.RawMessage `json:"data,omitempty"` // the source's own, such as channel and ts of the message
}

// Name returns CALLER/RUN, such as "run:fancy-mallard/1".
func (r Run) Name() string { return r.Caller.String() + "/" + r.ID }

// Ended reports whether the run is complete or failed.
func (r Run) Ended() bool { return r.State == StateComplete || r.State == StateFailed }

// Title describes the run in one line of at most 200 bytes and an ellipsis.
func (r Run) Title() string {
	switch {
	case r.Workflow != "":
		return "workflow " + r.Workflow
	case r.Task != nil:
		return "task " + r.Task.Name
	}
	return text.Clip(r.Command, 200)
}

// ExitCode returns the run's exit code, and 0 if it has none.
func (r Run) ExitCode() int {
	if r.Exit == nil {
		return 0
	}
	return *r.Exit
}

// Passive reports whether the executor never works at the run. Such a run is a request, or a conversation's own record.
func (r Run) Passive() bool { return r.Kind == KindRequest || r.Kind == KindConversation }

// Aside reports whether the run is not the purpose of its caller. A sub-workflow on the caller's own branch is a part of the
// run that started it, and a passive run changes nothing.
func (r Run) Aside() bool { return r.Sub || r.Passive() }

// SetSession sets the session of the run's agent if e begins one.
func (r *Run) SetSession(e Event) {
	if e.Type == EventAgent && e.Kind == AgentSession {
		r.Session = e.Message
	}
}

// AgentSession is the kind of the [EventAgent] with which an agent's session begins. Its message is the session's id.
const AgentSession = "session"

// PermissionStep is between the step of a turn and the number of the question in the step of a question.
const PermissionStep = "/permission-"

// Gate is a question that a run asks a person, and waits.
type Gate struct {
	Step    string `json:"step"`
	Message string `json:"message"`
	// Command is the command that an agent wants to run. The message ends with it, as far as it is shown. It is empty
	// for other questions.
	Command string   `json:"command,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
	// Options are the answers that an agent accepts, in its order and words. A gate of a workflow has none.
	Options []GateOption `json:"options,omitempty"`
	Asked   time.Time    `json:"asked,omitzero"` // when the agent asked
}

// GateOption is one answer to a question of an agent. The agent chose all of its fields but Allows.
type GateOption struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Kind   string `json:"kind,omitempty"` // "allow_once", "allow_always", "reject_once", "reject_always"
	Allows bool   `json:"allows"`
}

// Option returns the option with an id.
func (g Gate) Option(id string) (o GateOption, ok bool) {
	at := slices.IndexFunc(g.Options, func(o GateOption) bool { return o.ID == id })
	if at < 0 {
		return GateOption{}, false
	}
	return g.Options[at], true
}

// Admits reports whether by may answer, if others let them. Everybody may if the gate has no list, or is nil.
func (g *Gate) Admits(by string) bool { return g == nil || len(g.Allowed) == 0 || g.Names(by) }

// Names reports whether the gate's list has by. It may list the user slack:U012 of Slack as U012.
func (g Gate) Names(by string) bool {
	if slices.Contains(g.Allowed, by) {
		return true
	}
	id, slack := strings.CutPrefix(by, "slack:")
	return slack && id != "" && slices.Contains(g.Allowed, id)
}
