package gateway

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"strconv"
	"sync"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// runsAPI starts, follows and stops runs.
type runsAPI struct {
	Executor *executor.Executor
	find     *lookup.Lookup
	privacy  workspace.Privacy // nil means that nothing is private
	desk     *gather.Desk      // nil for the only server

	here   *gather.Question[struct{}, bool]
	others *gather.Stream[struct{}, record.Event]
}

// Routes returns the routes of runs.
func (api *runsAPI) Routes() []route.Route {
	api.ask()
	return []route.Route{
		{Method: "GET", Pattern: "/api/runs", Access: route.AccessRead, Summary: "List runs, newest first",
			Query: listQuery{}, Response: []record.Run{}, Handle: api.runs},
		{Method: "POST", Pattern: "/api/runs", Access: route.AccessWrite,
			Summary: "Start a run: a workflow, a command, a task or an agent", Request: record.Request{},
			Response: record.Run{}, Body: workflowBody, Handle: api.submit},
		{Method: "GET", Pattern: "/api/runs/{run}", Access: route.AccessRead, Summary: "One run",
			Response: record.Run{}, Handle: api.run},
		{Method: "GET", Pattern: "/api/runs/{run}/events", Access: route.AccessRead,
			Summary: "Follow a run's journal and live output; resumes at Last-Event-ID; follow=0 lists the journal as JSON",
			Query:   eventsQuery{}, Response: record.Event{}, Media: route.MediaSSE, Handle: api.events},
		{Method: "GET", Pattern: "/api/runs/{run}/output/{step}/{stream}", Access: route.AccessRead,
			Summary: "A step's whole stdout or stderr", Media: route.MediaBytes, Handle: api.output},
		{Method: "GET", Pattern: "/api/runs/{run}/evidence", Access: route.AccessRead,
			Summary:  "What was run and changed, with checksums, once the run has ended or waits",
			Response: record.Manifest{}, Handle: api.evidence},
		{Method: "POST", Pattern: "/api/runs/{run}/stop", Access: route.AccessWrite,
			Summary: "Stop a run; its changes are committed", Response: record.Run{}, Handle: api.stopRun},
		{Method: "POST", Pattern: "/api/runs/{run}/retry", Access: route.AccessWrite,
			Summary: "Start a failed run again where it failed", Response: record.Run{}, Handle: api.retry},
		{Method: "POST", Pattern: "/api/runs/{run}/say", Access: route.AccessWrite,
			Summary: "Say something to a run's agent, for its next turn; with a key, once however often it is sent",
			Request: record.Prompt{}, Response: record.Run{}, Body: promptBody, Handle: api.sayPrompt},
		{Method: "POST", Pattern: "/api/runs/{run}/decide", Access: route.AccessWrite,
			Summary: "Answer the question a run waits with", Request: record.Decision{}, Response: record.Run{},
			Handle: api.decide},
		{Method: "GET", Pattern: "/api/watch", Access: route.AccessRead,
			Summary: "Follow all that happens from now on", Query: watchQuery{}, Response: record.Event{},
			Media: route.MediaSSE, Handle: api.watch},
	}
}

type listQuery struct {
	Repo   string `json:"repo,omitempty" jsonschema:"only of this repository"`
	Caller string `json:"caller,omitempty" jsonschema:"only of this caller"`
	State  string `json:"state,omitempty" jsonschema:"only in this state"`
	Live   bool   `json:"live,omitempty" jsonschema:"only what has not ended"`
	Max    int    `json:"max,omitempty" jsonschema:"at most so many; 100 if 0, 1000 at most"`
}

// readFilter returns the filter of a call's query, narrowed to the runs that its caller may see.
func readFilter(c *route.Call) (record.Filter, error) {
	var q listQuery
	if err := c.ReadQuery(&q); err != nil {
		return record.Filter{}, err
	}
	if q.Repo != "" && !c.Who.Sees(q.Repo) {
		return record.Filter{}, route.NotFound("repository", q.Repo)
	}
	if c.Who.Repo != "*" {
		q.Repo = c.Who.Repo
	}
	state, err := lookup.ParseState(q.State)
	if err != nil {
		return record.Filter{}, err
	}
	return record.Filter{Repo: q.Repo, Caller: q.Caller, State: state, Live: q.Live, Max: min(q.Max, 1000),
		Keep: c.Who.SeesRun}, nil
}

func (api *runsAPI) runs(c *route.Call) error {
	f, err := readFilter(c)
	if err != nil {
		return err
	}
	runs, err := api.Executor.Runs(c.R.Context(), f)
	if err != nil {
		return err
	}
	if runs == nil {
		runs = []record.Run{}
	}
	return c.Reply(runs)
}

