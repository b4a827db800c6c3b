package trigger

import (
	"context"
	"errors"
	"net/http"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// API serves the routes of triggers.
type API struct {
	Triggers *Triggers // nil if the server has none, such as one inside a command
}

// Routes returns the routes of triggers.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "POST", Pattern: "/hooks/{name}", Access: route.AccessHook, Body: maxBody,
			Summary: "A signed webhook of a trigger; its work is claimed, then answered", Response: Heard{},
			Handle: api.hook},
		{Method: "GET", Pattern: "/api/triggers", Access: route.AccessRead, Summary: "List triggers, with their last runs",
			Response: []Status{}, Handle: api.list},
		{Method: "POST", Pattern: "/api/triggers/{trigger}/run", Access: route.AccessAdmin,
			Summary: "Start the work of a trigger now; with a key, once however often it is sent", Request: RunRequest{},
			Response: record.Run{}, Handle: api.run},
		{Method: "POST", Pattern: "/api/triggers/{trigger}/pause", Access: route.AccessAdmin,
			Summary: "Have a trigger start nothing until it is resumed", Response: Status{}, Handle: api.pause},
		{Method: "POST", Pattern: "/api/triggers/{trigger}/resume", Access: route.AccessAdmin,
			Summary: "Resume a paused trigger, and forget its failures", Response: Status{}, Handle: api.resume},
	}
}

// RunRequest asks for the work of a trigger.
type RunRequest struct {
	Key    string         `json:"key,omitempty"`
	Values map[string]any `json:"values,omitempty"` // further inputs of the workflow, or the event of the task
	Asker  gitd.Person    `json:"asker,omitzero"`
}

// Heard is the answer to a webhook.
type Heard struct {
	Trigger string `json:"trigger"`
	Run     string `json:"run,omitempty"`
	// Known is set if the event was delivered before. Ignored is set if it does not fit the trigger's conditions.
	Known   bool `json:"known,omitempty"`
	Ignored bool `json:"ignored,omitempty"`
}

// errNone is the problem of a server without triggers.
func errNone() error {
	return route.NewProblem(route.KindConflict, "triggers work in a server alone").WithHint("start `ramus serve`")
}

// hook receives a webhook. An unknown name and a wrong signature have the same answer, so that nobody can find the
// names out.
func (api *API) hook(c *route.Call) error {
	t := api.Triggers
	refused := &route.Problem{Kind: route.KindUnauthorized, Detail: "the signature is refused",
		Hint: "`triggers.NAME.webhook` has the secret and the way of signing; see docs/triggers.md"}
	if t == nil {
		return refused
	}
	body, err := api.read(c)
	if err != nil {
		return err
	}
	e, err := t.named(c.R.PathValue("name"))
	if err != nil || e.Webhook == nil {
		return refused
	}
	now := t.Now().UTC()
	ev, fits, err := e.parse(c.R.Header, body, now)
	switch {
	case errors.Is(err, ErrSignature):
		refused.Cause = err
		return refused
	case errors.Is(err, ErrEvent):
		return route.NewProblem(route.KindInvalid, "cannot read the webhook: %v", err)
	case err != nil:
		return err
	case !fits:
		return c.Reply(Heard{Trigger: e.Name, Ignored: true})
	}
	run, known, err := t.claimRun(c.R.Context(), e, ev)
	switch {
	case errors.Is(err, ErrLimit):
		return route.NewProblem(route.KindUnavailable, "trigger %s has started as much work as its limit allows",
			e.Name).WithHint("send the event again later")
	case err != nil:
		return err
	}
	return c.ReplyStatus(http.StatusAccepted, Heard{Trigger: e.Name, Run: run.Name(), Known: known})
}

// read reads the body of a webhook when few others are read.
func (api *API) read(c *route.Call) ([]byte, error) {
	select {
	case api.Triggers.heard <- struct{}{}:
		defer func() { <-api.Triggers.heard }()
	case <-c.R.Context().Done():
		return nil, context.Cause(c.R.Context())
	}
	return c.ReadBody()
}

func (api *API) list(c *route.Call) error {
	if api.Triggers == nil {
		return errNone()
	}
	return c.Reply(api.Triggers.Statuses(func(s Status) bool { return c.Who.Sees(s.Repo) && c.Who.ReadsAll() }))
}

func (api *API) run(c *route.Call) error {
	var r RunRequest
	if err := c.ReadJSON(&r); err != nil {
		return err
	}
	if api.Triggers == nil {
		return errNone()
	}
	run, err := api.Triggers.Run(c.R.Context(), c.R.PathValue("trigger"), r.Key, r.Values, c.Who.Person(r.Asker))
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, run)
}

func (api *API) pause(c *route.Call) error {
	if api.Triggers == nil {
		return errNone()
	}
	s, err := api.Triggers.Pause(c.R.PathValue("trigger"))
	if err != nil {
		return err
	}
	return c.Reply(s)
}

func (api *API) resume(c *route.Call) error {
	if api.Triggers == nil {
		return errNone()
	}
	s, err := api.Triggers.Resume(c.R.PathValue("trigger"))
	if err != nil {
		return err
	}
	return c.Reply(s)
}
