package record

import (
	"encoding/json"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

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
	// Parent and Commit are the branch before and after a command. Commit is empty if nothing changed.
	Parent     gitd.Hash       `json:"parent,omitempty"`
	Commit     gitd.Hash       `json:"commit,omitempty"`
	With       []Move          `json:"with,omitempty"` // the same in the caller's additional repositories
	Tree       gitd.Hash       `json:"tree,omitempty"` // of a check, the tree of the files when it began
	Exit       *int            `json:"exit,omitempty"`
	OK         *bool           `json:"ok,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	DurationMS int64           `json:"duration_ms,omitempty"`
	Stdout     *Stream         `json:"stdout,omitempty"`
	Stderr     *Stream         `json:"stderr,omitempty"`
	State      State           `json:"state,omitempty"`
	Message    string          `json:"message,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"` // depends on Type
	// Words is how many bytes the step had printed to its standard output before the event. It places an agent's words
	// among its other actions. It is set while the step is at work.
	Words int64 `json:"words,omitempty"`
	// Span is the place of an EventOutput in the step's whole output. It is nil in other events.
	Span *Span `json:"span,omitempty"`
	// Reused is set if nothing ran, because the result of an earlier check was known.
	Reused *Reused `json:"reused,omitempty"`
}

// Reused names the check whose result another one has, because both would be the same.
type Reused struct {
	Run        string    `json:"run"` // CALLER/RUN
	Step       string    `json:"step"`
	At         time.Time `json:"at"`          // when it ended
	DurationMS int64     `json:"duration_ms"` // how long it took
}

// Span is a part of a step's output. A reader that has all bytes before To goes on with those from To on, also from another process
// of the server.
type Span struct {
	Seq  int64 `json:"seq"`  // of the EventStepStarted
	From int64 `json:"from"` // the first byte; 0 is the first of the output
	To   int64 `json:"to"`   // the byte after the last
}

// ReasonKilled is the reason of an [EventStepFinished] whose command was stopped, by a person or with its container.
const ReasonKilled = "killed"

// The types of events.
const (
	EventRunCreated   = "run.created"
	EventRunState     = "run.state"     // state, reason, message
	EventQueued       = "run.queued"    // message: place in line
	EventStepStarted  = "step.started"  // step, node, kind, command, parent
	EventOutput       = "step.output"   // never stored; message: text, kind: "stdout" or "stderr"
	EventStepFinished = "step.finished" // exit, ok, commit, streams, data: StepResult
	EventContainer    = "container"     // message: started, asleep, lost …, or ContainerWaits and the reason
	EventEgress       = "egress"        // message: host name; reason: allowed, refused
	EventGate         = "gate"          // a question to a person
	EventDecision     = "decision"      // the answer; data: {approved, by, comment}
	EventMerge        = "merge"         // data: Landed
	EventRecovered    = "recovered"     // the server was restarted; message: the state of the step
	EventNote         = "note"
	EventPolicy       = "policy"       // message: the runner chosen, reason: why
	EventPrompt       = "prompt"       // a prompt to the agent; message: the text, data: Prompt
	EventQueue        = "prompt.queue" // a change of the prompts that wait; kind: one of the Queue constants, data: QueueChange
	EventInterrupt    = "interrupt"    // the turn is to end before its time; step: the turn, kind: one of the Interrupt constants, message: by whom, data: Interrupt
	EventUsage        = "model.usage"  // a call of a model; message: provider and model, data: ModelCall
	EventMessage      = "message"      // a message at the run's origin; data: the source's own
	EventAgent        = "agent"        // an update of an agent of ProtocolACP; kind: the update's ("tool_call", "plan" …), message: in words, data: the update
	EventTool         = "tool"         // a call of a tool at the agent's door; message: its name, ok, data: the result
	EventHeard        = "heard"        // new input of a conversation; step: its key, data: the owner's own
	EventWork         = "work"         // work of a conversation; step: the run, kind: begun, ended, published, failed, retried
	EventOutbox       = "outbox"       // a message of a conversation to post; step: its key, data: the owner's own
	EventPosted       = "posted"       // the message was posted; message: where, ok: unset if it can never be
	EventSecret       = "secret"       // a secret's value was removed; message: its name and where
	EventBrowser      = "browser"      // a check of a page; message: its name, reason: the verdict, commit: of the page, data: BrowserCheck
	EventSetup        = "setup"        // a command that prepares a container; kind: install, setup or start; ok: unset when it begins; message: the end of its output
	EventSettings     = "settings"     // the repository's configuration; reason: "mistake" or "refused"; message: FILE:LINE:COLUMN: why
	EventCheck        = "check"        // a check that was skipped or, with reason "not_run", could not run; message: why, task, step: the one that tried
)

// The kinds of an [EventQueue].
const (
	QueueUnsaid  = "unsaid"  // a prompt was taken back
	QueueEdited  = "edited"  // its text was replaced
	QueueOrdered = "ordered" // the prompts were reordered
	QueueHeard   = "heard"   // the agent took the prompt into the turn that works
)

// QueueChange is the data of an [EventQueue].
type QueueChange struct {
	Key   string      `json:"key,omitempty"`   // of the prompt
	Text  string      `json:"text,omitempty"`  // of QueueEdited
	Order []string    `json:"order,omitempty"` // of QueueOrdered, keys of prompts that wait
	By    gitd.Person `json:"by,omitzero"`
}

// The kinds of an [EventInterrupt].
const (
	InterruptSay  = "say"  // a prompt is said at once
	InterruptStop = "stop" // a person stopped the turn
)

// Interrupt is the data of an [EventInterrupt].
type Interrupt struct {
	By gitd.Person `json:"by,omitzero"`
}

// Stream is one output stream of a command.
type Stream struct {
	Bytes     int64  `json:"bytes"`
	File      string `json:"file,omitempty"`      // below output/ in the sealed run
	Tail      string `json:"tail,omitempty"`      // the last 2 KiB as valid UTF-8
	Truncated bool   `json:"truncated,omitempty"` // the command wrote more than is kept
}

// EgressRefused is the reason of an [EventEgress] about a host that is not on the allowlist.
const EgressRefused = "refused"

// Places of a secret's value, the kind of an [EventSecret].
const (
	SecretInOutput   = "output"
	SecretInArtifact = "artifact"
	SecretInState    = "state"  // an agent's memory
	SecretInCommit   = "commit" // the commit differs from the files that the command left
)

// ContainerWaits begins the message of an [EventContainer] about a container that takes long to start.
const ContainerWaits = "waits: "

// NoteLeftOut is the reason of an [EventNote] about something that the evidence lacks.
const NoteLeftOut = "left_out"

// NoteRecovery is the reason of an [EventNote] about an image that could not be built, and the container in its place.
const NoteRecovery = "recovery"

// NoteRule is the reason of an [EventNote] about a command that a rule of the base kept from running.
const NoteRule = "rule"

// NoteUnasked is the reason of an [EventNote] about a command that needs a person in a run that asks nobody.
const NoteUnasked = "unasked"

// NoteService is the reason of an [EventNote] about a service that ended by itself.
const NoteService = "service"

// StepResult is the data of an [EventStepFinished].
type StepResult struct {
	Result workflow.StepResult `json:"result"`
}
