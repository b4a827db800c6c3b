package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// ManifestPath is the file with the manifest in a run's ref. MaxManifest bounds it, in bytes.
const (
	ManifestPath = "evidence/manifest.json"
	MaxManifest  = 256 << 20
)

// Manifest is the evidence of a run as the executor saw it. It is at [ManifestPath] in the run's ref. Each run that has
// ended or waits for a person has one. Fields are only added. docs/evidence.md explains them.
type Manifest struct {
	Run    string `json:"run"`
	Kind   Kind   `json:"kind,omitempty"`
	State  State  `json:"state"`
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"` // why it failed, in a sentence
	// Verdict reports whether the files of the branch were checked. Unverified has the reasons if they were not.
	Verdict    Verdict   `json:"verdict,omitempty"`
	Repo       string    `json:"repo"`
	Branch     string    `json:"branch"`
	Base       string    `json:"base"`
	BaseCommit gitd.Hash `json:"base_commit"`
	// BaseRefreshed is the time at which the base was last brought up to date with its upstream. Zero means unknown.
	BaseRefreshed time.Time `json:"base_refreshed,omitzero"`
	Start         gitd.Hash `json:"start"`
	Head          gitd.Hash `json:"head"`
	// Tree is the tree of Head. A check verifies the run if it began with these files.
	Tree     gitd.Hash         `json:"tree,omitempty"`
	Merged   gitd.Hash         `json:"merged,omitempty"`       // the base's tip after the merge of the branch
	Pull     *Pull             `json:"pull_request,omitempty"` // that was opened instead of a merge
	Engine   string            `json:"engine"`
	Image    string            `json:"image,omitempty"`
	Agent    string            `json:"agent,omitempty"`
	Policy   *ManifestPolicy   `json:"policy,omitempty"`
	Prompts  []ManifestPrompt  `json:"prompts,omitempty"` // of the agent, in order
	Usage    *Usage            `json:"usage,omitempty"`   // of models
	Setup    []ManifestCommand `json:"setup,omitempty"`   // commands that prepared its containers
	Commands []ManifestCommand `json:"commands"`
	Tests    []ManifestTests   `json:"tests,omitempty"`  // each run of tests, in order
	Checks   []ManifestCheck   `json:"checks,omitempty"` // each check, also if it did not run, in order
	// Browser has the checks by a browser in order, also those of sub-workflows on the run's own branch. Their files are below
	// artifacts/browser/ in Files.
	Browser []BrowserCheck `json:"browser,omitempty"`
	Changed []gitd.Change  `json:"changed"`
	// With has the additional repositories of the caller.
	With       []ManifestAddition `json:"with,omitempty"`
	Files      []ManifestFile     `json:"files"`
	Egress     []ManifestEgress   `json:"egress,omitempty"`
	Unverified []string           `json:"unverified,omitempty"` // sentences about work that could not be run, checked or kept
	// Imported is set for a run of another server. Everything else but it, and the verdict, is the word of that server.
	Imported   *Imported `json:"imported,omitempty"`
	CreatedAt  time.Time `json:"created_at,omitzero"`
	StartedAt  time.Time `json:"started_at,omitzero"` // zero if it ended before its turn
	EndedAt    time.Time `json:"ended_at,omitzero"`   // zero while it waits for a person
	DurationMS int64     `json:"duration_ms"`         // from StartedAt to EndedAt
}

// Verdict reports whether the files that a run left on its branch were checked.
type Verdict string

// The verdicts.
const (
	// VerdictVerified means that after the last change a check ran and passed, and none failed.
	VerdictVerified Verdict = "verified"
	// VerdictUnverified means that a change, or a check that was asked for, was not checked.
	VerdictUnverified Verdict = "unverified"
	// VerdictFailed means that the run failed, or a check of the present files.
	VerdictFailed Verdict = "failed"
	// VerdictNone means that nothing changed and nothing was to be checked.
	VerdictNone Verdict = "none"
)

// CheckResult is the result of a check.
type CheckResult string

// The results of checks.
const (
	CheckPassed  CheckResult = "passed"
	CheckFailed  CheckResult = "failed"
	CheckSkipped CheckResult = "skipped" // there was nothing to check, or it was not wanted
	CheckNotRun  CheckResult = "not_run" // it could not run
)

// ManifestCheck is one check by a task of the library, of tests, lint, build or a page.
type ManifestCheck struct {
	Check string `json:"check"` // "tests", "lint", "build", "browser"
	Task  string `json:"task"`
	// Command is the task with its parameters, which select the code that it checks.
	Command string      `json:"command,omitempty"`
	Step    string      `json:"step,omitempty"`
	Tool    string      `json:"tool,omitempty"` // "go", "eslint"
	Result  CheckResult `json:"result"`
	Why     string      `json:"why,omitempty"` // it did not pass, in a sentence
	// Commit is the branch's tip when the check began, and Tree the tree of the files then, computed by ramus. Current is set if Tree
	// is the tree at the run's end. The verdict ignores checks of other trees.
	Commit  gitd.Hash `json:"commit,omitempty"`
	Tree    gitd.Hash `json:"tree,omitempty"`
	Current bool      `json:"current,omitempty"`
	// void is set if an additional repository changed since the check began.
	void       bool
	DurationMS int64 `json:"duration_ms,omitempty"`
	// Reused is the check whose result this is. Nil means that it ran.
	Reused *Reused `json:"reused,omitempty"`
}

