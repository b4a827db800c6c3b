package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor"
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

// dashboardPages serves the dashboard.
type dashboardPages struct {
	shell      *shell
	servers    *servers
	rows       *rowMaker
	executor   *executor.Executor
	workspaces *workspace.Workspaces
	hasKey     func(ctx context.Context, who route.Who) bool
}

func (h *dashboardPages) register(t *table) {
	t.page("/dashboard", "Work that needs a person, runs that work, and runs that have ended", h.dashboard)
	t.form("/dashboard/ask", "Ask an agent, by the form of the dashboard", h.ask)
}

func (h *dashboardPages) dashboard(c *route.Call) (*Page, error) {
	return h.dashboardWith(c, composer{})
}

// dashboardWith returns the dashboard with a form as it was filled in.
func (h *dashboardPages) dashboardWith(c *route.Call, form composer) (*Page, error) {
	ctx := c.R.Context()
	callers, err := h.servers.listCallers(ctx, c.Who)
	if err != nil {
		return nil, err
	}
	repos, err := h.servers.listRepoNames(ctx, c.Who)
	if err != nil {
		return nil, err
	}
	d := &dashboardData{Composer: form}
	d.Composer.Repos, d.Composer.Agents = repos, h.executor.AgentNames()
	d.Composer.MayAsk = len(repos) > 0 && len(d.Composer.Agents) > 0 && c.Who.May(route.AccessWrite)
	for _, st := range callers {
		if st.Last.Passive() && st.Last.Ended() {
			continue
		}
		row := h.rows.runRow(ctx, c.Who, st.Last)
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
	d.Steps = h.firstSteps(ctx, c.Who, len(repos) > 0, len(callers) > 0)
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

// firstSteps returns the steps of somebody who begins, with the state of each. It returns none if all are done.
func (h *dashboardPages) firstSteps(ctx context.Context, who route.Who, repos, work bool) []firstStep {
	key := len(h.executor.AgentNames()) > 0
	if h.hasKey != nil {
		key = h.hasKey(ctx, who)
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
func (h *dashboardPages) ask(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	form := composer{Repo: formText(c, "repository", 200), Agent: formText(c, "agent", 200),
		Prompt: formText(c, "prompt", 1<<20)}
	if form.Prompt == "" {
		form.Wrong = "Say what the agent should do."
	} else {
		r, err := h.workspaces.Create(c.R.Context(), c.Who,
			workspace.Wish{Repository: form.Repo, Agent: form.Agent, Prompt: form.Prompt})
		if err == nil {
			return see(c, workspacePath(r.Caller.Slug()))
		}
		var ok bool
		if form.Wrong, ok = fieldProblem(err, c.Who); !ok {
			return err
		}
	}
	p, err := h.dashboardWith(c, form)
	if err != nil {
		return err
	}
	return h.shell.write(c, p)
}

// by returns the person of a call, for changes.
func by(c *route.Call) gitd.Person { return c.Who.Person(gitd.Person{}) }
