package web

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
)

// taskRow is a task in a list. All texts are clean.
type taskRow struct {
	record.Task
	Path, Title, By, Pull string
	Badge                 Badge
}

// tasksData is the data of the list of tasks.
type tasksData struct {
	Rows        []taskRow
	Repos       []string
	States      []record.State
	Repo, State string
	// None is set if the server takes no tasks.
	None bool
}

// maxTasks bounds the list of tasks.
const maxTasks = 200

// taskPages serves the tasks of the engineer.
type taskPages struct {
	servers  *servers
	rows     *rowMaker
	executor *executor.Executor
	engineer *engineer.Engineer // nil means that there are no tasks
}

func (h *taskPages) register(t *table) {
	t.page("/tasks", "The tasks of the engineer", h.taskList)
	t.page("/tasks/{task}", "A task with its pull request and its rounds of work", h.taskPage)
	t.form("/tasks/{task}/{action}", "Retry or end a task, by its page", h.taskAction)
}

func (h *taskPages) taskList(c *route.Call) (*Page, error) {
	q := c.R.URL.Query()
	d := &tasksData{Repo: q.Get("repo"), State: q.Get("state"), None: h.engineer == nil && h.servers.desk.Alone(),
		States: []record.State{record.StateSubmitted, record.StateRunning, record.StateAwaitingReview,
			record.StateAddressingComments, record.StateComplete, record.StateFailed}}
	p := &Page{Title: "Tasks", Nav: "tasks", Template: "tasks", Data: d, Topics: []string{live.TopicMe}, Refresh: 30}
	if d.None {
		return p, nil
	}
	if d.Repo != "" && !c.Who.Sees(d.Repo) {
		return nil, route.NotFound("repository", d.Repo)
	}
	state, err := lookup.ParseState(d.State)
	if err != nil {
		return nil, err
	}
	if d.Repos, err = h.servers.listRepoNames(c.R.Context(), c.Who); err != nil {
		return nil, err
	}
	list, err := h.servers.listTasks(c.R.Context(), c.Who, engineer.TaskFilter{Repo: d.Repo, Status: state, Max: maxTasks})
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		d.Rows = append(d.Rows, newTaskRow(t))
	}
	return p, nil
}

func newTaskRow(t record.Task) taskRow {
	row := taskRow{Task: t, Path: taskPath(t.ID), Title: render.OneLine(render.Clean(t.Description), 160),
		By: personName(t.Asker), Badge: runStateBadge(t.Status)}
	if t.Status == record.StateAwaitingReview {
		row.Badge = Badge{"In review", "warn"}
	}
	if t.PRNumber > 0 {
		row.Pull = fmt.Sprintf("#%d", t.PRNumber)
	}
	row.Error = render.ClipClean(t.Error, 2000)
	row.Description = render.ClipClean(t.Description, 16<<10)
	if u, err := url.Parse(t.PRURL); err != nil || u.Scheme != "https" && u.Scheme != "http" {
		row.PRURL = ""
	}
	if u, err := url.Parse(t.Ticket.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" {
		row.Ticket.URL = ""
	}
	return row
}

// taskData is the data of the page of a task.
type taskData struct {
	taskRow
	MayChange, MayRetry, MayEnd bool
	WorkspacePath               string
	Work                        []runRow
	Events                      []eventRow
}

// namedTask returns the task that the path names, if the person may see it.
func (h *taskPages) namedTask(c *route.Call) (record.Task, error) {
	if h.engineer == nil {
		return record.Task{}, route.NotFound("task", c.R.PathValue("task"))
	}
	return h.engineer.TaskFor(c.R.Context(), c.Who, c.R.PathValue("task"))
}

func (h *taskPages) taskPage(c *route.Call) (*Page, error) {
	t, err := h.namedTask(c)
	if err != nil {
		return nil, err
	}
	ctx := c.R.Context()
	d := &taskData{taskRow: newTaskRow(t), MayChange: c.Who.CheckChange(t.Repo, t.Caller().Branch()) == nil,
		WorkspacePath: workspacePath(t.Caller().Slug())}
	d.MayRetry, d.MayEnd = d.MayChange && t.Status == record.StateFailed, d.MayChange && !t.Ended()
	for _, name := range slices.Backward(t.Work) {
		if r, err := h.executor.Run(ctx, name); err == nil && c.Who.SeesRun(r) { // pruned runs are gone
			d.Work = append(d.Work, h.rows.runRow(ctx, c.Who, r))
		}
	}
	for e, err := range h.executor.Events(ctx, t.Run, 0, false) {
		if err != nil {
			break // the record of a task that was pruned
		}
		if text := taskEventText(e); text != "" {
			d.Events = append(d.Events, eventRow{Key: fmt.Sprint(e.Seq), Text: text, When: e.Time, Bad: e.Kind == "failed"})
		}
	}
	slices.Reverse(d.Events)
	d.Events = d.Events[:min(len(d.Events), maxActivity)]
	return &Page{Title: d.Title, Nav: "tasks", Template: "task", Data: d,
		Topics: []string{live.CallerTopic(t.Caller())}, Beat: 10 * time.Second, Refresh: 15}, nil
}

// taskEventText returns an event of a task in words, and "" for one that says nothing to people.
func taskEventText(e record.Event) string {
	message := render.ClipClean(e.Message, 600)
	switch e.Type {
	case record.EventHeard:
		return "heard: " + message
	case record.EventWork:
		return "work " + e.Kind
	case record.EventPosted:
		return "posted: " + message
	case record.EventNote, record.EventRunState:
		return message
	}
	return ""
}

func (h *taskPages) taskAction(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	t, err := h.namedTask(c)
	if err != nil {
		return err
	}
	if err := c.Who.CheckChange(t.Repo, t.Caller().Branch()); err != nil {
		return err
	}
	switch action := c.R.PathValue("action"); action {
	case "retry":
		_, err = h.engineer.Retry(c.R.Context(), t.ID, c.Who.Person(t.Asker))
	case "end":
		_, err = h.engineer.Cancel(c.R.Context(), t.ID, false, c.Who.Person(t.Asker))
	case "say":
		text := formText(c, "prompt", 1<<20)
		if text == "" {
			return route.NewProblem(route.KindInvalid, "the message is empty")
		}
		_, err = h.engineer.Say(c.R.Context(), t.ID, record.NewToken(), text, c.Who.Person(t.Asker))
	default:
		return route.NotFound("action", action)
	}
	if err != nil {
		return err
	}
	return see(c, taskPath(t.ID))
}
