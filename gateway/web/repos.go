package web

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// repoRow is a repository in a list.
type repoRow struct {
	Name, Path, Base string
	Head             gitd.Hash
	Subject          string
	When             time.Time
	Status           upstream.Status
	Wrong            string
}

// newRepoRow returns the row of a repository.
func newRepoRow(ctx context.Context, x *executor.Executor, who route.Who, r *gitd.Repo) (repoRow, error) {
	row := repoRow{Name: r.Name(), Path: repoPath(r.Name())}
	base, err := r.Base(ctx)
	if err != nil {
		return row, err
	}
	row.Base = base
	if !who.SeesBranch(r.Name(), base) {
		return row, nil
	}
	commit, err := r.Commit(ctx, "refs/heads/"+base)
	switch {
	case err == nil:
		row.Head, row.Subject, row.When = commit.Hash, render.OneLine(render.Clean(commit.Subject), 120), commit.When
	case !errors.Is(err, gitd.ErrNotFound):
		return row, err
	}
	if row.Status, err = x.Bases.Status(ctx, r); err != nil {
		return row, err
	}
	if who.Admin() {
		row.Wrong = render.ClipClean(row.Status.Error, 300)
	} else if row.Status.Error != "" {
		row.Wrong = "The last refresh failed."
	}
	return row, nil
}

// repoData is the data of the page of a repository.
type repoData struct {
	repoRow
	Ways       []cloneWay
	Upstream   string
	Commits    []gitd.Commit
	Bases      []baseRow
	AllBases   string // the page of all manifests, empty if these are all
	Workspaces []workspaceRow
	MayRefresh bool
	Settings   []settingRow
	Mistake    string
}

// cloneWay is a way to clone a repository. It is a line for a shell, or a link.
type cloneWay struct {
	Name, Line string
	Link       template.URL
}

// baseRow is a manifest of a base. All texts are clean.
type baseRow struct {
	By, Commit, Files, Branch, Environment, Ref string
	When                                        time.Time
	Verified                                    bool
	Why                                         string // it is not
}

type settingRow struct{ Name, Value, From string }

// Limits of the page of a repository.
const (
	maxCommits = 20
	maxBases   = 5
	shownBases = 30
	allBases   = 2000 // that the pages of manifests have together
)

// repoPages serves the pages of repositories.
type repoPages struct {
	finder     *finder
	rows       *rowMaker
	executor   *executor.Executor
	find       *lookup.Lookup
	git        *gitd.Server
	workspaces *workspace.Workspaces
	sshPort    string // empty means that git does not reach repositories by SSH
}

func (h *repoPages) register(t *table) {
	t.strangerPage("/repos/{repo}", "A repository: its base, its manifests and its branches", h.repoPage)
	t.page("/repos/{repo}/bases", "The signed manifests of the base of a repository", h.basesPage)
	t.form("/repos/{repo}/refresh", "Refresh a base from its upstream, by its page", h.refreshRepo)
}

func (h *repoPages) repoPage(c *route.Call) (*Page, error) {
	ctx := c.R.Context()
	r, err := h.finder.workRepo(c)
	if err != nil {
		return nil, err
	}
	row, err := newRepoRow(ctx, h.executor, c.Who, r)
	if err != nil {
		return nil, err
	}
	d := &repoData{repoRow: row, Ways: h.cloneWays(c, r.Name()), MayRefresh: c.Who.CheckChange(r.Name(), row.Base) == nil}
	p := &Page{Title: r.Name(), Nav: "repos", Template: "repo", Data: d}
	if row.Head != "" {
		if err := showCommits(ctx, r, d); err != nil {
			return nil, err
		}
	}
	if c.Who.Stranger() {
		d.Wrong = ""
		return p, nil
	}
	p.Topics, p.Refresh = []string{live.RepoTopic(r.Name())}, 30
	if up, err := r.Upstream(ctx); err != nil {
		return nil, err
	} else if up != "" {
		d.Upstream = upstreamText(up, c.Who)
	}
	if row.Head != "" {
		if err := h.showBase(ctx, r, d); err != nil {
			return nil, err
		}
	}
	list, _, err := h.workspaces.List(ctx, c.Who, workspace.Filter{Repo: r.Name(), Max: 12})
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		d.Workspaces = append(d.Workspaces, h.rows.workspaceRow(c, s))
	}
	return p, nil
}

// cloneWays returns the ways to clone a repository.
func (h *repoPages) cloneWays(c *route.Call, repo string) []cloneWay {
	address := c.CloneURL(repo)
	if address == "" {
		return nil
	}
	ways := []cloneWay{{Name: "HTTP", Line: "git clone " + address}}
	if u, err := url.Parse(address); err == nil && h.sshPort != "" && !c.Who.Stranger() {
		way := url.URL{Scheme: "ssh", Host: net.JoinHostPort(u.Hostname(), h.sshPort), Path: "/" + repo + ".git"}
		ways = append(ways, cloneWay{Name: "SSH", Line: "git clone " + way.String()})
	}
	return append(ways, cloneWay{Name: "VS Code",
		Link: template.URL("vscode://vscode.git/clone?" + url.Values{"url": {address}}.Encode())})
}

