package web

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/search"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// Past answers questions about work that was done, with the rights of a person.
type Past interface {
	// Search finds words in runs.
	Search(ctx context.Context, who route.Who, q past.Search) (past.Found, error)
	// Why explains lines of a file.
	Why(ctx context.Context, who route.Who, w past.Why) (provenance.Answer, error)
	// Fork begins a new caller at a step or a commit of another one, and Restart a workflow at a step.
	Fork(ctx context.Context, who route.Who, q past.Fork) (past.Forked, error)
	Restart(ctx context.Context, who route.Who, of record.Run, q past.Restart) (record.Run, error)
	// Pick brings steps of a run to a branch.
	Pick(ctx context.Context, who route.Who, r record.Run, p past.Pick) (past.Changed, error)
	// Bisect searches for the first bad commit.
	Bisect(ctx context.Context, who route.Who, b past.Bisect, tell func(trial.Progress)) (past.BisectFound, error)
	// Radar compares branches.
	Radar(ctx context.Context, who route.Who, q past.Radar) (radar.Report, error)
}

// maxFoundPath is the length up to which a path that is found is whole, in bytes.
const maxFoundPath = 150

// shownWorkspaces is how many workspaces with the words in their names the page of a search has.
const shownWorkspaces = 5

// searchData is the data of the page of a search. All texts are clean.
type searchData struct {
	Query, Kind, Repo, Run string
	Repos                  []string
	Kinds                  []search.Kind
	Wrong                  string // why the query cannot be answered
	Asked                  bool
	Workspaces             []workspaceRow
	Runs                   []foundRun
	Behind, Cut            int
	First, Next            string // paths of other parts of the answer
}

// foundRun has the lines of one run.
type foundRun struct {
	Title, Path, Name, Repo, By string
	Badge                       Badge
	Record                      record.Run
	Lines                       []foundLine
	More                        string // the path of all its lines; empty if they are here
}

type foundLine struct {
	Kind search.Kind
	Path string
	Note string // the step and the number of the line
	Text []piece
}

// piece is a part of a line.
type piece struct {
	Text   string
	Marked bool
}

// searchPages serves the search.
type searchPages struct {
	servers *servers
	rows    *rowMaker
	past    Past
}

func (h *searchPages) register(t *table) {
	t.page("/search", "Words in everything that was asked, run and printed", h.searchPage)
}

// searchPage finds workspaces by name, and words in everything that was asked, run and printed.
func (h *searchPages) searchPage(c *route.Call) (*Page, error) {
	ctx, q := c.R.Context(), c.R.URL.Query()
	d := &searchData{Query: strings.TrimSpace(q.Get("q")), Kind: q.Get("kind"), Repo: q.Get("repo"), Run: q.Get("run"), Kinds: search.Kinds}
	p := &Page{Title: "Search", Nav: "search", Template: "search", Data: d}
	var err error
	if d.Repos, err = h.servers.listRepoNames(ctx, c.Who); err != nil {
		return nil, err
	}
	if d.Asked = d.Query != ""; !d.Asked {
		return p, nil
	}
	p.Title = render.OneLine(d.Query, 80) + " · Search"
	after := q.Get("after")
	if after == "" && d.Run == "" && d.Kind == "" {
		list, _, err := h.servers.listWorkspaces(ctx, c.Who, workspace.Filter{Repo: d.Repo, Text: d.Query, Max: shownWorkspaces})
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			d.Workspaces = append(d.Workspaces, h.rows.workspaceRow(c, s))
		}
	}
	ask := past.Search{Words: d.Query, Repo: d.Repo, Run: d.Run, After: after}
	if d.Kind != "" {
		ask.Kinds = []string{d.Kind}
	}
	if d.Run != "" {
		ask.Max = search.MaxHits
	}
	a, err := h.past.Search(ctx, c.Who, ask)
	if err != nil {
		problem := route.AsProblem(err, c.Who)
		if problem.Kind != route.KindInvalid {
			return nil, err
		}
		d.Wrong, p.Status = render.ClipClean(strings.TrimPrefix(problem.Detail, search.ErrQuery.Error()+": "), 400), status(true)
		return p, nil
	}
	h.showHits(c, d, a)
	d.Behind, d.Cut = a.Behind, a.Cut
	turn := func(run, after string) string {
		v := url.Values{}
		for name, value := range map[string]string{"q": d.Query, "kind": d.Kind, "repo": d.Repo, "run": run, "after": after} {
			if value != "" {
				v.Set(name, value)
			}
		}
		return "/search?" + v.Encode()
	}
	for i := range d.Runs {
		if name := d.Runs[i].Record.Name(); d.Run == "" && slices.Contains(a.More, name) {
			d.Runs[i].More = turn(name, "")
		}
	}
	if a.Next != "" && d.Run == "" {
		d.Next = turn("", a.Next)
	}
	if after != "" || d.Run != "" {
		d.First = turn("", "")
	}
	return p, nil
}

