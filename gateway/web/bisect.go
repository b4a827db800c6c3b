package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Limits of searches that people begin on pages. The results of the tries are kept in git, so that a search that is begun again is fast.
const (
	maxSearches      = 8 // at once
	maxSearchesOfOne = 2 // of one person
	keptSearches     = 64
	searchTime       = 2 * time.Hour
	maxSpec          = 64 << 10
)

// searches are the searches that go on, and the last ones that have ended.
type searches struct {
	mu      sync.Mutex // guards all below
	rows    []*searching
	stopped bool
	work    sync.WaitGroup
}

// searching is a search for the first bad command of a workspace.
type searching struct {
	id, person string
	caller     record.Caller
	asked      past.Bisect
	at         string // the tick at which it was begun
	end        context.CancelFunc

	mu       sync.Mutex // guards all below
	progress []trial.Progress
	found    *past.BisectFound
	problem  *route.Problem
	over     bool
}

// topic wakes the open pages of a search.
func (s *searching) topic() string { return "search/" + s.id }

// find returns a search of a caller.
func (m *searches) find(caller record.Caller, id string) *searching {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.IndexFunc(m.rows, func(s *searching) bool { return s.id == id && s.caller == caller }); i >= 0 {
		return m.rows[i]
	}
	return nil
}

// stop ends all searches.
func (m *searches) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	for _, s := range m.rows {
		s.end()
	}
}

// add takes a search, and calls run for it in a goroutine.
func (m *searches) add(s *searching, run func(ctx context.Context)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, own := 0, 0
	for _, other := range m.rows {
		if !other.isOver() {
			all++
			if other.person == s.person {
				own++
			}
		}
	}
	if m.stopped || all >= maxSearches || own >= maxSearchesOfOne {
		return route.NewProblem(route.KindUnavailable, "%d searches go on already, and %d of them are yours", all, own).
			WithHint("wait until one has ended, or stop it")
	}
	ctx, cancel := context.WithTimeout(context.Background(), searchTime)
	s.end = cancel
	m.rows = append(m.rows, s)
	for i := 0; len(m.rows) > keptSearches && i < len(m.rows); {
		if m.rows[i].isOver() {
			m.rows = slices.Delete(m.rows, i, i+1)
		} else {
			i++
		}
	}
	m.work.Go(func() {
		defer cancel()
		run(ctx)
	})
	return nil
}

func (s *searching) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// bisectPages serves the pages of searches for the first bad command of a workspace.
type bisectPages struct {
	past       Past
	live       *live.API
	workspaces *workspace.Workspaces
	timelines  *timeline.Timelines
	moments    *momentMaker
	searches   searches
}

func (h *bisectPages) register(t *table) {
	t.page("/workspaces/{workspace}/timeline/searches/{search}", "A search for the first bad command of a workspace", h.bisectPage)
}

// beginBisect begins a search between two ticks, or stops one.
func (h *bisectPages) beginBisect(c *route.Call, s workspace.Workspace, t *timeline.Tick, _ record.Run) error {
	if id := formText(c, "stop", 100); id != "" {
		one := h.searches.find(s.Caller, id)
		if one == nil {
			return route.NotFound("search", id)
		}
		one.end()
		return see(c, bisectPath(s, id))
	}
	bad, err := commitOf(t)
	if err != nil {
		return err
	}
	ask := past.Bisect{Of: s.Caller.String(), Repo: s.Repository, Bad: string(bad)}
	if good := formText(c, "good", 300); good != "" {
		g, _, err := h.moments.namedTick(c.R.Context(), c.Who, s, good)
		if err != nil {
			return err
		}
		commit, err := commitOf(g)
		if err != nil {
			return err
		}
		ask.Good = string(commit)
	}
	command, spec := formText(c, "command", 64<<10), formText(c, "spec", maxSpec)
	switch {
	case command != "" && spec != "", command == "" && spec == "":
		return route.NewProblem(route.KindInvalid, "a command or a spec of a page is needed, and only one of them").
			WithHint("a command that ends with 0 at good files and with 1 to 127 at bad ones, such as the one that runs the tests")
	case command != "":
		ask.Command = &record.Command{Shell: command}
	default:
		ask.Picture = &trial.Picture{Spec: spec}
	}
	one := &searching{id: rand.Text()[:16], person: c.Who.Subject, caller: s.Caller, asked: ask, at: t.ID}
	who := c.Who
	err = h.searches.add(one, func(ctx context.Context) {
		found, err := h.past.Bisect(ctx, who, ask, func(p trial.Progress) {
			one.note(p)
			h.live.Hub.Wake(one.topic())
		})
		one.finish(ctx, found, err, who)
		h.live.Hub.Wake(one.topic())
	})
	if err != nil {
		return err
	}
	return see(c, bisectPath(s, one.id))
}

// note takes the state of a round. The end of a round replaces its begin.
func (s *searching) note(p trial.Progress) {
	p.Tries = slices.Clone(p.Tries)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.progress); n > 0 && s.progress[n-1].Round == p.Round {
		s.progress[n-1] = p
		return
	}
	s.progress = append(s.progress, p)
}