// showCommits fills in the commits of a base.
func showCommits(ctx context.Context, r *gitd.Repo, d *repoData) (err error) {
	if d.Commits, err = r.Log(ctx, string(d.Head), gitd.LogOptions{Max: maxCommits}); err != nil {
		return err
	}
	for i := range d.Commits {
		d.Commits[i].Subject = render.OneLine(render.Clean(d.Commits[i].Subject), 160)
		d.Commits[i].Author.Name = render.ClipClean(d.Commits[i].Author.Name, 80)
	}
	return nil
}

// showBase fills in the manifests and the settings of a base that has a commit.
func (h *repoPages) showBase(ctx context.Context, r *gitd.Repo, d *repoData) (err error) {
	if d.Bases, err = baseRows(ctx, r, 0, maxBases+1); err != nil {
		return err
	}
	if len(d.Bases) > maxBases {
		d.Bases, d.AllBases = d.Bases[:maxBases], d.Path+"/bases"
	}
	now, err := h.executor.SettingsOf(ctx, r.Name(), "")
	if err != nil {
		return err
	}
	d.Mistake = render.ClipClean(now.Mistake, 2000)
	for _, v := range now.Values {
		d.Settings = append(d.Settings,
			settingRow{v.Key, render.ClipClean(fmt.Sprint(v.Value), 300), render.ClipClean(v.Origin, 100)})
	}
	return nil
}

// baseRows returns manifests of a base, the newest first.
func baseRows(ctx context.Context, r *gitd.Repo, skip, most int) ([]baseRow, error) {
	bases, err := r.Bases(ctx, skip+most)
	if err != nil {
		return nil, err
	}
	var rows []baseRow
	for _, b := range bases[min(skip, len(bases)):] {
		row := baseRow{Commit: render.ShortHash(b.Commit), Branch: render.OneLine(b.Branch, 200), When: b.Time, Ref: b.Ref,
			Environment: render.OneLine(b.Environment, 80), Files: sourcePath(r.Name(), "files", url.Values{"at": {string(b.Commit)}})}
		commit, err := r.Commit(ctx, string(b.Hash))
		if err != nil {
			return nil, err
		}
		row.By = personName(commit.Author)
		if err := r.CheckBase(ctx, b.Hash); err != nil {
			row.Why = render.ClipClean(err.Error(), 300)
		}
		row.Verified = row.Why == ""
		rows = append(rows, row)
	}
	return rows, nil
}

// basesData is the data of the page of manifests.
type basesData struct {
	Repo, RepoPath, Key string
	Rows                []baseRow
	First, Next         string
}

// basesPage shows the manifests of the base of a repository, the newest first.
func (h *repoPages) basesPage(c *route.Call) (*Page, error) {
	r, base, _, err := h.finder.shownRepo(c)
	if err != nil {
		return nil, err
	}
	if !c.Who.SeesBranch(r.Name(), base) {
		return nil, route.NotFound("branch", base)
	}
	skip, err := skipOf(c.R.URL.Query(), allBases)
	if err != nil {
		return nil, err
	}
	d := &basesData{Repo: r.Name(), RepoPath: repoPath(r.Name()), Key: h.git.BaseKey()}
	if d.Rows, err = baseRows(c.R.Context(), r, skip, shownBases+1); err != nil {
		return nil, err
	}
	if skip > 0 {
		d.First = d.RepoPath + "/bases"
	}
	if len(d.Rows) > shownBases {
		d.Rows, d.Next = d.Rows[:shownBases], fmt.Sprintf("%s/bases?skip=%d", d.RepoPath, skip+shownBases)
	}
	return &Page{Title: "Manifests of " + d.Repo, Nav: "repos", Template: "bases", Data: d}, nil
}

// upstreamText returns the URL of an upstream without its credentials. Only administrators see a path.
func upstreamText(up string, who route.Who) string {
	u, err := url.Parse(up)
	if err == nil && u.Host != "" {
		return u.Redacted()
	}
	if who.Admin() {
		return render.ClipClean(up, 300)
	}
	return "a folder of the server"
}

// refreshRepo brings a base up to date with its upstream.
func (h *repoPages) refreshRepo(c *route.Call) error {
	r, err := h.find.PathRepo(c)
	if err != nil {
		return err
	}
	base, err := r.Base(c.R.Context())
	if err != nil {
		return err
	}
	if err := c.Who.CheckChange(r.Name(), base); err != nil {
		return err
	}
	if _, err := h.executor.Bases.Refresh(c.R.Context(), upstream.Deploy{Repo: r.Name()}, io.Discard); err != nil {
		return err
	}
	return see(c, repoPath(r.Name()))
}
