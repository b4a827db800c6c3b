package executor

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// State of a run.
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

// Reason why a run failed: a closed list; each has a sentence of what to do, see Reason.Hint.
type Reason string

// The reasons.
const (
	ReasonCommandFailed Reason = "command_failed" // a step failed and no transition handled it
	ReasonTimedOut      Reason = "timed_out"
	ReasonCancelled     Reason = "cancelled"
	ReasonRejected      Reason = "rejected" // a person said no at a gate
	ReasonMergeConflict Reason = "merge_conflict"
	// ReasonConflict: somebody pushed to the branch while a command ran, and both changed the
	// same. The branch has what was pushed; refs/ramus/conflicts has what the command left.
	ReasonConflict Reason = "conflict"
	// ReasonNotCommitted: a part of what a command left could not be committed.
	ReasonNotCommitted Reason = "not_committed"
	// ReasonBranchGone: the branch was deleted while the run was at work, or before.
	ReasonBranchGone    Reason = "branch_deleted"
	ReasonContainerLost Reason = "container_lost"
	ReasonUnavailable   Reason = "engine_unavailable"
	ReasonDiskFull      Reason = "disk_full"
	ReasonOutOfMemory   Reason = "out_of_memory"
	ReasonInterrupted   Reason = "interrupted" // the server was stopped in the middle, and it could not go on
	ReasonBadInput      Reason = "bad_input"
	ReasonModel         Reason = "model_failed"
	ReasonBudget        Reason = "over_budget" // an agent failed when its run might use no more of models
	ReasonEnvLost       Reason = "env_lost"    // the values of a command's environment went with the server before it began
	ReasonInternal      Reason = "internal"
)

// Kind of a run.
type Kind string

// The kinds of runs.
const (
	KindWorkflow Kind = "workflow"
	KindExec     Kind = "exec"  // one command
	KindTask     Kind = "task"  // one library task
	KindAgent    Kind = "agent" // a coding agent, and the checks after it
	// KindRequest: it is not yet decided what is to be done, or the request
	// was answered without running anything. See [Executor.Claim].
	KindRequest Kind = "request"
	// KindConversation: a task that goes on over several runs. See [Executor.Stand].
	KindConversation Kind = "conversation"
)

// Run is one piece of work of a caller, as it is kept in run.json and shown to people.
type Run struct {
	ID         string    `json:"id"`     // unique within the caller
	Caller     Caller    `json:"caller"` // "run:fancy-mallard"
	Kind       Kind      `json:"kind"`
	Repo       string    `json:"repo"`
	Base       string    `json:"base"`        // branch it was cut from
	BaseCommit gitd.Hash `json:"base_commit"` // and where that stood
	// BaseRefreshed is when the base was last known to be what its upstream has, as
	// of the run's beginning; zero: never, or it has no upstream.
	BaseRefreshed time.Time       `json:"base_refreshed,omitzero"`
	Branch        string          `json:"branch"`
	Start         gitd.Hash       `json:"start"`          // branch tip when the run began
	Head          gitd.Hash       `json:"head,omitempty"` // branch tip when last looked at
	Workflow      string          `json:"workflow,omitempty"`
	File          string          `json:"file,omitempty"` // where the workflow was read from
	Input         map[string]any  `json:"input,omitempty"`
	Output        map[string]any  `json:"output,omitempty"` // a workflow's state at its end
	Task          *TaskCall       `json:"task,omitempty"`
	Exec          *Command        `json:"exec,omitempty"`
	Agent         *AgentCall      `json:"agent,omitempty"`
	Session       string          `json:"session,omitempty"` // id of the agent's own session, where it tells one
	Origin        *Origin         `json:"origin,omitempty"`  // nil: asked for by the command line or the API
	Told          *Told           `json:"told,omitempty"`    // that, and how, the origin was told of the run's end
	Record        json.RawMessage `json:"record,omitempty"`  // of KindConversation: what its owner keeps
	Usage         *Usage          `json:"usage,omitempty"`   // of models, by the run's agent
	Sub           bool            `json:"sub,omitempty"`     // started by a node of Parent, which goes on with it
	Command       string          `json:"command,omitempty"`
	Asker         gitd.Person     `json:"asker"`
	State         State           `json:"state"`
	Reason        Reason          `json:"reason,omitempty"`
	Error         string          `json:"error,omitempty"`  // in words
	Hint          string          `json:"hint,omitempty"`   // what to do
	Parent        string          `json:"parent,omitempty"` // CALLER/RUN it was started, retried or forked from
	Fork          *Fork           `json:"fork,omitempty"`   // where its caller began, of that one's first run
	From          string          `json:"from,omitempty"`   // node it was resumed at
	Step          string          `json:"step,omitempty"`   // current or last step
	Gate          *Gate           `json:"gate,omitempty"`   // what a person is asked
	Place         int             `json:"place,omitempty"`  // in line for a container
	Exit          *int            `json:"exit,omitempty"`   // of KindExec
	Image         string          `json:"image,omitempty"`  // of the container, with its digest; empty: the engine has no images
	Merged        gitd.Hash       `json:"merged,omitempty"` // base's tip after merge_on_success
	CreatedAt     time.Time       `json:"created_at"`
	StartedAt     time.Time       `json:"started_at,omitzero"`
	EndedAt       time.Time       `json:"ended_at,omitzero"`
}

