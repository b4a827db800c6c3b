package web

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// rowMaker makes the rows of lists.
type rowMaker struct {
	executor *executor.Executor
	verdicts verdicts
	now      func() time.Time
}

// runRow is a run in a list. All texts are clean.
type runRow struct {
	Key, Title, Repo, Workspace, By string
	Path, WorkspacePath, Action     string
	Badge                           Badge
	Verdict                         *Badge
	// Kind is "ask", "failed", "ready" or "".
	Kind, Detail, Hint, Agent string
	Place                     int
	When                      time.Time
	MayChange, MayAnswer      bool
	Gate                      *record.Gate
	Allowed                   string // the people who may answer, or empty for all
	Part                      bool   // the message of Gate is cut, so that the row does not take its answer
	Cost                      int64
}

// runRow returns a run as a row of a list.
func (m *rowMaker) runRow(ctx context.Context, who route.Who, r record.Run) runRow {
	row := runRow{
		Key: r.Name(), Title: runTitle(r), Repo: r.Repo, Workspace: r.Caller.ID(), By: personName(r.Asker), Path: runPath(r),
		WorkspacePath: workspacePath(r.Caller.Slug()), Badge: runBadge(r), Place: r.Place, When: r.CreatedAt,
		MayChange: who.CheckChangeRun(r) == nil, MayAnswer: mayAnswer(who, r),
	}
	row.Action = row.Path
	if r.Agent != nil {
		row.Agent = r.Agent.Name
	}
	if r.Usage != nil {
		row.Cost = r.Usage.CostMicros
	}
	for _, t := range []time.Time{r.StartedAt, r.EndedAt} {
		if t.After(row.When) {
			row.When = t
		}
	}
	fresh := m.now().Sub(row.When) < needsWithin
	mine := who.Admin() || who.Email != "" && r.Asker.Email == who.Email
	switch {
	case !r.Ended() && r.Gate != nil: // also of an agent at work
		row.Kind, row.Part = "ask", len(r.Gate.Message) > maxRowText
		row.Gate = &record.Gate{Step: r.Gate.Step, Message: render.ClipClean(r.Gate.Message, maxRowText)}
		row.Allowed = render.OneLine(strings.Join(r.Gate.Allowed, ", "), 300)
	case r.State == record.StateFailed && r.Reason != record.ReasonCancelled && fresh && mine:
		row.Kind, row.Detail, row.Hint = "failed", render.ClipClean(r.Error, 400), render.ClipClean(r.Hint, 300)
	case r.State == record.StateComplete && r.Agent != nil && r.Changed() && r.Merged == "" && r.Pull == nil &&
		fresh && mine:
		row.Kind, row.Badge = "ready", Badge{"Ready for review", "good"}
	case !r.Ended() && r.Step != "":
		row.Detail = "now at " + render.ClipClean(r.Step, 100)
	}
	if r.Ended() {
		if v := m.verdictOf(ctx, r); v != "" && v != record.VerdictNone && r.State == record.StateComplete {
			b := verdictBadge(v)
			row.Verdict = &b
		}
	}
	return row
}

// workspaceRow is a workspace in a list. All texts are clean.
type workspaceRow struct {
	workspace.Workspace
	Path, RepoPath, By string
	LastTitle          string
	LastBadge          Badge
	Verdict            *Badge
}

func (m *rowMaker) workspaceRow(c *route.Call, s workspace.Workspace) workspaceRow {
	row := workspaceRow{Workspace: s, Path: workspacePath(s.ID), RepoPath: repoPath(s.Repository), By: personName(s.Owner),
		LastTitle: runTitle(s.LastRun), LastBadge: runBadge(s.LastRun)}
	row.Title = render.OneLine(render.Clean(s.Title), 200)
	if s.LastRun.State == record.StateComplete {
		row.Verdict = m.verdictAt(c.R.Context(), s.LastRun, s.Head)
	}
	return row
}

// verdicts remembers the verdicts of runs that have ended, which never change.
type verdicts struct {
	mu sync.Mutex
	by map[string]record.Verdict
}

// maxVerdicts bounds the verdicts in memory.
const maxVerdicts = 5000

// keep remembers the verdict of a run, if it is not empty.
func (v *verdicts) keep(r record.Run, verdict record.Verdict) {
	if verdict == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.by) >= maxVerdicts || v.by == nil {
		v.by = map[string]record.Verdict{}
	}
	v.by[verdictKey(r)] = verdict
}

func verdictKey(r record.Run) string { return r.Repo + " " + r.Name() }

// verdictOf returns the verdict of a run that has ended. Returns "" if its manifest is not written yet.
func (m *rowMaker) verdictOf(ctx context.Context, r record.Run) record.Verdict {
	m.verdicts.mu.Lock()
	v, ok := m.verdicts.by[verdictKey(r)]
	m.verdicts.mu.Unlock()
	if ok {
		return v
	}
	manifest, err := m.executor.Manifest(ctx, r.Name())
	if err != nil {
		return ""
	}
	m.verdicts.keep(r, manifest.Verdict)
	return manifest.Verdict
}

// verdictAt returns the badge of the verdict of a run, for a branch whose last commit is tip. Returns nil if there is no verdict.
func (m *rowMaker) verdictAt(ctx context.Context, r record.Run, tip gitd.Hash) *Badge {
	if !r.Ended() {
		return nil
	}
	v := m.verdictOf(ctx, r)
	if v == "" || v == record.VerdictNone {
		return nil
	}
	b := verdictBadge(v)
	if r.Head != "" && tip != "" && r.Head != tip {
		b = Badge{b.Text + ", before the last commits", ""}
	}
	return &b
}
