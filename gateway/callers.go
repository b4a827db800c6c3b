package gateway

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// findCaller is Executor.Caller for the caller's eyes.
func (s *Server) findCaller(c *route.Call, name string) (executor.CallerStatus, error) {
	return s.callerOf(c.R.Context(), c.Who, name)
}

func (s *Server) callerOf(ctx context.Context, who route.Who, name string) (executor.CallerStatus, error) {
	st, err := s.Executor.Caller(ctx, name)
	return s.seen(who, name, st, err)
}

// seen is a caller that was found by name, for those who may see it.
func (s *Server) seen(who route.Who, name string, st executor.CallerStatus, err error) (executor.CallerStatus, error) {
	if err != nil {
		return st, who.HideMatches("caller", name, err)
	}
	if !who.SeesBranch(st.Repo, st.Branch) {
		return executor.CallerStatus{}, route.NotFound("caller", name)
	}
	return st, nil
}

// namedCaller is findCaller for the name in the path. A route that is for writers
// is for those who may change the caller's branch.
func (s *Server) namedCaller(c *route.Call) (executor.CallerStatus, error) {
	st, err := s.findCaller(c, c.R.PathValue("caller"))
	if err == nil && c.Access == route.AccessWrite {
		err = c.Who.CheckChange(st.Repo, st.Branch)
	}
	return st, err
}

func (s *Server) callers(c *route.Call) error {
	f, err := s.filter(c)
	if err != nil {
		return err
	}
	list, err := s.Executor.Callers(c.R.Context(), f)
	if err != nil {
		return err
	}
	if list == nil {
		list = []executor.CallerStatus{}
	}
	return c.Reply(list)
}

func (s *Server) caller(c *route.Call) error {
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	return c.Reply(st)
}

func (s *Server) sessions(c *route.Call) error {
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	list, err := s.Executor.Sessions(c.R.Context(), st.Caller.String())
	if err != nil {
		return err
	}
	return c.Reply(list)
}

// span is where a caller's work begins and ends in its repository.
func (s *Server) span(c *route.Call, st executor.CallerStatus) (r *gitd.Repo, from, to string, err error) {
	ctx := c.R.Context()
	if r, err = s.Git.Repo(st.Repo); err != nil {
		return nil, "", "", err
	}
	head, err := r.Resolve(ctx, "refs/heads/"+st.Branch)
	switch {
	case errors.Is(err, gitd.ErrNotFound) && st.Head != "":
		head = st.Head // merged, and the branch deleted
	case errors.Is(err, gitd.ErrNotFound) && st.Last.Head != "":
		head = st.Last.Head
	case err != nil:
		return nil, "", "", err
	}
	start := st.Last.BaseCommit
	// A caller that rebased onto a newer base brought the base's commits along,
	// which are not its work; one that was merged has all its work in the base.
	if base, err := r.MergeBase(ctx, "refs/heads/"+st.Last.Base, string(head)); err == nil && base != head {
		start = base
	} else if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return nil, "", "", err
	}
	return r, string(start), string(head), nil
}

type callerDiffQuery struct {
	Stat bool     `json:"stat,omitempty" jsonschema:"a diffstat instead of a patch"`
	Path []string `json:"path,omitempty" jsonschema:"only these files or folders"`
}

func (s *Server) callerDiff(c *route.Call) error {
	var q callerDiffQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	r, from, to, err := s.span(c, st)
	if err != nil {
		return err
	}
	return s.diff(c, r, from, to, gitd.DiffOptions{Stat: q.Stat, Paths: q.Path})
}

func (s *Server) callerChanges(c *route.Call) error {
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	r, from, to, err := s.span(c, st)
	if err != nil {
		return err
	}
	return s.changes(c, r, from, to, false)
}