func (api *runsAPI) run(c *route.Call) error {
	r, err := api.find.PathRun(c)
	if err != nil {
		return err
	}
	return c.Reply(r)
}

func (api *runsAPI) submit(c *route.Call) error {
	var r record.Request
	if err := c.ReadJSON(&r); err != nil {
		return err
	}
	if err := api.find.Bind(c.R.Context(), c.Who, &r); err != nil {
		return err
	}
	settle, err := workspace.Hide(c.R.Context(), api.Executor, api.privacy, &r)
	if err != nil {
		return err
	}
	run, err := api.Executor.Submit(c.R.Context(), r)
	if err := settle(err); err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, run)
}

type eventsQuery struct {
	After  int64  `json:"after,omitempty" jsonschema:"only events after this number; Last-Event-ID goes before"`
	Follow string `json:"follow,omitempty" jsonschema:"0 lists the journal as a JSON array instead of a stream"`
}

func (api *runsAPI) events(c *route.Call) error {
	q := eventsQuery{Follow: "1"}
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := api.find.PathRun(c)
	if err != nil {
		return err
	}
	if last := c.R.Header.Get("Last-Event-ID"); last != "" {
		if q.After, err = strconv.ParseInt(last, 10, 64); err != nil || q.After < 0 {
			return route.NewProblem(route.KindInvalid, "Last-Event-ID %q is no number of an event", last)
		}
	}
	switch q.Follow {
	case "0", "false":
		return api.journal(c, r, q.After)
	case "1", "true", "":
	default:
		return route.NewProblem(route.KindInvalid, "query parameter follow: %q is neither 1 nor 0", q.Follow)
	}
	return c.Follow(route.Feed{
		Events: func(ctx context.Context) iter.Seq2[record.Event, error] {
			return api.Executor.Events(ctx, r.Name(), q.After, true)
		},
		Numbered: true,
		Last:     func() (any, error) { return api.find.Run(c.R.Context(), c.Who, r.Name()) },
	})
}

// journal answers with the events as a list. It writes each event as it is read, because a journal may be long.
func (api *runsAPI) journal(c *route.Call, r record.Run, after int64) error {
	separator := "["
	for e, err := range api.Executor.Events(c.R.Context(), r.Name(), after, false) {
		if err != nil {
			return c.CutShort(err)
		}
		b, err := json.Marshal(e)
		if err != nil {
			return c.CutShort(err)
		}
		c.W.Header().Set("Content-Type", "application/json")
		if _, err := io.WriteString(c.W, separator+string(b)); err != nil {
			return err
		}
		separator = ","
	}
	if separator == "[" {
		return c.Reply([]record.Event{})
	}
	_, err := io.WriteString(c.W, "]\n")
	return err
}

func (api *runsAPI) output(c *route.Call) error {
	r, err := api.find.PathRun(c)
	if err != nil {
		return err
	}
	step, stream := c.R.PathValue("step"), c.R.PathValue("stream")
	if stream != "stdout" && stream != "stderr" {
		return route.NewProblem(route.KindNotFound, "there is no stream %q: want stdout or stderr", stream)
	}
	out, err := api.Executor.Output(c.R.Context(), r.Name(), step, stream)
	if err != nil {
		return err
	}
	defer out.Close()
	c.MarkAttachment(step + "." + stream)
	if _, err := io.Copy(c.W, out); err != nil {
		return c.CutShort(err)
	}
	return nil
}

func (api *runsAPI) evidence(c *route.Call) error {
	r, err := api.find.PathRun(c)
	if err != nil {
		return err
	}
	m, err := api.Executor.Manifest(c.R.Context(), r.Name())
	if err != nil {
		return err
	}
	return c.Reply(m)
}

func (api *runsAPI) stopRun(c *route.Call) error {
	r, err := api.find.PathRun(c)
	if err != nil {
		return err
	}
	if err := api.Executor.Stop(c.R.Context(), r.Name(), c.Who.Person(r.Asker)); err != nil {
		return err
	}
	if r, err = api.find.Run(c.R.Context(), c.Who, r.Name()); err != nil {
		return err
	}
	return c.Reply(r)
}

func (api *runsAPI) retry(c *route.Call) error {
	r, err := api.find.PathRun(c)
	if err != nil {
		return err
	}
	request, err := api.Executor.Again(c.R.Context(), r.Name(), c.Who.Person(r.Asker))
	if err != nil {
		return err
	}
	request.Permit = c.Who.CheckRun
	again, err := api.Executor.Submit(c.R.Context(), request)
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, again)
}

