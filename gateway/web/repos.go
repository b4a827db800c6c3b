package web

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/live"
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

// reposData is the data of the list of repositories.
type reposData struct {
	Rows      []repoRow
	Imports   []importRow
	MayImport bool
	// Name and Source are the form as it was filled in, and Wrong has its mistakes by field.
	Name, Source string
	Wrong        map[string]string
}

func (api *API) repoList(c *route.Call) (*Page, error) { return api.reposWith(c, "", "", nil) }

func (api *API) reposWith(c *route.Call, name, source string, wrong map[string]string) (*Page, error) {
	ctx := c.R.Context()
	rows, err := api.repos(ctx, c.Who)
	if err != nil {
		return nil, err
	}
	d := &reposData{Rows: rows, MayImport: c.Who.Admin(), Name: name, Source: source, Wrong: wrong}
	if d.MayImport {
		d.Imports = api.imports.list()
	}
	p := &Page{Title: "Repositories", Nav: "repos", Template: "repos", Data: d, Topics: []string{live.TopicMe}, Refresh: 30}
	if len(wrong) > 0 {
		p.Status = status(true)
	}
	if slices.ContainsFunc(d.Imports, func(i importRow) bool { return !i.Ended }) {
		p.Beat, p.Refresh = time.Second, 2
	}
	return p, nil
}

func (api *API) repoRow(ctx context.Context, who route.Who, r *gitd.Repo) (repoRow, error) {
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
	if row.Status, err = api.Executor.Bases.Status(ctx, r); err != nil {
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

func (api *API) repoPage(c *route.Call) (*Page, error) {
	ctx := c.R.Context()
	r, err := api.workRepo(c)
	if err != nil {
		return nil, err
	}
	row, err := api.repoRow(ctx, c.Who, r)
	if err != nil {
		return nil, err
	}
	d := &repoData{repoRow: row, Ways: api.cloneWays(c, r.Name()), MayRefresh: c.Who.CheckChange(r.Name(), row.Base) == nil}
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
		if err := api.showBase(ctx, r, d); err != nil {
			return nil, err
		}
	}
	list, _, err := api.Workspaces.List(ctx, c.Who, workspace.Filter{Repo: r.Name(), Max: 12})
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		d.Workspaces = append(d.Workspaces, api.workspaceRow(c, s))
	}
	return p, nil
}