func (s *searching) finish(ctx context.Context, found past.BisectFound, err error, who route.Who) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	switch {
	case err == nil:
		s.found = &found
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		s.problem = route.NewProblem(route.KindFailed, "the search took too long").WithHint("search between commands that are closer")
	case ctx.Err() != nil:
		s.problem = route.NewProblem(route.KindFailed, "the search was stopped").WithHint("the results so far are kept; begin it again")
	default:
		s.problem = route.AsProblem(err, who)
	}
}

// bisectData is the data of the page of a search. All texts are clean.
type bisectData struct {
	Workspace       workspace.Workspace
	Path, Back, ID  string // Back is the path of the tick at which it was begun, and At its id
	At              string
	Command, Spec   string
	Good, Bad       gitd.Hash // Good is empty for the begin of the branch
	Rounds          []roundRow
	Problem         *route.Problem
	Over, MayChange bool
	Found           *foundRow
	Left            int // commits that may be the first bad one, if several are left
}

type roundRow struct {
	Round, Left int
	Tries       []tryRow
	Ended       bool
}

type tryRow struct {
	Commit              gitd.Hash
	Path                string // of its tick
	Result, Class, Note string
}

// foundRow is the first bad command.
type foundRow struct {
	Path, Command, Prompt, Agent, By, Subject string
	Commit                                    gitd.Hash
	When                                      time.Time
	Output                                    template.HTML // of the try
	Tries                                     int
	Diff                                      []evidence.DiffPart
	DiffNote                                  string
	Pictures                                  []past.BisectPicture
}

// bisectPage shows a search for the first bad command to everybody who sees the workspace.
func (h *bisectPages) bisectPage(c *route.Call) (*Page, error) {
	ctx := c.R.Context()
	s, st, err := h.workspaces.Named(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return nil, err
	}
	one := h.searches.find(s.Caller, c.R.PathValue("search"))
	if one == nil {
		return nil, route.NotFound("search", c.R.PathValue("search")).WithHint("the results of its tries are kept; begin it again at the timeline")
	}
	all, err := h.timelines.Overview(ctx, c.Who, s.Caller)
	if err != nil {
		return nil, err
	}
	place := map[gitd.Hash]string{} // the pages of ticks, by their commits
	for _, m := range all {
		if m.Commit != "" {
			place[m.Commit] = tickPath(s, m.ID)
		}
	}
	d := &bisectData{Workspace: s, Path: workspacePath(s.ID), Back: tickPath(s, one.at), At: one.at, ID: one.id, Good: gitd.Hash(one.asked.Good),
		Bad: gitd.Hash(one.asked.Bad), MayChange: c.Who.CheckChangeCaller(st) == nil}
	if one.asked.Command != nil {
		d.Command = render.ClipClean(one.asked.Command.Shell, 4000)
	} else {
		d.Spec = render.ClipClean(one.asked.Picture.Spec, 8000)
	}
	p := &Page{Title: "Search in " + s.Name, Nav: "workspaces", Template: "bisect", Data: d, Topics: []string{one.topic()}}
	one.mu.Lock()
	defer one.mu.Unlock()
	d.Over, d.Problem = one.over, one.problem
	if !d.Over {
		p.Refresh = 5
	}
	for _, round := range one.progress {
		row := roundRow{Round: round.Round, Left: round.Left, Ended: round.Ended}
		for _, t := range round.Tries {
			try := tryRowOf(t)
			try.Path = place[t.Commit]
			row.Tries = append(row.Tries, try)
		}
		d.Rounds = append(d.Rounds, row)
	}
	if one.found != nil {
		if err := showFound(d, one.found); err != nil {
			return nil, err
		}
		if d.Found != nil {
			d.Found.Path = cmp.Or(place[d.Found.Commit], d.Found.Path)
		}
	}
	return p, nil
}

func tryRowOf(t trial.Try) tryRow {
	row := tryRow{Commit: t.Commit, Result: "is tried", Class: "calm", Note: render.OneLine(render.Clean(t.Why), 200)}
	switch t.Result {
	case bisect.Good:
		row.Result, row.Class = "good", "good"
	case bisect.Bad:
		row.Result, row.Class = "bad", "bad-text"
	case bisect.Skip:
		row.Result, row.Class = "cannot be tried", "warn-text"
	}
	if t.Exit != nil {
		row.Note = strings.TrimSuffix("exit "+strconv.Itoa(*t.Exit)+", "+row.Note, ", ")
	}
	return row
}

// showFound fills in the answer.
func showFound(d *bisectData, found *past.BisectFound) (err error) {
	if found.First == nil {
		d.Left = len(found.Left)
		return nil
	}
	row := &foundRow{Commit: found.First.Commit, Tries: found.Tries, Pictures: found.Pictures}
	d.Found = row
	if c := found.Cause; c != nil {
		cause := causeRowOf(*c, false)
		row.Path, row.By, row.Agent, row.Subject, row.When = cause.Href, cause.By, cause.Agent, cause.Subject, cause.When
		row.Command = render.ClipClean(c.Command, 2000)
		if len(c.Prompts) > 0 {
			row.Prompt = render.ClipClean(c.Prompts[len(c.Prompts)-1].Text, 4000)
		}
	}
	if t := found.Try; t != nil {
		row.Output = markup.Terminal(t.Stdout + t.Stderr)
	}
	row.Diff, row.DiffNote, err = shortDiff(strings.NewReader(found.Diff))
	return err
}