func (api *runsAPI) decide(c *route.Call) error {
	var d record.Decision
	if err := c.ReadJSON(&d); err != nil {
		return err
	}
	r, err := api.find.PathRun(c)
	if err != nil {
		return err
	}
	if !c.Who.Admin() || d.By == "" {
		d.By = c.Who.Subject // a gate may name its reviewers, so nobody may answer as somebody else
		d.Name = c.Who.Person(gitd.Person{}).Name
	}
	if r, err = api.Executor.Decide(c.R.Context(), r.Name(), d); err != nil {
		return err
	}
	return c.Reply(r)
}

func (api *runsAPI) sayPrompt(c *route.Call) error {
	var p record.Prompt
	if err := c.ReadJSON(&p); err != nil {
		return err
	}
	r, err := api.find.PathRun(c)
	if err != nil {
		return err
	}
	p.By = c.Who.Person(p.By)
	if !c.Who.Admin() || p.From == "" {
		p.From = "api"
	}
	if p.Now {
		_, err = api.Executor.Prompts.Steer(c.R.Context(), r.Name(), p)
	} else {
		err = api.Executor.Prompts.Say(c.R.Context(), r.Name(), p)
	}
	if err != nil {
		return err
	}
	if r, err = api.find.Run(c.R.Context(), c.Who, r.Name()); err != nil {
		return err
	}
	return c.Reply(r)
}

type watchQuery struct {
	Caller string `json:"caller,omitempty" jsonschema:"only of this caller"`
}

func (api *runsAPI) watch(c *route.Call) error {
	var q watchQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Caller != "" {
		st, err := api.find.Caller(c.R.Context(), c.Who, q.Caller)
		if err != nil {
			return err
		}
		q.Caller = st.Caller.String()
	}
	if q.Caller != "" || api.desk.Alone() {
		return c.Follow(route.Feed{Events: func(ctx context.Context) iter.Seq2[record.Event, error] {
			return api.watchHere(ctx, c.Who, q.Caller)
		}})
	}
	ctx, lack := gather.Collect(c.R.Context())
	if _, err := api.here.Ask(ctx, c.Who, struct{}{}); err != nil {
		return err
	}
	gather.SetMissing(c.W.Header(), lack.Names())
	return c.Follow(route.Feed{Events: func(ctx context.Context) iter.Seq2[record.Event, error] { return api.watchAll(ctx, c.Who) }})
}

// ask makes the questions to other replicas.
func (api *runsAPI) ask() {
	api.here = gather.New(api.desk, "here", func(context.Context, route.Who, struct{}) (bool, error) { return true, nil })
	api.others = gather.NewStream(api.desk, "events", func(ctx context.Context, who route.Who, _ struct{}, send func(record.Event) error) error {
		for e, err := range api.watchHere(ctx, who, "") {
			if err == nil {
				err = send(e)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// watchAll returns the events of all replicas that a person may see.
func (api *runsAPI) watchAll(ctx context.Context, who route.Who) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		others := make(chan record.Event)
		work.Go(func() {
			api.others.Follow(ctx, who, struct{}{}, func(e record.Event) {
				select {
				case others <- e:
				case <-ctx.Done():
				}
			}, func() {})
		})
		type item struct {
			event record.Event
			err   error
		}
		own := make(chan item)
		work.Go(func() {
			defer close(own)
			for e, err := range api.watchHere(ctx, who, "") {
				select {
				case own <- item{e, err}:
				case <-ctx.Done():
					return
				}
			}
		})
		for {
			var next item
			ok := true
			select {
			case next, ok = <-own:
			case next.event = <-others:
			}
			if !ok || !yield(next.event, next.err) {
				return
			}
		}
	}
}

// watchHere returns the events of this server that a person may see.
func (api *runsAPI) watchHere(ctx context.Context, who route.Who, caller string) iter.Seq2[record.Event, error] {
	events := api.Executor.Watch(ctx, caller)
	if who.Local || who.Admin() {
		return events
	}
	sees := api.ofRepo(ctx, who)
	return func(yield func(record.Event, error) bool) {
		for e, err := range events {
			if (err != nil || sees(e)) && !yield(e, err) {
				return
			}
		}
	}
}

// ofRepo returns a filter of events that keeps those of runs that the caller may see. A run's repository and branch
// never change, so each run is looked up once. Work becomes private while somebody watches, so each event is decided.
func (api *runsAPI) ofRepo(ctx context.Context, who route.Who) func(record.Event) bool {
	const most = 10_000 // a forgotten run costs one lookup; remembering all runs would cost memory
	known := map[string]record.Run{}
	return func(e record.Event) bool {
		r, ok := known[e.Run]
		if !ok {
			found, err := api.Executor.Run(ctx, e.Run)
			if err != nil {
				return false
			}
			if len(known) >= most {
				clear(known)
			}
			r = record.Run{Repo: found.Repo, Branch: found.Branch, Caller: found.Caller}
			known[e.Run] = r
		}
		return who.SeesRun(r)
	}
}
