package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/credential"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/files"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/seen"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gateway/token"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// API serves the pages. Its exported fields are its options, which may be changed until the first call of a method. All methods are safe for
// concurrent use.
type API struct {
	Executor *executor.Executor
	Git      *gitd.Server
	Find     *lookup.Lookup
	// Workspaces shows callers as workspaces.
	Workspaces *workspace.Workspaces
	// Evidence describes runs.
	Evidence *evidence.API
	// Files takes uploads and sends downloads. Nil means that there are none.
	Files *files.API
	// Exports sends work as files. Nil means that there is no page of them.
	Exports Exports
	// Changes reads the changes of workspaces. Nil means one of its own.
	Changes *changes.Changes
	// Seen keeps which changes people have looked at. Nil means that nobody keeps it.
	Seen *seen.Store
	// Comments has the comments on lines. Nil means that there are none.
	Comments *comment.Comments
	// Past answers questions about work that was done. It is required.
	Past Past
	// Engineer has the tasks. Nil means that there are none.
	Engineer *engineer.Engineer
	// Live keeps open pages up to date. It is required, and Render is set by this package.
	Live *live.API
	// Access is the class of the routes of pages, Write that of their forms, and Socket that of the socket of open pages.
	// The defaults are AccessRead, AccessWrite and Access.
	Access, Write, Socket route.Access
	// Panes are further parts of the page of a workspace. One with the name of a built-in pane takes its place.
	Panes []Pane
	// More are further pages of settings, in their order.
	More []Settings
	// Ways are the ways to sign in that the first page offers.
	Ways []Way
	// HasKey reports whether an agent of a person has a key for its model. Nil means that a configured agent has one.
	HasKey func(ctx context.Context, who route.Who) bool
	// Credentials and Tokens have those of people. Nil means that there is no page of them.
	Credentials *credential.API
	Tokens      *token.API
	// Shares makes and opens links for people who do not sign in. Nil means that there are none.
	Shares *share.API
	// Names has the names of sessions. Nil means that they have none.
	Names conversation.Names
	// Budget returns the bounds of one run. Nil means that there are none.
	Budget func() Budget
	// SignOut is the path of the form that signs out. Empty means that nobody can.
	SignOut string
	// NoScript leaves out all scripts.
	NoScript bool
	// Cloud has the machines at a cloud, which administrators see. Nil means that there are none.
	Cloud *nodes.Nodes
	// Machines has the machines.
	Machines *workspace.Machines
	// Desk asks the other servers of the installation, and NewCall makes the calls of their questions. A nil Desk means that this is the
	// only server.
	Desk    *gather.Desk
	NewCall func(w http.ResponseWriter, r *http.Request, access route.Access) *route.Call
	// Address is the path below which people reach the server, without a slash at its end.
	Address string
	// SSHPort is the port at which git reaches repositories by SSH. Empty means that it cannot.
	SSHPort string
	// Secrets are removed from pages. Nil means none.
	Secrets *redact.Secrets
	// Assets are the files that pages load. Nil means those of the build.
	Assets *Assets
	Log    *slog.Logger
	Now    func() time.Time

	once sync.Once
	made parts
}

// Budget bounds the use of models by one run. Fields that are zero do not bound it.
type Budget struct {
	CostMicros int64 // in millionths of the currency of the prices
	Tokens     int64
}

// Settings is a page of settings that another package serves.
type Settings struct {
	Title, Path, Icon, About string
	// Admin is set if only administrators see it.
	Admin bool
}

// Way is a way to sign in.
type Way struct{ Text, Href string }

// part is a part of the pages, such as those of repositories.
type part interface {
	// register adds the routes of the part.
	register(t *table)
}

// parts are the parts that an API is made of.
type parts struct {
	shell    *shell
	table    *table
	imports  *imports
	searches *searches
	visits   *visits
}

// parts returns the parts of the API, which the first call makes.
func (api *API) parts() *parts {
	api.once.Do(func() {
		api.setDefaults()
		api.made = api.makeParts()
	})
	return &api.made
}

// setDefaults gives the options that are not set their defaults.
func (api *API) setDefaults() {
	if api.Now == nil {
		api.Now = time.Now
	}
	if api.Log == nil {
		api.Log = slog.New(slog.DiscardHandler)
	}
	if api.Assets == nil {
		api.Assets = builtAssets()
	}
	if api.Access == "" {
		api.Access = route.AccessRead
	}
	if api.Write == "" {
		api.Write = route.AccessWrite
	}
	if api.Socket == "" {
		api.Socket = api.Access
	}
	if api.Changes == nil {
		api.Changes = new(changes.Changes)
	}
}

