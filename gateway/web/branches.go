package web

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Limits of the page of branches.
const (
	shownBranches = 30
	maxBranches   = 5000 // the newest ones, which the pages together have
	radarWithin   = 2 * time.Second
	radarAgain    = 3 // seconds until a page looks again for the conflicts that it lacks
	maxDistances  = 10_000
)

// branchesData is the data of the page of branches. All texts except the names of branches are clean.
type branchesData struct {
	Repo, RepoPath, Base, Kind string
	Kinds                      []branchKind
	Rows                       []branchRow
	First, Next                string
	Left                       int // pairs whose merge is not known yet
}

// branchKind is a part of the branches that can be shown alone.
type branchKind struct {
	Text, Path string
	Current    bool
}

// branchRow is a branch in a list.
type branchRow struct {
	Name, Files, Log, Subject, By string
	Commit                        gitd.Hash
	When                          time.Time
	Ahead, Behind                 string
	IsBase                        bool
	// Workspace is the path of the workspace that works on the branch, and empty if there is none.
	Workspace      string
	State, Verdict *Badge
	// Conflicts is the number of branches with which this one does not merge. Radar is the page of them.
	Conflicts int
	Radar     string
}

// distances remembers how far branches are from their base. The zero value is empty.
type distances struct {
	mu sync.Mutex // guards by
	by map[[2]gitd.Hash][2]int
}

