package web

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Pages with lists show the items of all servers of the installation. Each server answers the questions below for itself.

// servers asks all servers of the installation, of which this one may be the only one.
type servers struct {
	desk       *gather.Desk
	executor   *executor.Executor
	git        *gitd.Server
	engineer   *engineer.Engineer // nil means that there are no tasks
	workspaces *workspace.Workspaces
	rows       *rowMaker
	questions  questions
}

// questions are the questions of pages to all servers.
type questions struct {
	callers    *gather.Question[struct{}, []heldCaller]
	workspaces *gather.Question[workspace.Filter, heldWorkspaces]
	repoNames  *gather.Question[struct{}, []string]
	repos      *gather.Question[struct{}, []repoRow]
	tasks      *gather.Question[engineer.TaskFilter, []record.Task]
}

// setQuestions tells the desk how this server answers.
func (srv *servers) setQuestions() {
	srv.questions = questions{
		callers:    gather.New(srv.desk, "web/callers", srv.callersHere),
		workspaces: gather.New(srv.desk, "web/workspaces", srv.workspacesHere),
		repoNames:  gather.New(srv.desk, "web/repo-names", srv.repoNamesHere),
		repos:      gather.New(srv.desk, "web/repos", srv.reposHere),
		tasks:      gather.New(srv.desk, "web/tasks", srv.tasksHere),
	}
}

// heldCaller is a caller with the verdict of its last run, which only its server knows.
type heldCaller struct {
	executor.CallerStatus
	Verdict record.Verdict
}

func (srv *servers) callersHere(ctx context.Context, who route.Who, _ struct{}) ([]heldCaller, error) {
	list, err := srv.executor.Callers(ctx, record.Filter{Max: lookedAt, Keep: func(r record.Run) bool {
		return !lookup.IsOwnRepo(r.Repo) && who.SeesRun(r)
	}})
	held := make([]heldCaller, len(list))
	for i, st := range list {
		held[i] = heldCaller{st, srv.verdictHere(ctx, st.Last)}
	}
	return held, err
}

// verdictHere returns the verdict of a run of this server, for the other ones. The only server needs none.
func (srv *servers) verdictHere(ctx context.Context, r record.Run) record.Verdict {
	if srv.desk.Alone() || !r.Ended() {
		return ""
	}
	return srv.rows.verdictOf(ctx, r)
}

// listCallers returns the callers that a person sees, those with the newest runs first.
func (srv *servers) listCallers(ctx context.Context, who route.Who) ([]executor.CallerStatus, error) {
	parts, err := srv.questions.callers.Ask(ctx, who, struct{}{})
	if err != nil {
		return nil, err
	}
	var list []executor.CallerStatus
	for _, p := range parts {
		for _, held := range p.Answer {
			srv.rows.verdicts.keep(held.Last, held.Verdict)
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

// heldWorkspace is a workspace with the fields that its JSON omits.
type heldWorkspace struct {
	workspace.Workspace
	LastRun record.Run
	Verdict record.Verdict
}

func (srv *servers) workspacesHere(ctx context.Context, who route.Who, f workspace.Filter) (heldWorkspaces, error) {
	if !srv.desk.Alone() {
		cursors, err := gather.ParseCursors(f.After)
		if err != nil {
			return heldWorkspaces{}, route.NewProblem(route.KindInvalid, "%v", err)
		}
		f.After = cursors[srv.desk.Name]
	}
	list, next, err := srv.workspaces.List(ctx, who, f)
	held := heldWorkspaces{List: make([]heldWorkspace, len(list)), Next: next}
	for i, s := range list {
		held.List[i] = heldWorkspace{s, s.LastRun, srv.verdictHere(ctx, s.LastRun)}
	}
	return held, err
}

// listWorkspaces returns a page of the workspaces that a person sees, and the cursor of the next one, or "".
func (srv *servers) listWorkspaces(ctx context.Context, who route.Who, f workspace.Filter) (list []workspace.Workspace, next string, err error) {
	parts, err := srv.questions.workspaces.Ask(ctx, who, f)
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
			srv.rows.verdicts.keep(s.LastRun, held.Verdict)
			of[s.ID] = p.Of
			list = append(list, s)
		}
	}
	if srv.desk.Alone() {
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

func (srv *servers) repoNamesHere(ctx context.Context, who route.Who, _ struct{}) ([]string, error) {
	repos, err := srv.git.Repos(ctx)
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

// listRepoNames returns the repositories that a person sees.
func (srv *servers) listRepoNames(ctx context.Context, who route.Who) ([]string, error) {
	parts, err := srv.questions.repoNames.Ask(ctx, who, struct{}{})
	var names []string
	for _, p := range parts {
		names = append(names, p.Answer...)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func (srv *servers) reposHere(ctx context.Context, who route.Who, _ struct{}) ([]repoRow, error) {
	repos, err := srv.git.Repos(ctx)
	if err != nil {
		return nil, err
	}
	var rows []repoRow
	for _, r := range repos {
		if lookup.IsOwnRepo(r.Name()) || !who.Sees(r.Name()) {
			continue
		}
		row, err := newRepoRow(ctx, srv.executor, who, r)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// listRepos returns the repositories that a person sees, with their bases.
func (srv *servers) listRepos(ctx context.Context, who route.Who) ([]repoRow, error) {
	parts, err := srv.questions.repos.Ask(ctx, who, struct{}{})
	var rows []repoRow
	for _, p := range parts {
		rows = append(rows, p.Answer...)
	}
	slices.SortStableFunc(rows, func(a, b repoRow) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(rows, func(a, b repoRow) bool { return a.Name == b.Name }), err
}

func (srv *servers) tasksHere(ctx context.Context, who route.Who, f engineer.TaskFilter) ([]record.Task, error) {
	if srv.engineer == nil {
		return nil, nil
	}
	f.Keep = who.SeesTask
	return srv.engineer.Tasks(ctx, f)
}

// listTasks returns the tasks that a person sees, the newest first.
func (srv *servers) listTasks(ctx context.Context, who route.Who, f engineer.TaskFilter) ([]record.Task, error) {
	parts, err := srv.questions.tasks.Ask(ctx, who, f)
	var list []record.Task
	for _, p := range parts {
		list = append(list, p.Answer...)
	}
	slices.SortStableFunc(list, func(a, b record.Task) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return list[:min(len(list), f.Max)], err
}