// ManifestTests is the result of one run of tests.
type ManifestTests struct {
	Step      string `json:"step"`
	Framework string `json:"framework"`
	Passed    int    `json:"passed"`
	Failed    int    `json:"failed"`
	Skipped   int    `json:"skipped"`
	// FailedNames has the names of the first 200 tests that failed.
	FailedNames []string `json:"failed_names,omitempty"`
	// Unknown is set if the output could not be counted. Only the exit code is known then.
	Unknown bool      `json:"unknown,omitempty"`
	OK      bool      `json:"ok"` // the exit code was 0
	Commit  gitd.Hash `json:"commit,omitempty"`
}

// ManifestPolicy is the runner chosen for a request, and the reason.
type ManifestPolicy struct {
	Runner string `json:"runner"`
	Reason string `json:"reason"`
}

// ManifestPrompt is a prompt to the run's agent.
type ManifestPrompt struct {
	Time time.Time `json:"time,omitzero"`
	By   string    `json:"by,omitempty"`
	Text string    `json:"text"` // its first 4 KiB; the journal has all of it
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
	Commit     gitd.Hash `json:"commit,omitempty"` // empty if nothing changed
	Reused     *Reused   `json:"reused,omitempty"` // nil if it ran
}

// ManifestFile is a file of the run's evidence.
type ManifestFile struct {
	Name   string `json:"name"` // path in the sealed run
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Type   string `json:"type,omitempty"`   // media type, from its content
	Stored bool   `json:"stored,omitempty"` // in the artifact store under its hash, and not in git
}

// ManifestEgress is a host that a container asked the proxy for.
type ManifestEgress struct {
	Host    string `json:"host"`
	Verdict string `json:"verdict"` // allowed, refused
}

// Changed reports whether the run moved its branch, in any of the caller's repositories. A request that was answered
// without running anything may have no branch.
func (r Run) Changed() bool {
	return r.Start != "" && r.Head != "" && r.Start != r.Head || slices.ContainsFunc(r.With, Addition.Changed)
}

// maxPromptText bounds the text of a prompt in the manifest, in bytes.
const maxPromptText = 4 << 10

// add adds the content of one event.
func (m *Manifest) add(e Event) {
	switch e.Type {
	case EventStepFinished:
		m.Commands = append(m.Commands,
			ManifestCommand{Step: e.Step, Node: e.Node, Task: e.Task, Command: e.Command, Exit: e.Exit,
				OK: e.OK != nil && *e.OK, Reason: e.Reason, DurationMS: e.DurationMS, Commit: e.Commit,
				Reused: e.Reused})
		for _, s := range []*Stream{e.Stdout, e.Stderr} {
			if s != nil && s.Truncated {
				m.Unverified = append(m.Unverified,
					fmt.Sprintf("of the %d bytes that %s printed only a part is kept", s.Bytes, e.Step))
			}
		}
	case EventSecret:
		// The kept content differs from the content that the command left and that checks may have seen.
		if e.Kind == SecretInCommit || e.Kind == SecretInArtifact {
			m.Unverified = append(m.Unverified, "the value of a secret was taken out: "+e.Message)
		}
	case EventBrowser:
		m.Browser = append(m.Browser, BrowserChecks([]Event{e})...)
	case EventEgress:
		m.Egress = append(m.Egress, ManifestEgress{Host: e.Message, Verdict: e.Reason})
	case EventSetup:
		if e.OK != nil {
			m.Setup = append(m.Setup, ManifestCommand{Step: e.Kind, Command: e.Command, Exit: e.Exit, OK: *e.OK,
				Reason: e.Reason, DurationMS: e.DurationMS})
		}
	case EventSettings:
		m.Unverified = append(m.Unverified, "the configuration of the repository: "+e.Message)
	case EventNote:
		switch e.Reason {
		case NoteLeftOut:
			m.Unverified = append(m.Unverified, e.Step+": "+e.Message)
		case NoteRecovery:
			first, _, _ := strings.Cut(e.Message, "\n") // the rest is the builder's output
			m.Unverified = append(m.Unverified, first)
		}
	case EventPolicy:
		m.Policy = &ManifestPolicy{Runner: e.Message, Reason: e.Reason}
	case EventPrompt:
		var p Prompt
		_ = json.Unmarshal(e.Data, &p) // only the name of its author would be missing
		m.Prompts = append(m.Prompts, ManifestPrompt{Time: e.Time, By: p.By.Name, Text: text.Clip(e.Message, maxPromptText)})
	}
}

// unfinished returns a sentence for each step that began and has no result.
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
	m := Manifest{Run: r.Name(), Kind: r.Kind, State: r.State, Reason: r.Reason, Error: r.Error, Repo: r.Repo,
		Branch: r.Branch,
		Base:   r.Base, BaseCommit: r.BaseCommit, Start: r.Start, Head: r.Head, Tree: tree, Merged: r.Merged, Pull: r.Pull,
		Usage: r.Usage, Commands: []ManifestCommand{}, Changed: []gitd.Change{}, Files: []ManifestFile{},
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt}
	if !r.StartedAt.IsZero() && !r.EndedAt.IsZero() {
		m.DurationMS = r.EndedAt.Sub(r.StartedAt).Milliseconds()
	}
	if r.Agent != nil {
		m.Agent = r.Agent.Name
		m.Prompts = append(m.Prompts,
			ManifestPrompt{Time: r.CreatedAt, By: r.Asker.Name, Text: text.Clip(r.Agent.Prompt, maxPromptText)})
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
