package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"

	"github.com/ramus-dev/ramus/executor/record"
)

type listQuery struct {
	Repo   string `json:"repo,omitempty" jsonschema:"only of this repository"`
	Caller string `json:"caller,omitempty" jsonschema:"only of this caller"`
	State  string `json:"state,omitempty" jsonschema:"only in this state"`
	Live   bool   `json:"live,omitempty" jsonschema:"only what has not ended"`
	Max    int    `json:"max,omitempty" jsonschema:"at most so many; 100 if 0, 1000 at most"`
}

// filter is what the caller asked for, inside what it may see.
func (c *call) filter() (record.Filter, error) {
	var q listQuery
	if err := c.query(&q); err != nil {
		return record.Filter{}, err
	}
	if q.Repo != "" && !c.Who.Sees(q.Repo) {
		return record.Filter{}, notFound("repository", q.Repo)
	}
	if c.Who.Repo != "*" {
		q.Repo = c.Who.Repo
	}
	state, err := knownState(q.State)
	if err != nil {
		return record.Filter{}, err
	}
	return record.Filter{Repo: q.Repo, Caller: q.Caller, State: state, Live: q.Live, Max: min(q.Max, 1000), Keep: c.Who.seesRun}, nil
}

func (c *call) runs() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	runs, err := c.Executor.Runs(c.R.Context(), f)
	if err != nil {
		return err
	}
	if runs == nil {
		runs = []record.Run{}
	}
	return c.reply(runs)
}

// narrow hides from callers what a name means in repositories and on branches that they do not see.
func (w Who) narrow(what, name string, err error) error {
	if (w.Repo != "*" || !w.grant().ReadsAll()) && errors.Is(err, record.ErrAmbiguous) {
		return problem(KindAmbiguous, "%q is not enough to name a %s", name, what).withHint("give the whole name")
	}
	return err
}

// findRun is Executor.Run for the caller's eyes.
func (c *call) findRun(name string) (record.Run, error) {
	return c.runOf(c.R.Context(), c.Who, name)
}

func (s *Server) runOf(ctx context.Context, who Who, name string) (record.Run, error) {
	r, err := s.Executor.Run(ctx, name)
	if err != nil {
		return r, who.narrow("run", name, err)
	}
	if !who.seesRun(r) {
		return record.Run{}, notFound("run", name)
	}
	return r, nil
}

// named is findRun for the name in the path. A route that is for writers is for those who
// may change the run's branch.
func (c *call) named() (record.Run, error) {
	r, err := c.findRun(c.R.PathValue("run"))
	if err == nil && c.access == AccessWrite {
		err = c.Who.changes(r.Repo, r.Branch)
	}
	return r, err
}

func (c *call) run() error {
	r, err := c.named()
	if err != nil {
		return err
	}
	return c.reply(r)
}

// permit makes a request the caller's own: the repository it may see, the
// caller it may work for, the name it goes by.
func (s *Server) permit(ctx context.Context, who Who, r *record.Request) error {
	r.Asker = who.Person(r.Asker)
	if r.Repo != "" && !who.Sees(r.Repo) {
		return notFound("repository", r.Repo)
	}
	if !r.Caller.IsZero() {
		// Without runs it will be a new one. Only the index is asked, not the caller's
		// container: this is on the way of every command.
		if runs := s.Executor.OfCaller(r.Caller); len(runs) > 0 {
			switch last := runs[len(runs)-1]; {
			case !who.seesRun(last):
				return notFound("caller", r.Caller.String())
			case r.Repo == "":
				r.Repo = last.Repo
			}
		}
	}
	if r.Repo == "" && who.Repo != "*" {
		r.Repo = who.Repo
	}
	if r.Repo != "" {
		if err := s.seesBase(ctx, who, r.Repo, r.Base); err != nil {
			return err
		}
	}
	r.Permit = who.permits
	if r.Fork != nil {
		of, err := s.callerOf(ctx, who, r.Fork.Of)
		if err != nil {
			return err
		}
		if r.Repo == "" {
			r.Repo = of.Repo
		}
		r.Fork.Of = of.Caller.String()
	}
	if r.Of != "" {
		of, err := s.runOf(ctx, who, r.Of)
		if err != nil {
			return err
		}
		r.Of = of.Name()
	}
	return nil
}

// permits decides on a run that was planned: the caller sees what it begins from, and may
// change the branches that it changes.
func (w Who) permits(r record.Run, into string) error {
	if !w.seesBranch(r.Repo, r.Base) {
		return notFound("branch", r.Base)
	}
	if err := w.changes(r.Repo, r.Branch); err != nil {
		return err
	}
	if into == "" {
		return nil
	}
	return w.changes(r.Repo, into)
}

// seesBase refuses a base that the caller may not know of; empty is the repository's own.
func (s *Server) seesBase(ctx context.Context, who Who, repo, base string) error {
	if who.grant().ReadsAll() {
		return nil
	}
	if base == "" {
		r, err := s.Git.Repo(repo)
		if err != nil {
			return err
		}
		if base, err = r.Base(ctx); err != nil {
			return err
		}
	}
	if !who.seesBranch(repo, base) {
		return notFound("branch", base)
	}
	return nil
}

func (c *call) submit() error {
	var r record.Request
	if err := c.body(&r); err != nil {
		return err
	}
	if err := c.permit(c.R.Context(), c.Who, &r); err != nil {
		return err
	}
	run, err := c.Executor.Submit(c.R.Context(), r)
	if err != nil {
		return err
	}
	return c.replyStatus(http.StatusCreated, run)
}

