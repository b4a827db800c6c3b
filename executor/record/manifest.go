package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// Manifest is the evidence of a run: what was done and what came of it, as the
// executor saw it. It is evidence/manifest.json of the run's ref, made for every
// run that has ended, however it did, and for those that wait for a person.
// Fields are only ever added; docs/evidence.md explains them.
type Manifest struct {
	Run    string `json:"run"`
	Kind   Kind   `json:"kind,omitempty"`
	State  State  `json:"state"`
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"` // why it failed, in words
	// Verdict says in one word whether what stands on the branch was checked. Why
	// it is not verified stands in Unverified.
	Verdict    Verdict   `json:"verdict,omitempty"`
	Repo       string    `json:"repo"`
	Branch     string    `json:"branch"`
	Base       string    `json:"base"`
	BaseCommit gitd.Hash `json:"base_commit"`
	// BaseRefreshed is when the base was last brought up to date with its upstream; zero: not known.
	BaseRefreshed time.Time `json:"base_refreshed,omitzero"`
	Start         gitd.Hash `json:"start"`
	Head          gitd.Hash `json:"head"`
	// Tree is the tree of Head. A check verifies the run if it began with these files.
	Tree     gitd.Hash         `json:"tree,omitempty"`
	Merged   gitd.Hash         `json:"merged,omitempty"` // the base's tip after the branch was merged into it
	Engine   string            `json:"engine"`
	Image    string            `json:"image,omitempty"`
	Agent    string            `json:"agent,omitempty"`
	Policy   *ManifestPolicy   `json:"policy,omitempty"`
	Prompts  []ManifestPrompt  `json:"prompts,omitempty"` // what the agent was asked, in order
	Usage    *Usage            `json:"usage,omitempty"`   // of models
	Commands []ManifestCommand `json:"commands"`
	Tests    []ManifestTests   `json:"tests,omitempty"`  // every time that tests were run, in order
	Checks   []ManifestCheck   `json:"checks,omitempty"` // every check, those that did not run too, in order
	// Browser are the checks by a browser, in order; their files are below
	// artifacts/browser/ in Files. Those of sub-workflows on the run's own branch are among them.
	Browser    []BrowserCheck   `json:"browser,omitempty"`
	Changed    []gitd.Change    `json:"changed"`
	Files      []ManifestFile   `json:"files"`
	Egress     []ManifestEgress `json:"egress,omitempty"`
	Unverified []string         `json:"unverified,omitempty"` // what could not be run, checked or kept, in words
	CreatedAt  time.Time        `json:"created_at,omitzero"`
	StartedAt  time.Time        `json:"started_at,omitzero"` // zero: it ended before its turn came
	EndedAt    time.Time        `json:"ended_at,omitzero"`   // zero: it waits for a person
	DurationMS int64            `json:"duration_ms"`         // from StartedAt to EndedAt
}

// Verdict says whether what a run left on its branch was checked.
type Verdict string

// The verdicts.
const (
	// VerdictVerified: the last change was followed by a check that ran and
	// passed, and by none that failed.
	VerdictVerified Verdict = "verified"
	// VerdictUnverified: something changed, or was to be checked, and was not.
	VerdictUnverified Verdict = "unverified"
	// VerdictFailed: the run failed, or a check of what stands now did.
	VerdictFailed Verdict = "failed"
	// VerdictNone: nothing changed and there was nothing to check.
	VerdictNone Verdict = "none"
)

// CheckResult is how a check ended.
type CheckResult string

// The results of checks.
const (
	CheckPassed  CheckResult = "passed"
	CheckFailed  CheckResult = "failed"
	CheckSkipped CheckResult = "skipped" // it had nothing to look at, or was not wanted
	CheckNotRun  CheckResult = "not_run" // it was to run and could not
)

// ManifestCheck is one check: tests, lint, build or a look by a browser, by a task of the library.
type ManifestCheck struct {
	Check string `json:"check"` // "tests", "lint", "build", "browser"
	Task  string `json:"task"`
	// Command is the task with its parameters: what of the code it looked at.
	Command string      `json:"command,omitempty"`
	Step    string      `json:"step,omitempty"`
	Tool    string      `json:"tool,omitempty"` // "go", "eslint"
	Result  CheckResult `json:"result"`
	Why     string      `json:"why,omitempty"` // it did not pass, in words
	// Commit is the branch's tip when the check began, and Tree the tree of the files then, as
	// ramus found it. Current tells that Tree is the tree of the run's end: the
	// verdict ignores checks of other trees.
	Commit     gitd.Hash `json:"commit,omitempty"`
	Tree       gitd.Hash `json:"tree,omitempty"`
	Current    bool      `json:"current,omitempty"`
	DurationMS int64     `json:"duration_ms,omitempty"`
}

// ManifestTests is what one run of tests came to.
type ManifestTests struct {
	Step      string `json:"step"`
	Framework string `json:"framework"`
	Passed    int    `json:"passed"`
	Failed    int    `json:"failed"`
	Skipped   int    `json:"skipped"`
	// FailedNames are the first 200 that failed.
	FailedNames []string `json:"failed_names,omitempty"`
	// Unknown: the output could not be counted; only the exit code speaks.
	Unknown bool      `json:"unknown,omitempty"`
	OK      bool      `json:"ok"` // the exit code was 0
	Commit  gitd.Hash `json:"commit,omitempty"`
}

// ManifestPolicy is which runner was chosen for a request, and why.
type ManifestPolicy struct {
	Runner string `json:"runner"`
	Reason string `json:"reason"`
}