// showHits groups the hits by run.
func (h *searchPages) showHits(c *route.Call, d *searchData, a past.Found) {
	words := search.Words(d.Query)
	for _, hit := range a.Hits {
		if len(d.Runs) == 0 || d.Runs[len(d.Runs)-1].Record.Name() != hit.Run {
			r, ok := a.Runs[hit.Run]
			if !ok || !c.Who.SeesRun(r) {
				continue // it was removed meanwhile
			}
			d.Runs = append(d.Runs, foundRun{Title: runTitle(r), Path: runPath(r), Name: r.Caller.String(), Repo: r.Repo,
				By: personName(r.Asker), Badge: runBadge(r), Record: r})
		}
		last := &d.Runs[len(d.Runs)-1]
		if last.Record.Name() == hit.Run {
			last.Lines = append(last.Lines, foundLine{Kind: hit.Kind, Path: hitPath(last.Record, hit), Note: hitNote(hit),
				Text: markWords(render.Clean(hit.Text), words)})
		}
	}
}

// cutLast cuts a text at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// hitPath returns the page with a hit.
func hitPath(r record.Run, h search.Hit) string {
	switch {
	case h.Stream != "":
		return outputPath(r, h.Step, h.Stream, h.Line)
	case h.Kind == search.KindCommand && h.Seq > 0:
		return workspacePath(r.Caller.Slug()) + "/timeline?" + url.Values{"at": {r.ID + "/" + itoa(h.Seq)}}.Encode()
	case h.Kind != search.KindPath && h.Kind != search.KindSubject || r.Start == "" || r.Head == "":
		return runPath(r)
	}
	v := changesView{at: workspacePath(r.Caller.Slug()) + "/changes", Window: changes.Window{From: string(r.Start), To: string(r.Head)}}
	if h.Kind == search.KindSubject || len(h.Text) > maxFoundPath {
		return v.href() // the path may be cut
	}
	return v.file(h.Text, 0, 0)
}

func hitNote(h search.Hit) string {
	if h.Stream == "" {
		return h.Step
	}
	note := h.Step + ", line " + itoa(h.Line)
	if h.Stream == "stderr" {
		note += " of stderr"
	}
	return note
}

// markWords divides a line at the words of a query.
func markWords(line string, words []string) (list []piece) {
	lower := strings.ToLower(line)
	if len(lower) != len(line) {
		return []piece{{Text: line}} // places in one are not those in the other
	}
	for begin := 0; begin < len(line); {
		at, end := len(line), len(line)
		for _, w := range words {
			w = strings.ToLower(w)
			if i := strings.Index(lower[begin:], w); i >= 0 && (begin+i < at || begin+i == at && begin+i+len(w) > end) {
				at, end = begin+i, begin+i+len(w)
			}
		}
		if at > begin {
			list = append(list, piece{Text: line[begin:at]})
		}
		if end > at {
			list = append(list, piece{line[at:end], true})
		}
		begin = end
	}
	return list
}
