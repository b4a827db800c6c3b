package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// Pages with lists show the items of all servers of the installation. Each server answers the questions below for itself.

// questions are what pages ask all servers.
type questions struct {
	callers    *gather.Question[struct{}, []heldCaller]
	workspaces *gather.Question[workspace.Filter, heldWorkspaces]
	repoNames  *gather.Question[struct{}, []string]
	repos      *gather.Question[struct{}, []repoRow]
	tasks      *gather.Question[engineer.TaskFilter, []record.Task]
}

func (api *API) newQuestions() questions {
	if api.Desk != nil {
		gather.New(api.Desk, viewQuestion, api.viewHere)
	}
	return questions{
		callers:    gather.New(api.Desk, "web/callers", api.callersHere),
		workspaces: gather.New(api.Desk, "web/workspaces", api.workspacesHere),
		repoNames:  gather.New(api.Desk, "web/repo-names", api.repoNamesHere),
		repos:      gather.New(api.Desk, "web/repos", api.reposHere),
		tasks:      gather.New(api.Desk, "web/tasks", api.tasksHere),
	}
}

// heldCaller is a caller with the verdict of its last run, which only its server knows.
type heldCaller struct {
	executor.CallerStatus
	Verdict record.Verdict
}

func (api *API) callersHere(ctx context.Context, who route.Who, _ struct{}) ([]heldCaller, error) {
	list, err := api.Executor.Callers(ctx, record.Filter{Max: lookedAt, Keep: func(r record.Run) bool {
		return !lookup.IsOwnRepo(r.Repo) && who.SeesRun(r)
	}})
	held := make([]heldCaller, len(list))
	for i, st := range list {
		held[i] = heldCaller{st, api.verdictHere(ctx, st.Last)}
	}
	return held, err
}

// verdictHere returns the verdict of a run of this server, for the other ones. The only server needs none.
func (api *API) verdictHere(ctx context.Context, r record.Run) record.Verdict {
	if api.Desk.Alone() || !r.Ended() {
		return ""
	}
	return api.verdictOf(ctx, r)
}

// callers returns the callers that a person sees, those with the newest runs first.
func (api *API) callers(ctx context.Context, who route.Who) ([]executor.CallerStatus, error) {
	parts, err := api.questions.callers.Ask(ctx, who, struct{}{})
	if err != nil {
		return nil, err
	}
	var list []executor.CallerStatus
	for _, p := range parts {
		for _, held := range p.Answer {
			api.verdicts.keep(held.Last, held.Verdict)
			list = append(list, held.CallerStatus)
		}
	}
	slices.SortStableFunc(list, func(a, b executor.CallerStatus) int { return newestFirst(a.Last, b.Last) })
	return list[:min(len(list), lookedAt)], nil
}

func newestFirst(a, b record.Run) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.Name(), a.Name()))
}

// heldWorkspaces is a page of the workspaces of a server.
type heldWorkspaces struct {
	List []heldWorkspace
	Next string // the place after which the next page begins, empty if there is none
}

// heldWorkspace is a workspace with what its JSON leaves out.
type heldWorkspace struct {
	workspace.Workspace
	LastRun record.Run
	Verdict record.Verdict
}

func (api *API) workspacesHere(ctx context.Context, who route.Who, f workspace.Filter) (heldWorkspaces, error) {
	if !api.Desk.Alone() {
		cursors, err := gather.ParseCursors(f.After)
		if err != nil {
			return heldWorkspaces{}, route.NewProblem(route.KindInvalid, "%v", err)
		}
		f.After = cursors[api.Desk.Name]
	}
	list, next, err := api.Workspaces.List(ctx, who, f)
	held := heldWorkspaces{List: make([]heldWorkspace, len(list)), Next: next}
	for i, s := range list {
		held.List[i] = heldWorkspace{s, s.LastRun, api.verdictHere(ctx, s.LastRun)}
	}
	return held, err
}

// workspaces returns a page of the workspaces that a person sees, and the cursor of the next one, or "".
func (api *API) workspaces(ctx context.Context, who route.Who, f workspace.Filter) (list []workspace.Workspace, next string, err error) {
	parts, err := api.questions.workspaces.Ask(ctx, who, f)
	if err != nil {
		return nil, "", err
	}
	of := map[string]string{} // the replicas of workspaces
	more := false
	for _, p := range parts {
		more = more || p.Answer.Next != ""
		for _, held := range p.Answer.List {
			s := held.Workspace
			s.LastRun = held.LastRun
			api.verdicts.keep(s.LastRun, held.Verdict)
			of[s.ID] = p.Of
			list = append(list, s)
		}
	}
	if api.Desk.Alone() {
		return list, parts[0].Answer.Next, nil
	}
	slices.SortStableFunc(list, func(a, b workspace.Workspace) int { return newestFirst(a.LastRun, b.LastRun) })
	if len(list) > f.Max {
		list, more = list[:f.Max], true
	}
	if !more {
		return list, "", nil
	}
	cursors, err := gather.ParseCursors(f.After)
	if err != nil {
		return nil, "", err
	}
	for _, s := range list {
		cursors[of[s.ID]] = s.ID
	}
	return list, cursors.String(), nil
}

