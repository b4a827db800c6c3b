package engineer

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/ticket"
)

// TicketHook accepts the webhooks of an issue tracker. The zero value accepts none.
type TicketHook struct {
	// Parse checks that the tracker sent the raw body, and reads it. The errors are [forge.ErrSignature] and
	// [forge.ErrDelivery].
	Parse func(http.Header, []byte) (ticket.Event, error)
	// Repos has the repositories of projects. "*" is that of all others.
	Repos map[string]string
}

// trackerNames are the issue trackers with a route for webhooks.
var trackerNames = []struct{ name, title string }{{"jira", "Jira"}, {"linear", "Linear"}}

// ticketRoutes returns the routes for requests from issue trackers.
func (api *API) ticketRoutes() []route.Route {
	var rows []route.Route
	for _, h := range trackerNames {
		rows = append(rows, route.Route{Method: "POST", Pattern: "/webhooks/" + h.name, Access: route.AccessHook,
			Body:    ticket.MaxBody,
			Summary: h.title + "'s webhooks: an issue with the label or the assignee of ramus starts a task",
			Handle:  func(c *route.Call) error { return api.fromTracker(c, h.name, h.title) }})
	}
	return rows
}

// fromTracker starts a task of an issue. The task is durable before the answer. An issue starts one task, so a repeated
// webhook starts nothing.
func (api *API) fromTracker(c *route.Call, name, title string) error {
	hook := api.Tickets[name]
	if api.Engineer == nil || hook.Parse == nil {
		return route.NewProblem(route.KindNotFound, "no %s webhook is configured",
			title).WithHint("set " + name + ".webhook_secret_env")
	}
	e, err := api.hearTicket(c, hook)
	switch {
	case errors.Is(err, forge.ErrSignature):
		return &route.Problem{Kind: route.KindUnauthorized, Detail: "the signature is refused",
			Hint: name + ".webhook_secret_env must name the webhook's secret", Cause: err}
	case errors.Is(err, forge.ErrDelivery):
		return route.NewProblem(route.KindInvalid, "cannot read the webhook of %s: %v", title, err)
	case err != nil:
		return err
	}
	if !e.Starts {
		return c.ReplyStatus(http.StatusAccepted, Heard{Event: e.Name})
	}
	repo := hook.Repos[e.Project]
	if repo == "" {
		repo = hook.Repos["*"]
	}
	if repo == "" {
		api.Log.Info("an issue of a project without a repository is left alone", "tracker", name, "issue", e.Key)
		return c.ReplyStatus(http.StatusAccepted, Heard{Event: e.Name, Action: "no repository"})
	}
	t, err := api.Engineer.Submit(c.R.Context(),
		Submission{Description: fmt.Sprintf("Resolve the issue %s of %s: %s", e.Key, title, e.Title), Context: e.Text,
			Repo: repo, Key: name + ":" + e.Key, Asker: api.Engineer.Executor.Bot,
			Ticket: record.Ticket{Tracker: name, Key: e.Key, URL: e.URL}})
	if err != nil {
		return err
	}
	api.Log.Debug("an issue has a task", "request", c.ID, "tracker", name, "issue", e.Key, "task", t.ID)
	return c.ReplyStatus(http.StatusAccepted, Heard{Event: e.Name, Action: "task " + t.ID})
}

// hearTicket reads a webhook and checks its sender.
func (api *API) hearTicket(c *route.Call, hook TicketHook) (ticket.Event, error) {
	select {
	case api.heard <- struct{}{}:
		defer func() { <-api.heard }()
	case <-c.R.Context().Done():
		return ticket.Event{}, context.Cause(c.R.Context())
	}
	body, err := c.ReadBody()
	if err != nil {
		return ticket.Event{}, err
	}
	return hook.Parse(c.R.Header, body)
}

// toTicket returns the event that queues a comment on the issue of a task. Returns nil if the task has none. detail is
// shown literally.
func (j *job) toTicket(t record.Task, key, text, detail string) []record.Event {
	if t.Ticket.Key == "" || j.engineer.Trackers[t.Ticket.Tracker] == nil {
		return nil
	}
	return []record.Event{queued(message{Key: "ticket:" + key, Lane: laneTicket, Kind: mailPost, Text: text, Item: detail})}
}

// postTicket posts a comment on the issue of the task.
func (j *job) postTicket(ctx context.Context, t record.Task, m message) error {
	tracker := j.engineer.Trackers[t.Ticket.Tracker]
	if tracker == nil {
		return fmt.Errorf("%w: %s is not configured any more", forge.ErrRefused, t.Ticket.Tracker)
	}
	return tracker.Comment(ctx, t.Ticket.Key, m.Text, m.Item, t.Run+" "+m.Key)
}
