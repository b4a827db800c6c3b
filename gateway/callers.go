package gateway

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// callersAPI shows the work of callers and merges it into other branches.
type callersAPI struct {
	Executor *executor.Executor
	Git      *gitd.Server
	find     *lookup.Lookup
}

// Routes returns the routes of callers.
func (api *callersAPI) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/callers", Access: route.AccessRead,
			Summary: "List callers, the most recently active first", Query: listQuery{},
			Response: []executor.CallerStatus{}, Handle: api.callers},
		{Method: "GET", Pattern: "/api/callers/{caller}", Access: route.AccessRead, Summary: "One caller",
			Response: executor.CallerStatus{}, Handle: api.caller},
		{Method: "GET", Pattern: "/api/callers/{caller}/log", Access: route.AccessRead,
			Summary: "Every command and commit of a caller, newest first", Query: callerLogQuery{},
			Response: []LogEntry{}, Handle: api.callerLog},
		{Method: "GET", Pattern: "/api/callers/{caller}/diff", Access: route.AccessRead,
			Summary: "What a caller changed, as git writes it", Query: callerDiffQuery{}, Media: route.MediaText,
			Handle: api.callerDiff},
		{Method: "GET", Pattern: "/api/callers/{caller}/changes", Access: route.AccessRead,
			Summary: "The files a caller changed", Response: []gitd.Change{}, Handle: api.callerChanges},
		{Method: "POST", Pattern: "/api/callers/{caller}/merge", Access: route.AccessWrite,
			Summary: "Bring a caller's branch into another, or to where the repository's policy says; a conflict is an answer",
			Request: record.Merge{}, Response: record.LandedAll{}, Handle: api.merge},
		{Method: "POST", Pattern: "/api/callers/{caller}/rollback", Access: route.AccessWrite,
			Summary: "Make a caller's branch look as it did at an earlier commit, by a new commit",
			Request: Rollback{}, Response: RolledBack{}, Handle: api.rollback},
		{Method: "POST", Pattern: "/api/callers/{caller}/stop", Access: route.AccessWrite,
			Summary: "Stop all runs of a caller and remove its container", Response: executor.CallerStatus{},
			Handle: api.stopCaller},
		{Method: "DELETE", Pattern: "/api/callers/{caller}", Access: route.AccessWrite,
			Summary:  "Stop all runs of a caller and remove its container, branch and saved work; its runs stay",
			Response: executor.Removed{}, Handle: api.removeCaller},
		{Method: "GET", Pattern: "/api/callers/{caller}/sessions", Access: route.AccessRead,
			Summary:  "A caller's sessions with agents, by agent and label, the most recently used first",
			Response: []record.Session{}, Handle: api.sessions},
		api.importConfigRoute(),
	}
}

func (api *callersAPI) callers(c *route.Call) error {
	f, err := readFilter(c)
	if err != nil {
		return err
	}
	list, err := api.Executor.Callers(c.R.Context(), f)
	if err != nil {
		return err
	}
	if list == nil {
		list = []executor.CallerStatus{}
	}
	return c.Reply(list)
}

func (api *callersAPI) caller(c *route.Call) error {
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	return c.Reply(st)
}

func (api *callersAPI) sessions(c *route.Call) error {
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	list, err := api.Executor.Sessions(c.R.Context(), st.Caller.String())
	if err != nil {
		return err
	}
	return c.Reply(list)
}

// span returns the repository of a caller and the commits where the work of the caller begins and ends.
func (api *callersAPI) span(c *route.Call, st executor.CallerStatus) (r *gitd.Repo, from, to string, err error) {
	ctx := c.R.Context()
	if r, err = api.Git.Repo(st.Repo); err != nil {
		return nil, "", "", err
	}
	start, head, err := changes.Span(ctx, r, st)
	return r, string(start), string(head), err
}

type callerDiffQuery struct {
	Stat bool     `json:"stat,omitempty" jsonschema:"a diffstat instead of a patch"`
	Path []string `json:"path,omitempty" jsonschema:"only these files or folders"`
}

func (api *callersAPI) callerDiff(c *route.Call) error {
	var q callerDiffQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	r, from, to, err := api.span(c, st)
	if err != nil {
		return err
	}
	return replyDiff(c, r, from, to, gitd.DiffOptions{Stat: q.Stat, Paths: q.Path})
}

func (api *callersAPI) callerChanges(c *route.Call) error {
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	r, from, to, err := api.span(c, st)
	if err != nil {
		return err
	}
	return replyChanges(c, r, from, to, false)
}