type eventsQuery struct {
	After  int64  `json:"after,omitempty" jsonschema:"only events after this number; Last-Event-ID goes before"`
	Follow string `json:"follow,omitempty" jsonschema:"0 lists the journal as a JSON array instead of a stream"`
}

func (c *call) events() error {
	q := eventsQuery{Follow: "1"}
	if err := c.query(&q); err != nil {
		return err
	}
	r, err := c.named()
	if err != nil {
		return err
	}
	if last := c.R.Header.Get("Last-Event-ID"); last != "" {
		if q.After, err = strconv.ParseInt(last, 10, 64); err != nil || q.After < 0 {
			return problem(KindInvalid, "Last-Event-ID %q is no number of an event", last)
		}
	}
	switch q.Follow {
	case "0", "false":
		return c.journal(r, q.After)
	case "1", "true", "":
	default:
		return problem(KindInvalid, "query parameter follow: %q is neither 1 nor 0", q.Follow)
	}
	return c.follow(func(ctx context.Context) iter.Seq2[record.Event, error] {
		return c.Executor.Events(ctx, r.Name(), q.After, true)
	}, true, nil, func() (any, error) { return c.findRun(r.Name()) })
}

// journal lists events, written as they come: a journal may be long.
func (c *call) journal(r record.Run, after int64) error {
	separator := "["
	for e, err := range c.Executor.Events(c.R.Context(), r.Name(), after, false) {
		if err != nil {
			return c.cutShort(err)
		}
		b, err := json.Marshal(e)
		if err != nil {
			return c.cutShort(err)
		}
		c.W.Header().Set("Content-Type", "application/json")
		if _, err := io.WriteString(c.W, separator+string(b)); err != nil {
			return err
		}
		separator = ","
	}
	if separator == "[" {
		return c.reply([]record.Event{})
	}
	_, err := io.WriteString(c.W, "]\n")
	return err
}

func (c *call) output() error {
	r, err := c.named()
	if err != nil {
		return err
	}
	step, stream := c.R.PathValue("step"), c.R.PathValue("stream")
	if stream != "stdout" && stream != "stderr" {
		return problem(KindNotFound, "there is no stream %q: want stdout or stderr", stream)
	}
	out, err := c.Executor.Output(c.R.Context(), r.Name(), step, stream)
	if err != nil {
		return err
	}
	defer out.Close()
	c.attachment(step + "." + stream)
	if _, err := io.Copy(c.W, out); err != nil {
		return c.cutShort(err)
	}
	return nil
}

func (c *call) evidence() error {
	r, err := c.named()
	if err != nil {
		return err
	}
	m, err := c.Executor.Manifest(c.R.Context(), r.Name())
	if err != nil {
		return err
	}
	return c.reply(m)
}

func (c *call) stopRun() error {
	r, err := c.named()
	if err != nil {
		return err
	}
	if err := c.Executor.Stop(c.R.Context(), r.Name(), c.Who.Person(r.Asker)); err != nil {
		return err
	}
	if r, err = c.findRun(r.Name()); err != nil {
		return err
	}
	return c.reply(r)
}

func (c *call) retry() error {
	r, err := c.named()
	if err != nil {
		return err
	}
	request, err := c.Executor.Again(c.R.Context(), r.Name(), c.Who.Person(r.Asker))
	if err != nil {
		return err
	}
	request.Permit = c.Who.permits
	again, err := c.Executor.Submit(c.R.Context(), request)
	if err != nil {
		return err
	}
	return c.replyStatus(http.StatusCreated, again)
}

func (c *call) decide() error {
	var d record.Decision
	if err := c.body(&d); err != nil {
		return err
	}
	r, err := c.named()
	if err != nil {
		return err
	}
	if !c.Who.Admin() || d.By == "" {
		d.By = c.Who.Subject // a gate may name who answers it: nobody answers as somebody else
	}
	if r, err = c.Executor.Decide(c.R.Context(), r.Name(), d); err != nil {
		return err
	}
	return c.reply(r)
}

func (c *call) say() error {
	var p record.Prompt
	if err := c.body(&p); err != nil {
		return err
	}
	r, err := c.named()
	if err != nil {
		return err
	}
	p.By = c.Who.Person(p.By)
	if err := c.Executor.Say(c.R.Context(), r.Name(), p); err != nil {
		return err
	}
	if r, err = c.findRun(r.Name()); err != nil {
		return err
	}
	return c.reply(r)
}

type watchQuery struct {
	Caller string `json:"caller,omitempty" jsonschema:"only of this caller"`
}

func (c *call) watch() error {
	var q watchQuery
	if err := c.query(&q); err != nil {
		return err
	}
	if q.Caller != "" {
		st, err := c.findCaller(q.Caller)
		if err != nil {
			return err
		}
		q.Caller = st.Caller.String()
	}
	var keep func(record.Event) bool
	if c.Who.Repo != "*" || !c.Who.grant().ReadsAll() {
		keep = c.ofRepo()
	}
	return c.follow(func(ctx context.Context) iter.Seq2[record.Event, error] {
		return c.Executor.Watch(ctx, q.Caller)
	}, false, keep, nil)
}

// ofRepo tells which events are of runs that the caller may see. A run's
// repository and branch never change, so it is looked up once.
func (c *call) ofRepo() func(record.Event) bool {
	const most = 10_000 // forgetting costs a look-up, remembering for ever costs memory
	seen := map[string]bool{}
	return func(e record.Event) bool {
		ok, known := seen[e.Run]
		if !known {
			r, err := c.Executor.Run(c.R.Context(), e.Run)
			ok = err == nil && c.Who.seesRun(r)
			if len(seen) >= most {
				clear(seen)
			}
			seen[e.Run] = ok
		}
		return ok
	}
}
