package gateway

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"strconv"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

type listQuery struct {
	Repo   string `json:"repo,omitempty" jsonschema:"only of this repository"`
	Caller string `json:"caller,omitempty" jsonschema:"only of this caller"`
	State  string `json:"state,omitempty" jsonschema:"only in this state"`
	Live   bool   `json:"live,omitempty" jsonschema:"only what has not ended"`
	Max    int    `json:"max,omitempty" jsonschema:"at most so many; 100 if 0, 1000 at most"`
}

// filter is what the caller asked for, inside what it may see.
func (s *Server) filter(c *route.Call) (record.Filter, error) {
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
	state, err := knownState(q.State)
	if err != nil {
		return record.Filter{}, err
	}
	return record.Filter{Repo: q.Repo, Caller: q.Caller, State: state, Live: q.Live, Max: min(q.Max, 1000), Keep: c.Who.SeesRun}, nil
}

func (s *Server) runs(c *route.Call) error {
	f, err := s.filter(c)
	if err != nil {
		return err
	}
	runs, err := s.Executor.Runs(c.R.Context(), f)
	if err != nil {
		return err
	}
	if runs == nil {
		runs = []record.Run{}
	}
	return c.Reply(runs)
}

// findRun is Executor.Run for the caller's eyes.
func (s *Server) findRun(c *route.Call, name string) (record.Run, error) {
	return s.runOf(c.R.Context(), c.Who, name)
}

func (s *Server) runOf(ctx context.Context, who route.Who, name string) (record.Run, error) {
	r, err := s.Executor.Run(ctx, name)
	if err != nil {
		return r, who.HideMatches("run", name, err)
	}
	if !who.SeesRun(r) {
		return record.Run{}, route.NotFound("run", name)
	}
	return r, nil
}

// named is findRun for the name in the path. A route that is for writers is for those who
// may change the run's branch.
func (s *Server) named(c *route.Call) (record.Run, error) {
	r, err := s.findRun(c, c.R.PathValue("run"))
	if err == nil && c.Access == route.AccessWrite {
		err = c.Who.CheckChange(r.Repo, r.Branch)
	}
	return r, err
}

func (s *Server) run(c *route.Call) error {
	r, err := s.named(c)
	if err != nil {
		return err
	}
	return c.Reply(r)
}