// makeParts gives each part the options that it uses, and lets it register its routes.
func (api *API) makeParts() parts {
	x, now, address := api.Executor, api.Now, api.Address
	sh := &shell{address: address, assets: api.Assets, secrets: api.Secrets, signOut: api.SignOut, now: now, noScript: api.NoScript,
		follow: api.Live != nil && !api.NoScript, several: !api.Desk.Alone(), exports: api.Exports != nil,
		shares: api.Shares != nil && api.Shares.Store != nil}
	t := &table{shell: sh, access: api.Access, write: api.Write, desk: api.Desk, newCall: api.NewCall}
	rows := &rowMaker{executor: x, now: now}
	all := &servers{desk: api.Desk, executor: x, git: api.Git, engineer: api.Engineer, workspaces: api.Workspaces, rows: rows}
	all.setQuestions()
	find := &finder{executor: x, find: api.Find, workspaces: api.Workspaces}
	lines := &timeline.Timelines{Journals: x, Memory: new(timeline.Memory)}
	moments := &momentMaker{executor: x, git: api.Git, timelines: lines, rows: rows, evidence: api.Evidence, address: address, now: now}
	tournaments := &tournamentTables{executor: x, git: api.Git}
	said := &conversation.Talk{Executor: x, Find: api.Find, Names: api.Names, Named: api.Named}
	if x != nil {
		said.Prompts = &x.Prompts
	}
	talk := &talkSources{address: address, git: api.Git, evidence: api.Evidence, rows: rows, now: now}
	page := &workspacePages{shell: sh, rows: rows, executor: x, workspaces: api.Workspaces, tournaments: tournaments, live: api.Live,
		panes: api.allPanes(sh, talk, said), notes: conflictNotes{past: api.Past, now: now}}
	remarks := &commentPages{shell: sh, executor: x, workspaces: api.Workspaces, comments: api.Comments, talk: said}
	begun := &imports{executor: x, git: api.Git, live: api.Live, log: api.Log, now: now}
	looks := &visits{executor: x, log: api.Log, now: now}
	bisect := &bisectPages{past: api.Past, live: api.Live, workspaces: api.Workspaces, timelines: lines, moments: moments}
	// Parts whose paths have no wildcard come first, see [table.page].
	for _, p := range []part{
		&welcomePages{ways: api.Ways},
		sh,
		&dashboardPages{shell: sh, servers: all, rows: rows, executor: x, workspaces: api.Workspaces, hasKey: api.HasKey},
		&workspaceForms{shell: sh, servers: all, rows: rows, executor: x, workspaces: api.Workspaces},
		page,
		&workspaceActions{executor: x, find: api.Find, workspaces: api.Workspaces},
		&runPages{finder: find, rows: rows, executor: x, evidence: api.Evidence, tournaments: tournaments, now: now},
		&timelinePages{executor: x, git: api.Git, workspaces: api.Workspaces, timelines: lines, moments: moments, visits: looks},
		&timelineActions{shell: sh, executor: x, workspaces: api.Workspaces, past: api.Past, moments: moments, bisect: bisect, visits: looks},
		bisect,
		&exportPages{shell: sh, finder: find, rows: rows, executor: x, workspaces: api.Workspaces, exports: api.Exports},
		&changesPages{address: address, find: api.Find, workspaces: api.Workspaces, changes: api.Changes, seen: api.Seen, comments: remarks},
		remarks,
		&outputPages{finder: find, executor: x},
		&searchPages{servers: all, rows: rows, past: api.Past},
		&taskPages{servers: all, rows: rows, executor: x, engineer: api.Engineer},
		&importPages{shell: sh, servers: all, git: api.Git, imports: begun},
		&repoPages{finder: find, rows: rows, executor: x, find: api.Find, git: api.Git, workspaces: api.Workspaces, sshPort: api.SSHPort},
		&sourcePages{finder: find, rows: rows, executor: x, find: api.Find, past: api.Past},
		&branchPages{finder: find, rows: rows, executor: x, past: api.Past},
		&radarPages{finder: find, executor: x, workspaces: api.Workspaces, past: api.Past, talk: said},
		&nodePages{rows: rows, executor: x, workspaces: api.Workspaces, machines: api.Machines, cloud: api.Cloud},
		&settingsPages{credentials: api.Credentials, tokens: api.Tokens, shares: api.Shares, more: api.More},
		&credentialPages{shell: sh, credentials: api.Credentials},
		&tokenPages{shell: sh, tokens: api.Tokens},
		&linkPages{shell: sh, workspaces: api.Workspaces, shares: api.Shares},
		&sharedPages{shell: sh, executor: x, workspaces: api.Workspaces, shares: api.Shares, evidence: api.Evidence, timelines: lines,
			moments: moments, talk: talk},
		&talkForms{shell: sh, executor: x, find: api.Find, workspaces: api.Workspaces, talk: said, memory: &talk.memory, page: page},
		&talkPages{finder: find, executor: x, workspaces: api.Workspaces, sources: talk},
		&fileForms{shell: sh, files: api.Files, page: page},
	} {
		p.register(t)
	}
	if api.Live != nil {
		api.Live.Render, api.Live.Access = t.render, api.Socket
	}
	if api.Desk != nil {
		gather.New(api.Desk, viewQuestion, t.viewHere)
	}
	return parts{shell: sh, table: t, imports: begun, searches: &bisect.searches, visits: looks}
}

