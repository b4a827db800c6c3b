package engineer

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// API serves the routes of tasks and of the webhooks of forges.
type API struct {
	Engineer *Engineer // nil if the server takes no tasks
	// Hooks has the accepted webhooks by the name of the forge, such as "github".
	Hooks map[string]Hook
	// Tickets has the accepted webhooks of issue trackers, by name.
	Tickets map[string]TicketHook
	// Triggers gets each delivery too. If it is nil, only tasks and bases do.
	Triggers Triggers
	Log      *slog.Logger

	heard chan struct{} // holds a token for each webhook that is being read
}

// Triggers starts the work that the deliveries of forges cause. That work is claimed when Deliver returns.
type Triggers interface {
	Deliver(ctx context.Context, from forge.Forge, d forge.Delivery) error
}

// NewAPI returns the API of an engineer. e may be nil. hooks has the accepted webhooks by the name of the forge.
func NewAPI(e *Engineer, hooks map[string]Hook, log *slog.Logger) *API {
	return &API{Engineer: e, Hooks: hooks, Log: log, heard: make(chan struct{}, maxHeard)}
}

// Routes returns the routes of tasks and of the webhooks of forges.
func (api *API) Routes() []route.Route {
	return append(append(api.taskRoutes(), api.hookRoutes()...), api.ticketRoutes()...)
}

// tasksPath and engineerPath are the paths of tasks. The same routes exist under both, so that programs written for a
// separate engineer server find them at its path.
const (
	tasksPath    = "/api/tasks"
	engineerPath = "/engineer/tasks"
)

// submissionBody limits the body of a submission, in bytes. JSON may encode one byte as six.
const submissionBody = 2 << 20

// taskRoutes returns the routes of tasks under both paths.
func (api *API) taskRoutes() []route.Route {
	var rows []route.Route
	for _, at := range []string{tasksPath, engineerPath} {
		rows = append(rows,
			route.Route{Method: "GET", Pattern: at, Access: route.AccessRead, Summary: "List tasks, newest first",
				Query: tasksQuery{}, Response: []record.Task{}, Handle: api.listTasks},
			route.Route{Method: "POST", Pattern: at, Access: route.AccessWrite,
				Summary: "Hand over a software task; it is worked on after the answer. With a key, once however often it is sent",
				Request: Submission{}, Response: record.Task{}, Body: submissionBody, Handle: api.submitTask},
			route.Route{Method: "GET", Pattern: at + "/{task}", Access: route.AccessRead, Summary: "One task",
				Response: record.Task{}, Handle: api.task},
			route.Route{Method: "POST", Pattern: at + "/{task}/retry", Access: route.AccessWrite,
				Summary:  "Continue a failed task where it ended",
				Response: record.Task{}, Handle: api.retryTask},
			route.Route{Method: "POST", Pattern: at + "/{task}/say", Access: route.AccessWrite,
				Summary: "Give a task something more to do, as a comment on its pull request would; with a key, once however often it is sent",
				Request: TaskMessage{}, Response: record.Task{}, Body: submissionBody, Handle: api.sayTask},
			route.Route{Method: "DELETE", Pattern: at + "/{task}", Access: route.AccessWrite,
				Summary: "End a task and remove its container; its branch is kept unless drop=1, its pull request stays as it is",
				Query:   cancelQuery{}, Response: record.Task{}, Handle: api.cancelTask},
		)
	}
	return rows
}

// TaskMessage is further work for a task.
type TaskMessage struct {
	Key  string      `json:"key,omitempty"` // a second message with the same key has no effect
	Text string      `json:"text"`
	By   gitd.Person `json:"by,omitzero"`
}

// engineer returns the engineer, or a problem if the server takes no tasks.
func (api *API) engineer(c *route.Call) (*Engineer, error) {
	if api.Engineer == nil {
		return nil, route.NewProblem(route.KindNotFound, "this server takes no tasks").
			WithHint("start one that stays with `ramus serve`: a command's own server would leave them lying")
	}
	return api.Engineer, nil
}

// TaskFor returns a task that who may see. It returns a problem for any other task, as if there were none.
func (e *Engineer) TaskFor(ctx context.Context, who route.Who, id string) (record.Task, error) {
	t, err := e.Task(ctx, strings.TrimPrefix(id, "conv:"))
	if err != nil {
		return record.Task{}, err
	}
	if !who.SeesTask(t) {
		return record.Task{}, route.NotFound("task", id)
	}
	return t, nil
}