// LogEntry is a command of a caller, the commit that holds what it changed, or
// both: commands that changed nothing have no commit, and commits that a
// command (or a person) made by itself have no command.
type LogEntry struct {
	Time    time.Time     `json:"time"`
	Run     string        `json:"run,omitempty"` // CALLER/RUN
	Step    string        `json:"step,omitempty"`
	Node    string        `json:"node,omitempty"`
	Command string        `json:"command,omitempty"`
	Task    string        `json:"task,omitempty"`
	Exit    *int          `json:"exit,omitempty"`
	Reason  string        `json:"reason,omitempty"` // why it ended, other than by itself
	TookMS  int64         `json:"took_ms,omitempty"`
	Stdout  string        `json:"stdout,omitempty"` // the last of it
	Stderr  string        `json:"stderr,omitempty"`
	Commit  *gitd.Commit  `json:"commit,omitempty"`
	Changes []gitd.Change `json:"changes,omitempty"`
	// Patch is there when it was asked for; one larger than 256 KiB is cut.
	Patch    string `json:"patch,omitempty"`
	PatchCut bool   `json:"patch_cut,omitempty"`
}

type callerLogQuery struct {
	Patch bool `json:"patch,omitempty" jsonschema:"with what each commit changed"`
	Max   int  `json:"max,omitempty" jsonschema:"at most so many entries; 200 if 0, 1000 at most"`
}

func (s *Server) callerLog(c *route.Call) error {
	var q callerLogQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Max == 0 {
		q.Max = 200
	}
	q.Max = min(q.Max, 1000)
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	entries, err := s.commands(c, st)
	if err != nil {
		return err
	}
	r, from, to, err := s.span(c, st)
	if err != nil {
		return err
	}
	ctx := c.R.Context()
	commits, err := r.Log(ctx, to, gitd.LogOptions{Not: from, Max: 1000})
	if err != nil {
		return err
	}
	byHash := map[gitd.Hash]*LogEntry{}
	for i := range entries {
		if entries[i].Commit != nil {
			byHash[entries[i].Commit.Hash] = &entries[i]
		}
	}
	var own []LogEntry
	for _, commit := range commits {
		if e := byHash[commit.Hash]; e != nil {
			e.Commit = &commit
		} else {
			own = append(own, LogEntry{Time: commit.When, Run: trailerRun(commit), Step: commit.Trailer("Ramus-Step"), Commit: &commit})
		}
	}
	entries = append(entries, own...)
	slices.SortStableFunc(entries, func(a, b LogEntry) int { return b.Time.Compare(a.Time) })
	entries = entries[:min(len(entries), q.Max)]
	for i := range entries {
		if err := s.fill(c, r, &entries[i], q.Patch); err != nil {
			return err
		}
	}
	if entries == nil {
		entries = []LogEntry{}
	}
	return c.Reply(entries)
}

func trailerRun(commit gitd.Commit) string {
	caller, run := commit.Trailer("Ramus-Caller"), commit.Trailer("Ramus-Run")
	if run == "" || strings.Contains(run, "/") {
		return run
	}
	return caller + "/" + run
}

// commands reads a caller's commands from the journals of its runs, newest first.
func (s *Server) commands(c *route.Call, st executor.CallerStatus) ([]LogEntry, error) {
	ctx := c.R.Context()
	runs, err := s.Executor.Runs(ctx, record.Filter{Caller: st.Caller.String(), Max: 1000})
	if err != nil {
		return nil, err
	}
	var entries []LogEntry
	for _, run := range runs {
		open := map[string]record.Event{}
		for e, err := range s.Executor.Events(ctx, run.Name(), 0, false) {
			if err != nil {
				return nil, err
			}
			switch e.Type {
			case record.EventStepStarted:
				open[e.Step] = e
			case record.EventStepFinished:
				entries = append(entries, entry(run, open[e.Step], e))
				delete(open, e.Step)
			}
		}
	}
	return entries, nil
}

func entry(run record.Run, start, end record.Event) LogEntry {
	e := LogEntry{
		Time: end.Time, Run: run.Name(), Step: end.Step, Node: start.Node, Command: start.Command, Task: start.Task,
		Exit: end.Exit, Reason: end.Reason, TookMS: end.DurationMS,
	}
	for _, later := range []struct {
		into *string
		from string
	}{{&e.Node, end.Node}, {&e.Command, end.Command}, {&e.Task, end.Task}} {
		if *later.into == "" {
			*later.into = later.from
		}
	}
	if end.Stdout != nil {
		e.Stdout = end.Stdout.Tail
	}
	if end.Stderr != nil {
		e.Stderr = end.Stderr.Tail
	}
	if end.Commit != "" {
		e.Commit = &gitd.Commit{Hash: end.Commit}
	}
	return e
}

