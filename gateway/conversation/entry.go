package conversation

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Kind is the kind of an entry.
type Kind string

// The kinds of entries.
const (
	KindPrompt    Kind = "prompt"    // words of a person
	KindWords     Kind = "words"     // words of the agent
	KindThought   Kind = "thought"   // a thought of the agent
	KindTool      Kind = "tool"      // a call of a tool
	KindPlan      Kind = "plan"      // the agent's plan, as it last was
	KindQuestion  Kind = "question"  // a question to a person, and its answer
	KindPermitted Kind = "permitted" // an answer of the policy to the agent
	KindCommand   Kind = "command"   // a command, a task or a node of a workflow
	KindCheck     Kind = "check"     // a check, or one that was skipped or could not run
	KindCommit    Kind = "commit"    // a commit of the turn
	KindInterrupt Kind = "interrupt" // a person ended the turn
	KindSecret    Kind = "secret"    // a secret's value was removed
	KindNote      Kind = "note"      // a note of ramus
	KindBrowser   Kind = "browser"   // a check of a page
	KindRefused   Kind = "refused"   // the network refused a host
	KindFailure   Kind = "failure"   // the run failed
	KindEnd       Kind = "end"       // the run is complete
)

// Entry is one part of a conversation. Fields that its kind does not have are empty.
type Entry struct {
	ID   string    `json:"id"` // RUN/SEQ, or RUN/SEQ.BYTE for words
	Kind Kind      `json:"kind"`
	Time time.Time `json:"time"`
	// Folded entries are part of the capsule of their turn, which has ended.
	Folded bool `json:"folded,omitempty"`

	Text string `json:"text,omitempty"`
	// Span is the place of words in the output of the turn. Text has them if the reader asked for them.
	Span *record.Span `json:"span,omitempty"`
	// Open reports that more words may follow.
	Open bool `json:"open,omitempty"`

	By    *gitd.Person        `json:"by,omitempty"` // of a prompt or an interruption
	From  string              `json:"from,omitempty"`
	Key   string              `json:"key,omitempty"` // of a prompt, for changes of the queue
	Now   bool                `json:"now,omitempty"`
	Files []record.Attachment `json:"files,omitempty"`

	Tool     *acp.Tool        `json:"tool,omitempty"`
	Page     *CheckedPage     `json:"page,omitempty"` // of a check of a page
	Plan     []acp.PlanItem   `json:"plan,omitempty"`
	Gate     *record.Gate     `json:"gate,omitempty"`
	Decision *record.Decision `json:"decision,omitempty"`
	Decided  time.Time        `json:"decided,omitzero"`

	Command    string    `json:"command,omitempty"`
	Step       string    `json:"step,omitempty"`
	Exit       *int      `json:"exit,omitempty"`
	OK         *bool     `json:"ok,omitempty"` // nil while it is not known
	Reason     string    `json:"reason,omitempty"`
	DurationMS int64     `json:"duration_ms,omitempty"`
	Commit     gitd.Hash `json:"commit,omitempty"`
	Parent     gitd.Hash `json:"parent,omitempty"`
	Tail       string    `json:"tail,omitempty"` // the end of the output

	filled int64 // of words, the end of Span when Text was read
}

// CheckedPage has the views of a page that a browser checked.
type CheckedPage struct {
	Views []CheckedView `json:"views"`
}

// CheckedView is one view of a page.
type CheckedView struct {
	Viewport Viewport `json:"viewport"`
	// Screenshot is the name of the picture among the files of the run, or empty.
	Screenshot string `json:"screenshot,omitempty"`
}

// Viewport is the size of a view, in pixels of CSS.
type Viewport struct {
	Name   string `json:"name"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
}

// State is the state of a turn.
type State string

// The states of a turn.
const (
	StateWaiting State = "waiting" // it has not begun
	StateWorking State = "working"
	StateAsking  State = "asking" // a person has to answer
	StateDone    State = "done"
	StateStopped State = "stopped" // a person ended it
	StateFailed  State = "failed"
)

// Turn is one turn of an agent, or another run.
type Turn struct {
	ID      string      `json:"id"`  // that of its first entry
	Run     string      `json:"run"` // CALLER/RUN
	Kind    record.Kind `json:"kind"`
	Agent   string      `json:"agent,omitempty"`
	Session string      `json:"session,omitempty"` // the session's label
	Step    string      `json:"step,omitempty"`
	State   State       `json:"state"`
	Began   time.Time   `json:"began,omitzero"`
	Ended   time.Time   `json:"ended,omitzero"`
	Capsule Capsule     `json:"capsule"`
	Entries []*Entry    `json:"entries"`

	seq int64 // of the step's beginning; 0 before it
}

// Over reports whether the turn has ended.
func (t *Turn) Over() bool {
	return t.State == StateDone || t.State == StateStopped || t.State == StateFailed
}

// Capsule sums a turn up.
type Capsule struct {
	DurationMS int64 `json:"duration_ms,omitempty"`
	Tools      int   `json:"tools,omitempty"`
	Commits    int   `json:"commits,omitempty"`
	// CostMicros is in millionths of the unit of the configured prices. It is 0 if no price is known.
	CostMicros int64 `json:"cost_micros,omitempty"`
	Tokens     int64 `json:"tokens,omitempty"`
	// Estimated reports that a part of the counts is an estimate.
	Estimated bool `json:"estimated,omitempty"`
	Skipped   int  `json:"skipped,omitempty"` // checks
	Folded    int  `json:"folded,omitempty"`  // entries
}

func entryID(run record.Run, seq int64) string { return fmt.Sprintf("%s/%d", run.ID, seq) }

// wordsID returns the id of words that begin at a byte of the output of the step that began with an event.
func wordsID(run record.Run, seq, from int64) string {
	return fmt.Sprintf("%s/%d.%d", run.ID, seq, from)
}

// decode returns the data of an event, and the zero value if it has another shape.
func decode[T any](data json.RawMessage) (v T) {
	_ = json.Unmarshal(data, &v) // an agent may have sent anything
	return v
}
