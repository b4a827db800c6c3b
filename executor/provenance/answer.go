package provenance

import (
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Question asks for the causes of lines.
type Question struct {
	Repo *gitd.Repo
	Rev  string // branch, tag, ref or commit
	Path string // of the file, from the root
	// From and To are the first and the last line, from 1. Zero means the first and the last of the file.
	From, To int
	// Brief leaves out outputs, checks and later runs, for an answer about a whole file.
	Brief bool
	// Sees reports whether the asker sees a run. Nil means all.
	Sees func(record.Run) bool
}

// Answer has lines of a file with their causes.
type Answer struct {
	Repo   string    `json:"repo"`
	Commit gitd.Hash `json:"commit"` // at which the file was read
	Path   string    `json:"path"`
	Lines  []Line    `json:"lines"`
	Causes []Cause   `json:"causes"` // in the order in which lines have them first
}

// Line is one line of a file.
type Line struct {
	Line  int    `json:"line"` // from 1
	Was   int    `json:"was"`  // its number in the file of the cause
	Path  string `json:"path"` // of the file of the cause
	Text  string `json:"text"`
	Cause int    `json:"cause"` // place in [Answer.Causes]
}

// Cause is the commit of a line, with the step that made it. Fields of a step are zero if no step is known.
type Cause struct {
	Commit  gitd.Hash   `json:"commit"`
	Subject string      `json:"subject"`
	Author  gitd.Person `json:"author"`
	When    time.Time   `json:"when"`
	// First is set if history ends at Commit.
	First bool `json:"first,omitempty"`
	// Squashes are the squash commits that git looked through to find Commit.
	Squashes []gitd.Hash `json:"squashes,omitempty"`

	Run    string      `json:"run,omitempty"` // CALLER/RUN
	Kind   record.Kind `json:"kind,omitempty"`
	Branch string      `json:"branch,omitempty"`
	Step   string      `json:"step,omitempty"`
	Node   string      `json:"node,omitempty"`
	// Was is the commit that the step made, if Commit is its copy on another branch.
	Was gitd.Hash `json:"was,omitempty"`
	// Inside is set if the command of the step made Commit by itself.
	Inside     bool      `json:"inside,omitempty"`
	Command    string    `json:"command,omitempty"`
	Task       string    `json:"task,omitempty"`
	Time       time.Time `json:"time,omitzero"` // when the step ended
	Exit       *int      `json:"exit,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	DurationMS int64     `json:"duration_ms,omitempty"`
	Stdout     string    `json:"stdout,omitempty"` // its end
	Stderr     string    `json:"stderr,omitempty"` // its end

	Agent   string   `json:"agent,omitempty"`
	Prompts []Prompt `json:"prompts,omitempty"` // that the agent got with the turn
	// Person asked for the run.
	Person gitd.Person `json:"person,omitzero"`
	// Origin is the place where the run was asked for. Its event is left out.
	Origin *record.Origin `json:"origin,omitempty"`
	Ticket *record.Ticket `json:"ticket,omitempty"`
	Pull   *record.Pull   `json:"pull_request,omitempty"`
	// Checks are those that ran on the branch after the step, in the same run and in later ones of the caller.
	Checks []Check `json:"checks,omitempty"`

	// Claimed is the run that the commit names, although no record that the asker sees has the commit. It does not show
	// whether there is such a run.
	Claimed string `json:"claimed,omitempty"`
}

// Prompt is a text that an agent got.
type Prompt struct {
	By   string `json:"by,omitempty"`
	Text string `json:"text"` // its first 4 KiB
}

// Check is a check of the files of a branch after a step.
type Check struct {
	Run string `json:"run"`
	record.ManifestCheck
}

// Known reports whether the step that made the commit is known.
func (c Cause) Known() bool { return c.Run != "" }