// ManifestPrompt is something that was said to the run's agent.
type ManifestPrompt struct {
	Time time.Time `json:"time,omitzero"`
	By   string    `json:"by,omitempty"`
	Text string    `json:"text"` // its first 4 KiB; all of it is in the journal
}

// ManifestCommand is one command of a run.
type ManifestCommand struct {
	Step       string    `json:"step"`
	Node       string    `json:"node,omitempty"`
	Task       string    `json:"task,omitempty"`
	Command    string    `json:"command"`
	Exit       *int      `json:"exit,omitempty"`
	OK         bool      `json:"ok"`
	Reason     string    `json:"reason,omitempty"`
	DurationMS int64     `json:"duration_ms"`
	Commit     gitd.Hash `json:"commit,omitempty"` // empty: nothing changed
}

// ManifestFile is one file of the run's evidence.
type ManifestFile struct {
	Name   string `json:"name"` // path in the sealed run
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Type   string `json:"type,omitempty"`   // media type, from its content
	Stored bool   `json:"stored,omitempty"` // in the artifact store, by its hash, not in git
}

// ManifestEgress is a host that a container asked for.
type ManifestEgress struct {
	Host    string `json:"host"`
	Verdict string `json:"verdict"` // allowed, refused
}

// Changed tells whether the run moved its branch. A request that was answered
// without running anything may have none.
func (r Run) Changed() bool { return r.Start != "" && r.Head != "" && r.Start != r.Head }

// maxPromptText is how much of a prompt the manifest repeats.
const maxPromptText = 4 << 10

// add takes up what one event says.
func (m *Manifest) add(e Event) {
	switch e.Type {
	case EventStepFinished:
		m.Commands = append(m.Commands, ManifestCommand{Step: e.Step, Node: e.Node, Task: e.Task, Command: e.Command, Exit: e.Exit,
			OK: e.OK != nil && *e.OK, Reason: e.Reason, DurationMS: e.DurationMS, Commit: e.Commit})
		for _, s := range []*Stream{e.Stdout, e.Stderr} {
			if s != nil && s.Truncated {
				m.Unverified = append(m.Unverified, fmt.Sprintf("of the %d bytes that %s printed only a part is kept", s.Bytes, e.Step))
			}
		}
	case EventSecret:
		// What the command left, and what it may have been tested with, is not what is kept.
		if e.Kind == SecretInCommit || e.Kind == SecretInArtifact {
			m.Unverified = append(m.Unverified, "the value of a secret was taken out: "+e.Message)
		}
	case EventBrowser:
		m.Browser = append(m.Browser, BrowserChecks([]Event{e})...)
	case EventEgress:
		m.Egress = append(m.Egress, ManifestEgress{Host: e.Message, Verdict: e.Reason})
	case EventNote:
		if e.Reason == NoteLeftOut {
			m.Unverified = append(m.Unverified, e.Step+": "+e.Message)
		}
	case EventPolicy:
		m.Policy = &ManifestPolicy{Runner: e.Message, Reason: e.Reason}
	case EventPrompt:
		var p Prompt
		_ = json.Unmarshal(e.Data, &p) // who said it is all that would be missing
		m.Prompts = append(m.Prompts, ManifestPrompt{Time: e.Time, By: p.By.Name, Text: text.Clip(e.Message, maxPromptText)})
	}
}

// unfinished names the steps that began and have no result.
func unfinished(events []Event) (words []string) {
	for _, e := range OpenSteps(events) {
		words = append(words, fmt.Sprintf("%s began but has no result", e.Step))
	}
	return words
}

// OpenSteps returns the step.started events of steps without a later step.finished event, each step once.
func OpenSteps(events []Event) (steps []Event) {
	for _, e := range events {
		switch e.Type {
		case EventStepStarted:
			steps = append(closed(steps, e.Step), e)
		case EventStepFinished:
			steps = closed(steps, e.Step)
		}
	}
	return steps
}

func closed(steps []Event, step string) []Event {
	return slices.DeleteFunc(steps, func(e Event) bool { return e.Step == step })
}

// NewManifest returns the evidence of a run from its record and its journal. tree is the tree of the run's head, and subs are the
// manifests of its sub-workflows by step. The engine, the image and the lists of files and changes are left to the caller.
func NewManifest(r Run, tree gitd.Hash, events []Event, subs map[string]Manifest) Manifest {
	m := Manifest{Run: r.Name(), Kind: r.Kind, State: r.State, Reason: r.Reason, Error: r.Error, Repo: r.Repo, Branch: r.Branch,
		Base: r.Base, BaseCommit: r.BaseCommit, Start: r.Start, Head: r.Head, Tree: tree, Merged: r.Merged,
		Usage: r.Usage, Commands: []ManifestCommand{}, Changed: []gitd.Change{}, Files: []ManifestFile{},
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt}
	if !r.StartedAt.IsZero() && !r.EndedAt.IsZero() {
		m.DurationMS = r.EndedAt.Sub(r.StartedAt).Milliseconds()
	}
	if r.Agent != nil {
		m.Agent = r.Agent.Name
		m.Prompts = append(m.Prompts, ManifestPrompt{Time: r.CreatedAt, By: r.Asker.Name, Text: text.Clip(r.Agent.Prompt, maxPromptText)})
	}
	for _, e := range events {
		m.add(e)
		if e.Type == EventStepFinished && e.Kind == string(workflow.KindWorkflow) {
			m.Browser = append(m.Browser, checksOfSub(e.Step, subs[e.Step].Browser)...)
		}
	}
	m.Unverified = append(m.Unverified, unfinished(events)...)
	m.Tests, m.Checks = checks(tree, events, subs)
	var why []string
	m.Verdict, why = verdict(r, m.Checks)
	m.Unverified = append(m.Unverified, why...)
	return m
}