// LogEntry is a command of a caller, the commit of its changes, or both. A command without changes has no commit. A
// commit that a command or a person made has no command.
type LogEntry struct {
	Time    time.Time     `json:"time"`
	Run     string        `json:"run,omitempty"` // CALLER/RUN
	Step    string        `json:"step,omitempty"`
	Node    string        `json:"node,omitempty"`
	Command string        `json:"command,omitempty"`
	Task    string        `json:"task,omitempty"`
	Exit    *int          `json:"exit,omitempty"`
	Reason  string        `json:"reason,omitempty"` // why the command was ended; empty if it ended by itself
	TookMS  int64         `json:"took_ms,omitempty"`
	Stdout  string        `json:"stdout,omitempty"` // the end of it
	Stderr  string        `json:"stderr,omitempty"`
	Commit  *gitd.Commit  `json:"commit,omitempty"`
	Changes []gitd.Change `json:"changes,omitempty"`
	// Patch is set if it was asked for. It is cut to 256 KiB.
	Patch    string `json:"patch,omitempty"`
	PatchCut bool   `json:"patch_cut,omitempty"`
}

type callerLogQuery struct {
	Patch bool `json:"patch,omitempty" jsonschema:"with what each commit changed"`
	Max   int  `json:"max,omitempty" jsonschema:"at most so many entries; 200 if 0, 1000 at most"`
}

func (api *callersAPI) callerLog(c *route.Call) error {
	var q callerLogQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Max == 0 {
		q.Max = 200
	}
	q.Max = min(q.Max, 1000)
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	entries, err := api.commands(c, st)
	if err != nil {
		return err
	}
	r, from, to, err := api.span(c, st)
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
			own = append(own, LogEntry{Time: commit.When, Run: trailerRun(commit), Step: commit.Trailer("Ramus-Step"),
				Commit: &commit})
		}
	}
	entries = append(entries, own...)
	slices.SortStableFunc(entries, func(a, b LogEntry) int { return b.Time.Compare(a.Time) })
	entries = entries[:min(len(entries), q.Max)]
	for i := range entries {
		if err := api.fill(c, r, &entries[i], q.Patch); err != nil {
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

// commands returns the commands in the journals of a caller's runs.
func (api *callersAPI) commands(c *route.Call, st executor.CallerStatus) ([]LogEntry, error) {
	ctx := c.R.Context()
	runs, err := api.Executor.Runs(ctx, record.Filter{Caller: st.Caller.String(), Max: 1000})
	if err != nil {
		return nil, err
	}
	var entries []LogEntry
	for _, run := range runs {
		open := map[string]record.Event{}
		for e, err := range api.Executor.Events(ctx, run.Name(), 0, false) {
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

// fill adds the commit of an entry from the repository. If patch is set, it adds the changes and the patch too.
func (api *callersAPI) fill(c *route.Call, r *gitd.Repo, e *LogEntry, patch bool) error {
	if e.Commit == nil {
		return nil
	}
	ctx := c.R.Context()
	commit, err := r.Commit(ctx, string(e.Commit.Hash))
	if errors.Is(err, gitd.ErrNotFound) {
		return nil // the caller has rewritten the branch, and the commit was removed
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
	var patched bytes.Buffer
	limit := &text.Limit{W: &patched, Left: longestPatch}
	if err := r.Diff(ctx, parent, string(commit.Hash), gitd.DiffOptions{}, limit); err != nil {
		return err
	}
	e.Patch, e.PatchCut = strings.ToValidUTF8(patched.String(), "\uFFFD"), limit.Cut
	return nil
}

func (api *callersAPI) merge(c *route.Call) error {
	var m record.Merge
	if err := c.ReadOptionalJSON(&m); err != nil {
		return err
	}
	st, err := api.find.PathCaller(c)
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
	with, err := api.Executor.Additions(c.R.Context(), st.Caller)
	if err != nil {
		return err
	}
	for _, a := range with {
		if err := c.Who.CheckChange(a.Repo, a.Base); err != nil {
			return err
		}
	}
	result, err := api.Executor.Merge(c.R.Context(), st.Caller.String(), m)
	if err != nil {
		return err
	}
	if !c.Who.Admin() {
		result.Upstream = "" // it may be a path of this machine
		for i := range result.With {
			result.With[i].Upstream = ""
		}
	}
	return c.Reply(result)
}

// Rollback names the commit to which a branch is rolled back.
type Rollback struct {
	To string      `json:"to"`
	By gitd.Person `json:"by,omitzero"`
}

// RolledBack is the answer to a rollback. Commit is the new commit.
type RolledBack struct {
	Commit gitd.Hash `json:"commit"`
}

func (api *callersAPI) rollback(c *route.Call) error {
	var b Rollback
	if err := c.ReadJSON(&b); err != nil {
		return err
	}
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	commit, err := api.Executor.Rollback(c.R.Context(), st.Caller.String(), b.To, c.Who.Person(b.By))
	if err != nil {
		return err
	}
	return c.Reply(RolledBack{commit})
}

func (api *callersAPI) stopCaller(c *route.Call) error {
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	if err := api.Executor.Stop(c.R.Context(), st.Caller.String(), c.Who.Person(st.Last.Asker)); err != nil {
		return err
	}
	if st, err = api.find.PathCaller(c); err != nil {
		return err
	}
	return c.Reply(st)
}

func (api *callersAPI) removeCaller(c *route.Call) error {
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	done, err := api.Executor.Remove(c.R.Context(), st.Caller.String(), c.Who.Person(st.Last.Asker))
	if err != nil {
		return err
	}
	return c.Reply(done)
}