// allPanes returns the panes of the page of a workspace, the conversation first.
func (api *API) allPanes(sh *shell, talk *talkSources, said *conversation.Talk) []Pane {
	x := api.Executor
	list := []Pane{
		talkPane{sources: talk, executor: x, talk: said, live: api.Live, budget: api.Budget},
		shellPane{shell: sh, executor: x},
		previewPane{executor: x, evidence: api.Evidence, address: api.Address, now: api.Now},
		activityPane{executor: x, workspaces: api.Workspaces},
	}
	if api.Files != nil {
		list = slices.Insert(list, 2, Pane(filesPane{executor: x, files: api.Files, address: api.Address}))
	}
	for _, p := range api.Panes {
		if i := slices.IndexFunc(list, func(built Pane) bool { return built.Name() == p.Name() }); i >= 0 {
			list[i] = p
		} else {
			list = append(list, p)
		}
	}
	return list
}

// Routes returns the routes of the pages.
func (api *API) Routes() []route.Route {
	rows := slices.Clone(api.parts().table.routes)
	if api.Live != nil {
		rows = append(rows, api.Live.Routes()...)
	}
	return rows
}

// Reply answers with a page of another package, in the shell.
func (api *API) Reply(c *route.Call, p *Page) error { return api.parts().shell.write(c, p) }

// Named updates the open pages of a caller, after the name of one of its sessions has changed.
func (api *API) Named(c record.Caller) {
	if api.Live != nil {
		api.Live.Hub.Wake(live.CallerTopic(c))
	}
}

// Close ends the imports and searches that are in progress, and waits for their end.
func (api *API) Close() {
	p := api.parts()
	p.imports.stop()
	p.searches.stop()
	p.visits.stop()
	p.imports.work.Wait()
	p.searches.work.Wait()
	p.visits.work.Wait()
}

// see answers a form with the page that shows its result.
func see(c *route.Call, path string) error {
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, c.Prefix()+path, http.StatusSeeOther)
	return nil
}

// readWorkspaceForm reads the form of a call, and returns the workspace that the path names if the person may change it.
func readWorkspaceForm(c *route.Call, from *workspace.Workspaces) (workspace.Workspace, error) {
	if err := readForm(c); err != nil {
		return workspace.Workspace{}, err
	}
	return from.Changeable(c.R.Context(), c.Who, c.R.PathValue("workspace"))
}

// workspacePath returns the path of the page of a workspace.
func workspacePath(id string) string { return "/workspaces/" + url.PathEscape(id) }

// runPath returns the path of the page of a run.
func runPath(r record.Run) string {
	return workspacePath(r.Caller.Slug()) + "/runs/" + url.PathEscape(r.ID)
}

// repoPath returns the path of the page of a repository.
func repoPath(name string) string { return "/repos/" + url.PathEscape(name) }

// taskPath returns the path of the page of a task.
func taskPath(id string) string { return "/tasks/" + url.PathEscape(id) }

// formText returns a field of a form as UTF-8, without space around it. It is cut to most bytes, which forms of this
// server do not reach.
func formText(c *route.Call, name string, most int) string {
	s := strings.TrimSpace(strings.ReplaceAll(c.R.PostFormValue(name), "\r\n", "\n"))
	return strings.ToValidUTF8(text.Head(s, most), "\uFFFD")
}

// readForm reads the form of a call.
func readForm(c *route.Call) error {
	defer c.LimitReading()()
	if err := c.R.ParseMultipartForm(1 << 20); err != nil && err != http.ErrNotMultipart {
		return route.NewProblem(route.KindInvalid, "cannot read the form: %v", err)
	}
	return nil
}