// permit makes a request the caller's own: the repository it may see, the
// caller it may work for, the name it goes by.
func (s *Server) permit(ctx context.Context, who route.Who, r *record.Request) error {
	r.Asker = who.Person(r.Asker)
	if r.Repo != "" && !who.Sees(r.Repo) {
		return route.NotFound("repository", r.Repo)
	}
	if !r.Caller.IsZero() {
		// Without runs it will be a new one. Only the index is asked, not the caller's
		// container: this is on the way of every command.
		if runs := s.Executor.OfCaller(r.Caller); len(runs) > 0 {
			switch last := runs[len(runs)-1]; {
			case !who.SeesRun(last):
				return route.NotFound("caller", r.Caller.String())
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
	r.Permit = who.CheckRun
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

// seesBase refuses a base that the caller may not know of; empty is the repository's own.
func (s *Server) seesBase(ctx context.Context, who route.Who, repo, base string) error {
	if who.Grant().ReadsAll() {
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
	if !who.SeesBranch(repo, base) {
		return route.NotFound("branch", base)
	}
	return nil
}

func (s *Server) submit(c *route.Call) error {
	var r record.Request
	if err := c.ReadJSON(&r); err != nil {
		return err
	}
	if err := s.permit(c.R.Context(), c.Who, &r); err != nil {
		return err
	}
	run, err := s.Executor.Submit(c.R.Context(), r)
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, run)
}

type eventsQuery struct {
	After  int64  `json:"after,omitempty" jsonschema:"only events after this number; Last-Event-ID goes before"`
	Follow string `json:"follow,omitempty" jsonschema:"0 lists the journal as a JSON array instead of a stream"`
}

func (s *Server) events(c *route.Call) error {
	q := eventsQuery{Follow: "1"}
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := s.named(c)
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
		return s.journal(c, r, q.After)
	case "1", "true", "":
	default:
		return route.NewProblem(route.KindInvalid, "query parameter follow: %q is neither 1 nor 0", q.Follow)
	}
	return c.Follow(route.Feed{
		Events: func(ctx context.Context) iter.Seq2[record.Event, error] {
			return s.Executor.Events(ctx, r.Name(), q.After, true)
		},
		Numbered: true,
		Last:     func() (any, error) { return s.findRun(c, r.Name()) },
	})
}

// journal lists events, written as they come: a journal may be long.
func (s *Server) journal(c *route.Call, r record.Run, after int64) error {
	separator := "["
	for e, err := range s.Executor.Events(c.R.Context(), r.Name(), after, false) {
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

func (s *Server) output(c *route.Call) error {
	r, err := s.named(c)
	if err != nil {
		return err
	}
	step, stream := c.R.PathValue("step"), c.R.PathValue("stream")
	if stream != "stdout" && stream != "stderr" {
		return route.NewProblem(route.KindNotFound, "there is no stream %q: want stdout or stderr", stream)
	}
	out, err := s.Executor.Output(c.R.Context(), r.Name(), step, stream)
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

func (s *Server) evidence(c *route.Call) error {
	r, err := s.named(c)
	if err != nil {
		return err
	}
	m, err := s.Executor.Manifest(c.R.Context(), r.Name())
	if err != nil {
		return err
	}
	return c.Reply(m)
}

func (s *Server) stopRun(c *route.Call) error {
	r, err := s.named(c)
	if err != nil {
		return err
	}
	if err := s.Executor.Stop(c.R.Context(), r.Name(), c.Who.Person(r.Asker)); err != nil {
		return err
	}
	if r, err = s.findRun(c, r.Name()); err != nil {
		return err
	}
	return c.Reply(r)
}

func (s *Server) retry(c *route.Call) error {
	r, err := s.named(c)
	if err != nil {
		return err
	}
	request, err := s.Executor.Again(c.R.Context(), r.Name(), c.Who.Person(r.Asker))
	if err != nil {
		return err
	}
	request.Permit = c.Who.CheckRun
	again, err := s.Executor.Submit(c.R.Context(), request)
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, again)
}

func (s *Server) decide(c *route.Call) error {
	var d record.Decision
	if err := c.ReadJSON(&d); err != nil {
		return err
	}
	r, err := s.named(c)
	if err != nil {
		return err
	}
	if !c.Who.Admin() || d.By == "" {
		d.By = c.Who.Subject // a gate may name who answers it: nobody answers as somebody else
	}
	if r, err = s.Executor.Decide(c.R.Context(), r.Name(), d); err != nil {
		return err
	}
	return c.Reply(r)
}

func (s *Server) say(c *route.Call) error {
	var p record.Prompt
	if err := c.ReadJSON(&p); err != nil {
		return err
	}
	r, err := s.named(c)
	if err != nil {
		return err
	}
	p.By = c.Who.Person(p.By)
	if err := s.Executor.Say(c.R.Context(), r.Name(), p); err != nil {
		return err
	}
	if r, err = s.findRun(c, r.Name()); err != nil {
		return err
	}
	return c.Reply(r)
}

type watchQuery struct {
	Caller string `json:"caller,omitempty" jsonschema:"only of this caller"`
}

func (s *Server) watch(c *route.Call) error {
	var q watchQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Caller != "" {
		st, err := s.findCaller(c, q.Caller)
		if err != nil {
			return err
		}
		q.Caller = st.Caller.String()
	}
	var keep func(record.Event) bool
	if c.Who.Repo != "*" || !c.Who.Grant().ReadsAll() {
		keep = s.ofRepo(c)
	}
	return c.Follow(route.Feed{
		Events: func(ctx context.Context) iter.Seq2[record.Event, error] { return s.Executor.Watch(ctx, q.Caller) },
		Keep:   keep,
	})
}

// ofRepo tells which events are of runs that the caller may see. A run's
// repository and branch never change, so it is looked up once.
func (s *Server) ofRepo(c *route.Call) func(record.Event) bool {
	const most = 10_000 // forgetting costs a look-up, remembering for ever costs memory
	seen := map[string]bool{}
	return func(e record.Event) bool {
		ok, known := seen[e.Run]
		if !known {
			r, err := s.Executor.Run(c.R.Context(), e.Run)
			ok = err == nil && c.Who.SeesRun(r)
			if len(seen) >= most {
				clear(seen)
			}
			seen[e.Run] = ok
		}
		return ok
	}
}