// of returns how many commits a branch has that the base lacks, and the other way round.
func (d *distances) of(ctx context.Context, r *gitd.Repo, branch, base gitd.Hash) (ahead, behind int, err error) {
	key := [2]gitd.Hash{branch, base}
	d.mu.Lock()
	n, known := d.by[key]
	d.mu.Unlock()
	if known || branch == base {
		return n[0], n[1], nil
	}
	if ahead, behind, err = r.Divergence(ctx, branch, base); err != nil {
		return 0, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil || len(d.by) >= maxDistances {
		d.by = map[[2]gitd.Hash][2]int{}
	}
	d.by[key] = [2]int{ahead, behind}
	return ahead, behind, nil
}

// branchPages serves the branches of repositories.
type branchPages struct {
	finder    *finder
	rows      *rowMaker
	executor  *executor.Executor
	past      Past
	distances distances
}

func (h *branchPages) register(t *table) {
	t.strangerPage("/repos/{repo}/branches", "The branches of a repository, with their verdicts and conflicts", h.branchesPage)
}

// branchesPage shows the branches of a repository, the one with the newest commit first.
func (h *branchPages) branchesPage(c *route.Call) (*Page, error) {
	ctx, q := c.R.Context(), c.R.URL.Query()
	r, base, head, err := h.finder.shownRepo(c)
	if err != nil {
		return nil, err
	}
	d := &branchesData{Repo: r.Name(), RepoPath: repoPath(r.Name()), Base: base, Kind: q.Get("kind")}
	skip, err := skipOf(q, maxBranches)
	if err != nil {
		return nil, err
	}
	at := func(kind string, skip int) string {
		v := url.Values{"kind": {kind}}
		if skip > 0 {
			v.Set("skip", strconv.Itoa(skip))
		}
		return sourcePath(d.Repo, "branches", v)
	}
	for _, k := range []branchKind{{Text: "All"}, {Text: "Of workspaces", Path: "workspaces"}, {Text: "Others", Path: "others"}} {
		k.Current = k.Path == d.Kind
		k.Path = at(k.Path, 0)
		d.Kinds = append(d.Kinds, k)
	}
	all, err := r.Branches(ctx, maxBranches)
	if err != nil {
		return nil, err
	}
	var list []gitd.Branch
	for _, b := range all {
		if isWork := strings.HasPrefix(b.Branch, record.BranchPrefix); c.Who.SeesBranch(d.Repo, b.Branch) &&
			(d.Kind != "workspaces" || isWork) && (d.Kind != "others" || !isWork) {
			list = append(list, b)
		}
	}
	if skip > 0 {
		d.First = at(d.Kind, 0)
	}
	if len(list) > skip+shownBranches {
		d.Next = at(d.Kind, skip+shownBranches)
	}
	p := &Page{Title: "Branches of " + d.Repo, Nav: "repos", Template: "branches", Data: d}
	for _, b := range list[min(skip, len(list)):min(skip+shownBranches, len(list))] {
		row, err := h.branchRow(c, r, b, base, head)
		if err != nil {
			return nil, err
		}
		d.Rows = append(d.Rows, row)
	}
	if c.Who.Stranger() {
		return p, nil
	}
	p.Topics = []string{live.RepoTopic(d.Repo)}
	return p, h.showConflicts(c, p, d)
}

// skipOf returns the number of entries of a list that a page leaves out.
func skipOf(q url.Values, most int) (int, error) {
	text := q.Get("skip")
	if text == "" {
		return 0, nil
	}
	skip, err := strconv.Atoi(text)
	if err != nil || skip < 0 || skip > most {
		return 0, route.NewProblem(route.KindInvalid, "skip is %.40q, it must be at most %d", text, most)
	}
	return skip, nil
}

// branchRow returns the row of a branch. head is the commit of the base.
func (h *branchPages) branchRow(c *route.Call, r *gitd.Repo, b gitd.Branch, base string, head gitd.Hash) (branchRow, error) {
	at := func(page string) string { return sourcePath(r.Name(), page, url.Values{"at": {b.Branch}}) }
	row := branchRow{Name: b.Branch, Files: at("files"), Log: at("log"), Commit: b.Commit, When: b.When, IsBase: b.Branch == base,
		Subject: render.OneLine(render.Clean(b.Subject), 160), By: render.ClipClean(b.Author, 80)}
	if head != "" && !row.IsBase {
		ahead, behind, err := h.distances.of(c.R.Context(), r, b.Commit, head)
		if err != nil {
			return row, err
		}
		row.Ahead, row.Behind = fmt.Sprint(ahead), fmt.Sprint(behind)
	}
	if c.Who.Stranger() {
		return row, nil
	}
	row.Radar = sourcePath(r.Name(), "radar", url.Values{"of": {b.Branch}})
	run, ok := lastRun(h.executor, b.Branch)
	if !ok || run.Repo != r.Name() || !c.Who.SeesRun(run) {
		return row, nil
	}
	row.Workspace = workspacePath(run.Caller.Slug())
	state := runBadge(run)
	row.State = &state
	row.Verdict = h.rows.verdictAt(c.R.Context(), run, b.Commit)
	return row, nil
}

// callerOfBranch returns the caller that works on a branch.
func callerOfBranch(branch string) (record.Caller, bool) {
	slug, ok := strings.CutPrefix(branch, record.BranchPrefix)
	if !ok {
		return record.Caller{}, false
	}
	return workspace.CallerOf(slug)
}

// findConflicts returns the conflicts of a repository that the radar finds within a short time. A repository without a base has none.
func findConflicts(c *route.Call, asked Past, p *Page, repo, of string) (radar.Report, error) {
	rep, err := asked.Radar(c.R.Context(), c.Who, past.Radar{Repo: repo, Of: of, Within: radarWithin})
	if of == "" && errors.Is(err, gitd.ErrNotFound) {
		return radar.Report{Repo: repo}, nil
	}
	if rep.Left > 0 {
		p.Beat, p.Refresh = radarAgain*time.Second, radarAgain
	}
	return rep, err
}

// showConflicts fills in how many conflicts the branches of a page have.
func (h *branchPages) showConflicts(c *route.Call, p *Page, d *branchesData) error {
	rep, err := findConflicts(c, h.past, p, d.Repo, "")
	if err != nil {
		return err
	}
	d.Left = rep.Left
	count := map[string]int{}
	for _, x := range rep.Conflicts {
		count[x.One]++
		count[x.Other]++
	}
	for i := range d.Rows {
		d.Rows[i].Conflicts = count[d.Rows[i].Name]
	}
	return nil
}