// cloneWays returns the ways to clone a repository.
func (api *API) cloneWays(c *route.Call, repo string) []cloneWay {
	address := c.CloneURL(repo)
	if address == "" {
		return nil
	}
	ways := []cloneWay{{Name: "HTTP", Line: "git clone " + address}}
	if u, err := url.Parse(address); err == nil && api.SSHPort != "" && !c.Who.Stranger() {
		way := url.URL{Scheme: "ssh", Host: net.JoinHostPort(u.Hostname(), api.SSHPort), Path: "/" + repo + ".git"}
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
func (api *API) showBase(ctx context.Context, r *gitd.Repo, d *repoData) (err error) {
	if d.Bases, err = baseRows(ctx, r, 0, maxBases+1); err != nil {
		return err
	}
	if len(d.Bases) > maxBases {
		d.Bases, d.AllBases = d.Bases[:maxBases], d.Path+"/bases"
	}
	now, err := api.Executor.SettingsOf(ctx, r.Name(), "")
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
func (api *API) basesPage(c *route.Call) (*Page, error) {
	r, base, _, err := api.shownRepo(c)
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
	d := &basesData{Repo: r.Name(), RepoPath: repoPath(r.Name()), Key: api.Git.BaseKey()}
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

// imports are the imports that are in progress, and those that ended a short while ago.
type imports struct {
	mu      sync.Mutex // guards all below
	rows    []*importing
	stopped bool
	ends    []context.CancelFunc
	work    sync.WaitGroup
}

// importing is one import.
type importing struct {
	mu                sync.Mutex // guards all below
	name, text, wrong string
	began, ended      time.Time
}

// importRow is an import as a page shows it.
type importRow struct {
	Name, Text, Wrong string
	Began             time.Time
	Ended             bool
}

// Limits of imports.
const (
	maxImports  = 4
	importShown = 10 * time.Minute // after its end
	importTime  = 2 * time.Hour
)

// Write takes the progress that git prints. The last line is shown.
func (i *importing) Write(b []byte) (int, error) {
	lines := strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' || r == '\r' })
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(lines) > 0 {
		i.text = render.ClipClean(lines[len(lines)-1], 200)
	}
	return len(b), nil
}

func (m *imports) list() []importRow {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []importRow
	for _, i := range m.rows {
		i.mu.Lock()
		if i.ended.IsZero() || i.wrong != "" {
			list = append(list, importRow{i.name, i.text, i.wrong, i.began, !i.ended.IsZero()})
		}
		i.mu.Unlock()
	}
	return list
}

// stop ends all imports.
func (m *imports) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	for _, end := range m.ends {
		end()
	}
}

// start begins an import. run does the work.
func (m *imports) start(name string, now func() time.Time, run func(ctx context.Context, progress io.Writer) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	works := 0
	m.rows = slices.DeleteFunc(m.rows, func(i *importing) bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.ended.IsZero() {
			works++
		}
		return !i.ended.IsZero() && (now().Sub(i.ended) > importShown || i.name == name)
	})
	if m.stopped || works >= maxImports {
		return route.NewProblem(route.KindUnavailable, "%d repositories are being imported already",
			works).WithHint("wait until one is done")
	}
	ctx, cancel := context.WithTimeout(context.Background(), importTime)
	i := &importing{name: name, began: now(), text: "begins"}
	m.rows, m.ends = append(m.rows, i), append(m.ends, cancel)
	m.work.Go(func() {
		defer cancel()
		err := run(ctx, i)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.ended = now()
		if err != nil {
			i.wrong = render.ClipClean(err.Error(), 1000)
		}
	})
	return nil
}

// importRepo begins an import, or creates an empty repository.
func (api *API) importRepo(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	if !c.Who.Admin() {
		return route.NewProblem(route.KindDenied, "only administrators import repositories")
	}
	name, source := formText(c, "name", 200), formText(c, "source", 2000)
	wrong := map[string]string{}
	if name == "" {
		name = nameOf(source)
	}
	if name == "" {
		wrong["name"] = "Give the repository a name."
	} else if _, err := api.Git.Repo(name); err == nil {
		wrong["name"] = "There is a repository of this name."
	} else if !errors.Is(err, gitd.ErrNotFound) && !errors.Is(err, gitd.ErrNoRepository) {
		wrong["name"] = sentence(render.ClipClean(err.Error(), 300))
	}
	if len(wrong) == 0 {
		err := api.beginImport(c.R.Context(), name, source)
		if err == nil {
			if err := c.Audit("repo.import", name); err != nil {
				return err
			}
			return api.see(c, "/repos")
		}
		text, ok := fieldProblem(err, c.Who)
		if !ok {
			return err
		}
		wrong["source"] = text
	}
	p, err := api.reposWith(c, name, source, wrong)
	if err != nil {
		return err
	}
	return api.write(c, p)
}

func (api *API) beginImport(ctx context.Context, name, source string) error {
	if source == "" {
		_, err := api.Git.Create(ctx, name)
		return err
	}
	return api.imports.start(name, api.Now, func(ctx context.Context, progress io.Writer) error {
		r, err := api.Git.Import(ctx, name, source, progress)
		if api.Live != nil {
			defer api.Live.Hub.Wake(live.TopicMe)
		}
		if err != nil {
			return err
		}
		base, err := r.Base(ctx)
		if err != nil {
			return err
		}
		head, err := r.Resolve(ctx, "refs/heads/"+base)
		if err != nil {
			return nil // an empty repository
		}
		if err := api.Executor.Bases.WarmLater(ctx, name, head); err != nil {
			api.Log.Warn("cannot have the dependencies of a base fetched", "repo", name, "err", err)
		}
		return nil
	})
}

// nameOf returns the name that git gives a clone of a source.
func nameOf(source string) string {
	source = strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(source, "/"), ".git"), "/")
	if i := strings.LastIndexAny(source, "/:"); i >= 0 {
		source = source[i+1:]
	}
	return strings.ToLower(source)
}

// refreshRepo brings a base up to date with its upstream.
func (api *API) refreshRepo(c *route.Call) error {
	r, err := api.Find.PathRepo(c)
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
	if _, err := api.Executor.Bases.Refresh(c.R.Context(), upstream.Deploy{Repo: r.Name()}, io.Discard); err != nil {
		return err
	}
	return api.see(c, repoPath(r.Name()))
}