// namedTask returns the task that the path names, after checking the access of the caller.
func (api *API) namedTask(c *route.Call) (*Engineer, record.Task, error) {
	e, err := api.engineer(c)
	if err != nil {
		return nil, record.Task{}, err
	}
	t, err := api.Engineer.TaskFor(c.R.Context(), c.Who, c.R.PathValue("task"))
	if err == nil && c.Access == route.AccessWrite {
		err = c.Who.CheckChange(t.Repo, t.Caller().Branch())
	}
	return e, t, err
}

type tasksQuery struct {
	Repo   string `json:"repo,omitempty" jsonschema:"only of this repository"`
	Status string `json:"status,omitempty" jsonschema:"only in this state"`
	Active bool   `json:"active,omitempty" jsonschema:"only what is neither complete nor failed"`
	Max    int    `json:"max,omitempty" jsonschema:"at most so many; 100 if 0, 1000 at most"`
}

func (api *API) listTasks(c *route.Call) error {
	var q tasksQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	e, err := api.engineer(c)
	if err != nil {
		return err
	}
	if q.Repo != "" && !c.Who.Sees(q.Repo) {
		return route.NotFound("repository", q.Repo)
	}
	if c.Who.Repo != "*" {
		q.Repo = c.Who.Repo
	}
	state, err := lookup.ParseState(q.Status)
	if err != nil {
		return err
	}
	list, err := e.Tasks(c.R.Context(), TaskFilter{Repo: q.Repo, Status: state, Active: q.Active, Max: min(q.Max, 1000),
		Keep: c.Who.SeesTask})
	if err != nil {
		return err
	}
	if list == nil {
		list = []record.Task{}
	}
	return c.Reply(list)
}

// SubmitFor submits a task in the name of who. The repository and the parent of the task must be visible to who.
func (e *Engineer) SubmitFor(ctx context.Context, who route.Who, sub Submission) (record.Task, error) {
	sub.Asker = who.Person(sub.Asker)
	if sub.Repo != "" && !who.Sees(sub.Repo) {
		return record.Task{}, route.NotFound("repository", sub.Repo)
	}
	if sub.Repo == "" && who.Repo != "*" {
		sub.Repo = who.Repo
	}
	if sub.Parent != "" {
		parent, err := e.TaskFor(ctx, who, sub.Parent)
		if err != nil {
			return record.Task{}, err
		}
		sub.Parent = parent.ID
	}
	sub.permit = func(t record.Task) error {
		if !who.SeesBranch(t.Repo, t.Base) {
			return route.NotFound("branch", t.Base)
		}
		return who.CheckChange(t.Repo, t.Caller().Branch())
	}
	t, err := e.Submit(ctx, sub)
	if err != nil {
		return record.Task{}, err
	}
	// The key may belong to an earlier task, submitted with a token for another repository.
	if !who.SeesTask(t) {
		return record.Task{}, route.NewProblem(route.KindConflict, "the key %q is taken",
			sub.Key).WithHint("use another key")
	}
	return t, nil
}

func (api *API) submitTask(c *route.Call) error {
	var sub Submission
	if err := c.ReadJSON(&sub); err != nil {
		return err
	}
	if _, err := api.engineer(c); err != nil {
		return err
	}
	t, err := api.Engineer.SubmitFor(c.R.Context(), c.Who, sub)
	if err != nil {
		return err
	}
	c.W.Header().Set("Location", c.R.URL.Path+"/"+url.PathEscape(t.ID))
	return c.ReplyStatus(http.StatusAccepted, t)
}

func (api *API) task(c *route.Call) error {
	_, t, err := api.namedTask(c)
	if err != nil {
		return err
	}
	return c.Reply(t)
}

func (api *API) retryTask(c *route.Call) error {
	e, t, err := api.namedTask(c)
	if err != nil {
		return err
	}
	if t, err = e.Retry(c.R.Context(), t.ID, c.Who.Person(t.Asker)); err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusAccepted, t)
}

func (api *API) sayTask(c *route.Call) error {
	var m TaskMessage
	if err := c.ReadJSON(&m); err != nil {
		return err
	}
	e, t, err := api.namedTask(c)
	if err != nil {
		return err
	}
	if t, err = e.Say(c.R.Context(), t.ID, m.Key, m.Text, c.Who.Person(m.By)); err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusAccepted, t)
}

type cancelQuery struct {
	Drop bool `json:"drop,omitempty" jsonschema:"remove the branch, too"`
}

func (api *API) cancelTask(c *route.Call) error {
	var q cancelQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	e, t, err := api.namedTask(c)
	if err != nil {
		return err
	}
	if t, err = e.Cancel(c.R.Context(), t.ID, q.Drop, c.Who.Person(t.Asker)); err != nil {
		return err
	}
	return c.Reply(t)
}