const longestPatch = 256 << 10

// fill adds what git knows of an entry's commit.
func (s *Server) fill(c *route.Call, r *gitd.Repo, e *LogEntry, patch bool) error {
	if e.Commit == nil {
		return nil
	}
	ctx := c.R.Context()
	commit, err := r.Commit(ctx, string(e.Commit.Hash))
	if errors.Is(err, gitd.ErrNotFound) {
		return nil // rewritten since by the caller, and packed away
	}
	if err != nil {
		return err
	}
	e.Commit = &commit
	if !patch || len(commit.Parents) == 0 {
		return nil
	}
	parent := string(commit.Parents[0])
	if e.Changes, err = r.Changed(ctx, parent, string(commit.Hash), false); err != nil {
		return err
	}
	var text capped
	if err := r.Diff(ctx, parent, string(commit.Hash), gitd.DiffOptions{}, &text); err != nil {
		return err
	}
	e.Patch, e.PatchCut = strings.ToValidUTF8(text.String(), "\uFFFD"), text.cut
	return nil
}

// capped keeps the first longestPatch bytes and swallows the rest.
type capped struct {
	bytes.Buffer
	cut bool
}

func (b *capped) Write(p []byte) (int, error) {
	if room := longestPatch - b.Len(); len(p) > room {
		b.cut = true
		b.Buffer.Write(p[:room])
	} else {
		b.Buffer.Write(p)
	}
	return len(p), nil
}

func (s *Server) merge(c *route.Call) error {
	var m record.Merge
	if err := c.ReadOptionalJSON(&m); err != nil {
		return err
	}
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	m.By = c.Who.Person(m.By)
	if m.Into == "" {
		m.Into = st.Last.Base
	}
	if err := c.Who.CheckChange(st.Repo, m.Into); err != nil {
		return err
	}
	result, err := s.Executor.Merge(c.R.Context(), st.Caller.String(), m)
	if err != nil {
		return err
	}
	return c.Reply(result)
}

// Rollback names the commit to go back to.
type Rollback struct {
	To string      `json:"to"`
	By gitd.Person `json:"by,omitzero"`
}

// RolledBack is the commit that a rollback made.
type RolledBack struct {
	Commit gitd.Hash `json:"commit"`
}

func (s *Server) rollback(c *route.Call) error {
	var b Rollback
	if err := c.ReadJSON(&b); err != nil {
		return err
	}
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	commit, err := s.Executor.Rollback(c.R.Context(), st.Caller.String(), b.To, c.Who.Person(b.By))
	if err != nil {
		return err
	}
	return c.Reply(RolledBack{commit})
}

func (s *Server) stopCaller(c *route.Call) error {
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	if err := s.Executor.Stop(c.R.Context(), st.Caller.String(), c.Who.Person(st.Last.Asker)); err != nil {
		return err
	}
	if st, err = s.namedCaller(c); err != nil {
		return err
	}
	return c.Reply(st)
}

func (s *Server) processes(c *route.Call) error {
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	list, err := s.Executor.Processes(c.R.Context(), st.Caller.String())
	if err != nil {
		return err
	}
	if list == nil {
		list = []executor.Process{}
	}
	return c.Reply(list)
}

type processQuery struct {
	Follow bool `json:"follow,omitempty" jsonschema:"go on until the process ends"`
}

func (s *Server) processOutput(c *route.Call) error {
	var q processQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	done, err := c.OpenStream()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancel(c.R.Context())
	defer cancel()
	out := &execLines{call: c, hangUp: cancel}
	stop := out.keepAlive(s.Heartbeat)
	defer context.AfterFunc(c.Draining(), cancel)()
	err = s.Executor.ProcessOutput(ctx, st.Caller.String(), c.R.PathValue("process"), q.Follow, out.to("stdout"), out.to("stderr"))
	stop()
	if err != nil {
		return out.fail(err)
	}
	return out.send(ExecLine{End: true})
}

func (s *Server) stopProcess(c *route.Call) error {
	st, err := s.namedCaller(c)
	if err != nil {
		return err
	}
	if err := s.Executor.StopProcess(c.R.Context(), st.Caller.String(), c.R.PathValue("process")); err != nil {
		return err
	}
	return c.Reply(struct{}{})
}
