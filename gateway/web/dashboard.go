package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Limits of the dashboard.
const (
	needsWithin = 7 * 24 * time.Hour // a failure and a review are shown that long
	maxNeeds    = 30
	maxRunning  = 50
	maxRecent   = 12
	lookedAt    = 300 // callers
)

// dashboardData is the data of the dashboard.
type dashboardData struct {
	Composer composer
	// Steps are the steps of somebody who has nothing yet, and empty for all others.
	Steps                  []firstStep
	Needs, Running, Recent []runRow
}

// maxRowText bounds the question of a run in a list, in bytes.
const maxRowText = 600

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

// firstStep is a step of somebody who begins.
type firstStep struct {
	N                  int
	Title, Text        string
	Done               bool
	Action, Path, Icon string
}

// composer is the form that asks an agent.
type composer struct {
	Repos, Agents       []string
	Repo, Agent, Prompt string
	Wrong               string
	MayAsk              bool
}

func (api *API) dashboard(c *route.Call) (*Page, error) {
	return api.dashboardWith(c, composer{})
}

// dashboardWith returns the dashboard with a form as it was filled in.
func (api *API) dashboardWith(c *route.Call, form composer) (*Page, error) {
	ctx := c.R.Context()
	callers, err := api.callers(ctx, c.Who)
	if err != nil {
		return nil, err
	}
	repos, err := api.repoNames(ctx, c.Who)
	if err != nil {
		return nil, err
	}
	d := &dashboardData{Composer: form}
	d.Composer.Repos, d.Composer.Agents = repos, api.Executor.AgentNames()
	d.Composer.MayAsk = len(repos) > 0 && len(d.Composer.Agents) > 0 && c.Who.May(route.AccessWrite)
	for _, st := range callers {
		if st.Last.Passive() && st.Last.Ended() {
			continue
		}
		row := api.runRow(ctx, c.Who, st.Last)
		switch {
		case row.Kind != "" && len(d.Needs) < maxNeeds:
			d.Needs = append(d.Needs, row)
		case !st.Last.Ended() && len(d.Running) < maxRunning:
			d.Running = append(d.Running, row)
		case st.Last.Ended() && len(d.Recent) < maxRecent:
			d.Recent = append(d.Recent, row)
		}
	}
	slices.SortStableFunc(d.Needs, func(a, b runRow) int { return needOrder(a) - needOrder(b) })
	d.Steps = api.firstSteps(ctx, c.Who, len(repos) > 0, len(callers) > 0)
	status := 0
	if form.Wrong != "" {
		status = http.StatusUnprocessableEntity
	}
	return &Page{Title: "Dashboard", Nav: "dashboard", Template: "dashboard", Data: d, Topics: []string{live.TopicMe},
		Needs:  len(d.Needs),
		Status: status, Refresh: 30}, nil
}

// needOrder puts questions before failures and reviews.
func needOrder(r runRow) int { return slices.Index([]string{"ask", "failed", "ready"}, r.Kind) }

// runRow returns a run as a row of a list.
func (api *API) runRow(ctx context.Context, who route.Who, r record.Run) runRow {
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
	fresh := api.Now().Sub(row.When) < needsWithin
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
		if v := api.verdictOf(ctx, r); v != "" && v != record.VerdictNone && r.State == record.StateComplete {
			b := verdictBadge(v)
			row.Verdict = &b
		}
	}
	return row
}

// mayAnswer reports whether a person may answer the question of a run. The executor decides by the same rules.
func mayAnswer(who route.Who, r record.Run) bool {
	return r.Gate != nil && !r.Sub && r.Gate.Admits(who.Subject) && who.CheckChangeRun(r) == nil
}

// runTitle describes a run in one line.
func runTitle(r record.Run) string {
	if r.Exec != nil && r.Exec.Shell == workspace.BootCommand {
		return "Open the workspace"
	}
	return render.OneLine(render.Clean(r.Title()), 200)
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
func (api *API) verdictOf(ctx context.Context, r record.Run) record.Verdict {
	api.verdicts.mu.Lock()
	v, ok := api.verdicts.by[verdictKey(r)]
	api.verdicts.mu.Unlock()
	if ok {
		return v
	}
	m, err := api.Executor.Manifest(ctx, r.Name())
	if err != nil {
		return ""
	}
	api.verdicts.keep(r, m.Verdict)
	return m.Verdict
}

// verdictAt returns the badge of the verdict of a run, for a branch whose last commit is tip. Returns nil if there is no verdict.
func (api *API) verdictAt(ctx context.Context, r record.Run, tip gitd.Hash) *Badge {
	if !r.Ended() {
		return nil
	}
	v := api.verdictOf(ctx, r)
	if v == "" || v == record.VerdictNone {
		return nil
	}
	b := verdictBadge(v)
	if r.Head != "" && tip != "" && r.Head != tip {
		b = Badge{b.Text + ", before the last commits", ""}
	}
	return &b
}

// firstSteps returns the steps of somebody who begins, with the state of each. It returns none if all are done.
func (api *API) firstSteps(ctx context.Context, who route.Who, repos, work bool) []firstStep {
	key := len(api.Executor.AgentNames()) > 0
	if api.HasKey != nil {
		key = api.HasKey(ctx, who)
	}
	if repos && work {
		return nil
	}
	steps := []firstStep{
		{N: 1, Title: "Import a repository", Done: repos,
			Text:   "Anything that git can clone. ramus serves it, and gives each piece of work a branch of its own.",
			Action: "Import", Path: "/repos#import", Icon: "import"},
		{N: 2, Title: "Set a key", Done: key,
			Text:   "An agent needs the key of a model. It stays on this server, and no container sees it.",
			Action: "Settings", Path: "/settings", Icon: "key"},
		{N: 3, Title: "Ask, or open a terminal", Done: work,
			Text:   "Say on this page what an agent should do, or make a workspace and type yourself. Each command becomes a commit.",
			Action: "New workspace", Path: "/workspaces/new", Icon: "terminal"},
	}
	return steps
}

// ask begins a workspace with a prompt.
func (api *API) ask(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	form := composer{Repo: formText(c, "repository", 200), Agent: formText(c, "agent", 200),
		Prompt: formText(c, "prompt", 1<<20)}
	if form.Prompt == "" {
		form.Wrong = "Say what the agent should do."
	} else {
		r, err := api.Workspaces.Create(c.R.Context(), c.Who,
			workspace.Wish{Repository: form.Repo, Agent: form.Agent, Prompt: form.Prompt})
		if err == nil {
			return api.see(c, workspacePath(r.Caller.Slug()))
		}
		var ok bool
		if form.Wrong, ok = fieldProblem(err, c.Who); !ok {
			return err
		}
	}
	p, err := api.dashboardWith(c, form)
	if err != nil {
		return err
	}
	return api.write(c, p)
}

// by returns the person of a call, for changes.
func by(c *route.Call) gitd.Person { return c.Who.Person(gitd.Person{}) }