func (api *API) repoNamesHere(ctx context.Context, who route.Who, _ struct{}) ([]string, error) {
	repos, err := api.Git.Repos(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range repos {
		if !lookup.IsOwnRepo(r.Name()) && who.Sees(r.Name()) {
			names = append(names, r.Name())
		}
	}
	return names, nil
}

// repoNames returns the repositories that a person sees.
func (api *API) repoNames(ctx context.Context, who route.Who) ([]string, error) {
	parts, err := api.questions.repoNames.Ask(ctx, who, struct{}{})
	var names []string
	for _, p := range parts {
		names = append(names, p.Answer...)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func (api *API) reposHere(ctx context.Context, who route.Who, _ struct{}) ([]repoRow, error) {
	repos, err := api.Git.Repos(ctx)
	if err != nil {
		return nil, err
	}
	var rows []repoRow
	for _, r := range repos {
		if lookup.IsOwnRepo(r.Name()) || !who.Sees(r.Name()) {
			continue
		}
		row, err := api.repoRow(ctx, who, r)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// repos returns the repositories that a person sees, with their bases.
func (api *API) repos(ctx context.Context, who route.Who) ([]repoRow, error) {
	parts, err := api.questions.repos.Ask(ctx, who, struct{}{})
	var rows []repoRow
	for _, p := range parts {
		rows = append(rows, p.Answer...)
	}
	slices.SortStableFunc(rows, func(a, b repoRow) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(rows, func(a, b repoRow) bool { return a.Name == b.Name }), err
}

func (api *API) tasksHere(ctx context.Context, who route.Who, f engineer.TaskFilter) ([]record.Task, error) {
	if api.Engineer == nil {
		return nil, nil
	}
	f.Keep = who.SeesTask
	return api.Engineer.Tasks(ctx, f)
}

// tasks returns the tasks that a person sees, the newest first.
func (api *API) tasks(ctx context.Context, who route.Who, f engineer.TaskFilter) ([]record.Task, error) {
	parts, err := api.questions.tasks.Ask(ctx, who, f)
	var list []record.Task
	for _, p := range parts {
		list = append(list, p.Answer...)
	}
	slices.SortStableFunc(list, func(a, b record.Task) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return list[:min(len(list), f.Max)], err
}

// Open tabs follow pages of other servers, too. The owner of such a page makes it.

const viewQuestion = "web/view"

// viewed asks for a page as a person sees it.
type viewed struct {
	URI, Host string
	Header    http.Header
	Secure    bool // the client speaks TLS
}

// viewHeaders are the headers that decide how a page looks.
var viewHeaders = []string{"Cookie", "X-Forwarded-Proto", "X-Forwarded-Host", "User-Agent"}

// viewElsewhere returns the view of a page that another server owns. It returns false if this one makes it.
func (api *API) viewElsewhere(c *route.Call, pattern string) (v live.View, elsewhere bool, err error) {
	if api.Desk.Alone() {
		return v, false, nil
	}
	owner := api.Desk.Others.Owner(c, pattern)
	if owner == "" {
		return v, false, nil
	}
	q := viewed{URI: c.R.URL.RequestURI(), Host: c.R.Host, Header: http.Header{}, Secure: c.R.TLS != nil}
	for _, name := range viewHeaders {
		if values := c.R.Header.Values(name); len(values) > 0 {
			q.Header[name] = values
		}
	}
	body, err := json.Marshal(q)
	if err != nil {
		return v, true, err
	}
	a := api.Desk.Others.AskOne(c.R.Context(), owner, c.Who, viewQuestion, body)
	switch {
	case a.Problem != nil:
		return v, true, a.Problem
	case a.Err != nil:
		return v, true, route.NewProblem(route.KindUnavailable, "the replica %s, which has this page, does not answer", owner)
	}
	return v, true, json.Unmarshal(a.Body, &v)
}

// viewHere makes a page of this server for another one.
func (api *API) viewHere(ctx context.Context, who route.Who, q viewed) (live.View, error) {
	at, err := url.ParseRequestURI(q.URI)
	if err != nil {
		return live.View{}, route.NewProblem(route.KindInvalid, "this page cannot be followed")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, q.URI, nil)
	if err != nil {
		return live.View{}, err
	}
	if r.Host, r.Header = q.Host, q.Header; q.Secure {
		r.TLS = new(tls.ConnectionState)
	}
	c := api.NewCall(httptest.NewRecorder(), r, api.Access)
	c.Who = who
	return api.renderHere(c, at, nil)
}