// Origin is where a run was asked for outside ramus: a mention in a thread.
type Origin struct {
	Source  string          `json:"source"`          // "slack"
	Session string          `json:"session"`         // key of the conversation: "slack:T1:C1:1700000000.000100"
	Key     string          `json:"key"`             // of the event: "C1:1700000000.000100"
	Event   json.RawMessage `json:"event,omitempty"` // the event, as the gateway understood it
}

// Told is the proof that a run's origin knows how the run ended: what was
// posted, where. A run with an Origin and without Told is taken up again when
// the server starts.
type Told struct {
	Time time.Time       `json:"time"`
	Data json.RawMessage `json:"data,omitempty"` // of the source's own: channel and ts of the message
}

// Usage is what a run's agent used of models.
type Usage struct {
	Calls        int64 `json:"calls"`
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CostMicros   int64 `json:"cost_micros"` // millionths of the prices' currency unit; 0 where no price is known
	// Exhausted: a call was refused or ended because the budget was used up.
	Exhausted bool `json:"exhausted,omitempty"`
}

// Name is how a run is written: "run:fancy-mallard/RUN".
func (r Run) Name() string { return r.Caller.String() + "/" + r.ID }

// Ended tells whether the run is complete or failed.
func (r Run) Ended() bool { return r.State == StateComplete || r.State == StateFailed }

// Gate is a question that a run waits with.
type Gate struct {
	Step    string   `json:"step"`
	Message string   `json:"message"`
	Allowed []string `json:"allowed,omitempty"`
}

// Names tells whether the gate lists somebody who answers. A user of Slack, who answers as
// slack:U012, is also listed as U012.
func (g Gate) Names(by string) bool {
	if slices.Contains(g.Allowed, by) {
		return true
	}
	id, slack := strings.CutPrefix(by, "slack:")
	return slack && id != "" && slices.Contains(g.Allowed, id)
}

// Event is one line of a journal.
type Event struct {
	Seq     int64     `json:"seq"` // 1, 2, 3 … within the run
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`          // one of the Event constants
	Run     string    `json:"run,omitempty"` // Run.Name, in streams of several runs
	Step    string    `json:"step,omitempty"`
	Node    string    `json:"node,omitempty"`
	Kind    string    `json:"kind,omitempty"` // of the step
	Command string    `json:"command,omitempty"`
	Task    string    `json:"task,omitempty"`
	// Parent and Commit: the branch before and after a command. Commit is empty when nothing changed.
	Parent     gitd.Hash       `json:"parent,omitempty"`
	Commit     gitd.Hash       `json:"commit,omitempty"`
	Tree       gitd.Hash       `json:"tree,omitempty"` // of a check: of the files when it began
	Exit       *int            `json:"exit,omitempty"`
	OK         *bool           `json:"ok,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	DurationMS int64           `json:"duration_ms,omitempty"`
	Stdout     *Stream         `json:"stdout,omitempty"`
	Stderr     *Stream         `json:"stderr,omitempty"`
	State      State           `json:"state,omitempty"`
	Message    string          `json:"message,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"` // of the type's own
}

// The types of events.
const (
	EventRunCreated   = "run.created"
	EventRunState     = "run.state"     // state, reason, message
	EventQueued       = "run.queued"    // message: place in line
	EventStepStarted  = "step.started"  // step, node, kind, command, parent
	EventOutput       = "step.output"   // live only, never stored: message is text, kind "stdout" or "stderr"
	EventStepFinished = "step.finished" // exit, ok, commit, streams, data: result for the machine
	EventContainer    = "container"     // message: started, asleep, lost …
	EventEgress       = "egress"        // message: host name; reason: allowed, refused
	EventGate         = "gate"          // a person is asked
	EventDecision     = "decision"      // and has answered; data {approved, by, comment}
	EventMerge        = "merge"         // data: gitd.MergeResult
	EventRecovered    = "recovered"     // the server was restarted; message: what became of the step
	EventNote         = "note"
	EventPolicy       = "policy"      // which runner was chosen; message: runner, reason: why
	EventPrompt       = "prompt"      // somebody said something to the agent; message: the text, data: Prompt
	EventUsage        = "model.usage" // a call of a model; message: provider and model, data: ModelCall
	EventMessage      = "message"     // something was posted at the run's origin; data: of the source's own
	EventAgent        = "agent"       // what an agent of ProtocolACP did; kind: of the update ("tool_call", "plan" …), message: in words, data: as it came
	EventTool         = "tool"        // an agent called a tool at its door; message: its name, ok, data: what came of it
	EventHeard        = "heard"       // of a conversation: something to be worked on was said; step: its key, data: of the owner's own
	EventWork         = "work"        // of a conversation: step: the run, kind: begun, ended, published, failed, retried
	EventOutbox       = "outbox"      // of a conversation: something is to be posted; step: its key, data: of the owner's own
	EventPosted       = "posted"      // and was; message: where, ok: unset when it never can be
	EventSecret       = "secret"      // a secret's value was removed; message: its name and where
	EventBrowser      = "browser"     // a page was looked at; message: the check's name, reason: the verdict, commit: of what, data: BrowserCheck
	EventCheck        = "check"       // a check that was skipped or (reason "not_run") could not run; message: why, task: which, step: the one that tried
)

// Stream is one output stream of a command.
type Stream struct {
	Bytes     int64  `json:"bytes"`
	File      string `json:"file,omitempty"`      // below output/ in the sealed run
	Tail      string `json:"tail,omitempty"`      // the last 2 KiB as valid UTF-8
	Truncated bool   `json:"truncated,omitempty"` // more was written than is kept
}
