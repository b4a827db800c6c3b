package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
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

	once      sync.Once
	builders  []view
	questions questions
	imports   imports
	memory    conversation.Memory
	verdicts  verdicts
	sizes     commitSizes
	colours   colours
	ticks     timeline.Memory
	indexes   outputIndexes
	searches  searches
	visits    visits
	// distances are those of branches from their bases.
	distances distances
	notes     conflictNotes
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

// builder makes the page of a call.
type builder func(c *route.Call) (*Page, error)

// view is a page with its path.
type view struct {
	pattern, summary string
	build            builder
}

// strangers reports whether strangers may open a page of a repository that everybody may read.
func (v view) strangers() bool {
	switch v.pattern {
	case "/repos/{repo}", "/repos/{repo}/files", "/repos/{repo}/log", "/repos/{repo}/branches":
		return true
	}
	return false
}

func (api *API) setUp() {
	api.once.Do(func() {
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
		api.questions = api.newQuestions()
		if api.Live != nil {
			api.Live.Render, api.Live.Access = api.render, api.Socket
		}
		api.builders = []view{
			{"/dashboard", "Work that needs a person, runs that work, and runs that have ended", api.dashboard},
			{"/workspaces", "The workspaces that a person may see", api.workspaceList},
			{"/workspaces/new", "The form for a new workspace", api.workspaceForm},
			{"/workspaces/{workspace}", "A workspace: conversation, shell, files, preview and activity",
				api.workspacePage},
			{"/workspaces/{workspace}/runs/{run}", "A run: steps, output, checks, changes and files", api.runPage},
			{"/workspaces/{workspace}/timeline", "The commands of a workspace, and the files that each left", api.timelinePage},
			{"/workspaces/{workspace}/timeline/searches/{search}", "A search for the first bad command of a workspace", api.bisectPage},
			{"/workspaces/{workspace}/export", "A workspace as one file, and its runs as recordings and links", api.exportPage},
			{"/workspaces/{workspace}/changes", "The files that a workspace changed, with their lines", api.changesPage},
			{"/workspaces/{workspace}/runs/{run}/output", "A part of the output of a step, by the number of a line", api.outputPage},
			{"/search", "Words in everything that was asked, run and printed", api.searchPage},
			{"/tasks", "The tasks of the engineer", api.taskList},
			{"/tasks/{task}", "A task with its pull request and its rounds of work", api.taskPage},
			{"/repos", "The repositories, and imports in progress", api.repoList},
			{"/repos/{repo}", "A repository: its base, its manifests and its branches", api.repoPage},
			{"/repos/{repo}/files", "A folder or a file of a repository, and where its lines come from", api.sourcePage},
			{"/repos/{repo}/log", "The commits of a repository, or of one of its files", api.logPage},
			{"/repos/{repo}/branches", "The branches of a repository, with their verdicts and conflicts", api.branchesPage},
			{"/repos/{repo}/radar", "The pairs of branches of a repository that do not merge, and one conflict with its lines", api.radarPage},
			{"/repos/{repo}/bases", "The signed manifests of the base of a repository", api.basesPage},
			{"/nodes", "The machines that run containers", api.nodeList},
			{"/nodes/{node}", "A machine: its health, its containers and its limits", api.nodePage},
			{"/settings", "The settings of a person", api.settingsPage},
			{credentialsPath, "The credentials of a person, without their values", api.credentialsPage},
			{linksPath, "The links that a person made for people who do not sign in", api.linksPage},
			{"/workspaces/{workspace}/share", "The form for a link to a workspace, a run or a moment", api.sharePage},
			{tokensPath, "The tokens of a person", api.tokensPage},
		}
	})
}

// Routes returns the routes of the pages.
func (api *API) Routes() []route.Route {
	api.setUp()
	rows := []route.Route{
		{Method: "GET", Pattern: "/{$}", Access: route.AccessPublic,
			Summary: "The first page, with the ways to sign in", Media: route.MediaHTML,
			Handle: api.page(api.welcome)},
		{Method: "GET", Pattern: assetsPath + "{file}", Access: route.AccessPublic,
			Summary: "Style sheets and scripts of pages", Media: route.MediaBytes,
			Handle: api.asset},
	}
	for _, v := range api.builders {
		rows = append(rows, route.Route{Method: "GET", Pattern: v.pattern, Access: api.Access, Summary: v.summary,
			Media: route.MediaHTML, Strangers: v.strangers(), Handle: api.page(v.build)})
	}
	form := func(pattern, summary string, handle func(c *route.Call) error) {
		rows = append(rows, route.Route{Method: "POST", Pattern: pattern, Access: api.Write, Summary: summary,
			Media: route.MediaHTML,
			Body:  formBody, Handle: handle})
	}
	form("/dashboard/ask", "Ask an agent, by the form of the dashboard", api.ask)
	form("/workspaces/new", "Begin a workspace, by its form", api.createWorkspace)
	form("/workspaces/warm", "Prepare for a new workspace while its prompt is typed", api.warmRepo)
	form("/workspaces/{workspace}/warm", "Wake a workspace while a prompt is typed", api.warmWorkspace)
	form("/workspaces/{workspace}/stop", "Stop a workspace, by its page", api.stopWorkspace)
	form("/workspaces/{workspace}/restart", "Start a workspace again, by its page", api.restartWorkspace)
	form("/workspaces/{workspace}/delete", "Delete a workspace, by its page", api.deleteWorkspace)
	form("/workspaces/{workspace}/privacy", "Make a workspace private or show it, by its page", api.setPrivacy)
	form("/workspaces/{workspace}/command", "Run a command in a workspace, by its page", api.command)
	form("/workspaces/{workspace}/timeline/{action}", "Go back, go on, run again, take or search from a command, by the timeline", api.timelineAction)
	form("/workspaces/{workspace}/export", "Make a link to the export of a run, by the page of the workspace", api.linkExport)
	form("/workspaces/{workspace}/changes/{action}", "Mark changes as viewed or looked at, by their page", api.markChanges)
	form("/workspaces/{workspace}/review/{action}", "Comment on lines, answer, resolve and send, by the page of changes", api.changeComments)
	form("/workspaces/{workspace}/runs/{run}/{action}", "Stop, retry or answer a run, by its page", api.runAction)
	form("/tasks/{task}/{action}", "Retry or end a task, by its page", api.taskAction)
	form("/repos", "Import or create a repository, by the form of the list", api.importRepo)
	form("/repos/{repo}/refresh", "Refresh a base from its upstream, by its page", api.refreshRepo)
	form("/repos/{repo}/radar/tell", "Tell the agent of a branch of a conflict, by the page of the radar", api.tellAgent)
	form("/settings/appearance", "Choose theme and density, by the form of the settings", api.saveAppearance)
	form(credentialsPath, "Store credentials, by their page", api.setCredentials)
	form(credentialsPath+"/{credential}/{action}", "Try, switch or remove a credential, by its page", api.credentialAction)
	form("/workspaces/{workspace}/share", "Make a link for people who do not sign in, by its form", api.shareWorkspace)
	form(linksPath+"/{share}/revoke", "Revoke such a link, by the page of links", api.revokeLink)
	form(tokensPath, "Make a token for the person, by the page of tokens", api.makeToken)
	form(tokensPath+"/{token}/revoke", "Revoke a token, by its page", api.revokeToken)
	rows = append(rows, route.Route{Method: "GET", Pattern: "/workspaces/{workspace}/changes/picture", Access: api.Access,
		Summary: "A picture of a commit, for the page of changes", Media: route.MediaBytes, Handle: api.changePicture})
	rows = append(rows, route.Route{Method: "GET", Pattern: "/workspaces/{workspace}/runs/{run}/output/file", Access: api.Access,
		Summary: "The whole output of a step, as a file for people", Media: route.MediaBytes, Handle: api.sendOutput})
	rows = append(rows, api.sharedRoutes()...)
	rows = append(rows, api.talkRoutes()...)
	rows = append(rows, api.fileRoutes()...)
	rows = append(rows, api.exportRoutes()...)
	if api.Live != nil {
		rows = append(rows, api.Live.Routes()...)
	}
	return rows
}

// formBody limits the body of a form, in bytes.
const formBody = 2 << 20

// page returns the handler of a page.
func (api *API) page(build builder) func(c *route.Call) error {
	return func(c *route.Call) error {
		p, err := api.build(c, build)
		if err != nil {
			return err
		}
		return api.write(c, p)
	}
}

// build makes a page, which names the servers that it lacks.
func (api *API) build(c *route.Call, build builder) (*Page, error) {
	ctx, lack := gather.Collect(c.R.Context())
	c.R = c.R.WithContext(ctx)
	p, err := build(c)
	if err == nil {
		p.Missing = lack.Names()
	}
	return p, err
}

// render returns the view of the page at a path, for package live.
func (api *API) render(c *route.Call, at *url.URL) (live.View, error) {
	return api.renderHere(c, at, api.viewElsewhere)
}

// renderHere returns the view of the page at a path. elsewhere, if it is not nil, may make it first.
func (api *API) renderHere(c *route.Call, at *url.URL, elsewhere func(c *route.Call, pattern string) (live.View, bool, error)) (live.View, error) {
	for _, v := range api.builders {
		values, ok := match(v.pattern, strings.TrimPrefix(at.EscapedPath(), api.Address))
		if !ok {
			continue
		}
		call := *c
		call.R = c.R.Clone(context.WithValue(c.R.Context(), following{}, true))
		call.R.URL, call.R.Method, call.R.Pattern = at, http.MethodGet, v.pattern
		for name, value := range values {
			call.R.SetPathValue(name, value)
		}
		if elsewhere != nil {
			if view, is, err := elsewhere(&call, v.pattern); is {
				return view, err
			}
		}
		p, err := api.build(&call, v.build)
		if err != nil {
			return live.View{}, err
		}
		if _, err := api.fill(&call, p); err != nil {
			return live.View{}, err
		}
		return live.View{Title: p.FullTitle(), Topics: p.Topics, Beat: p.Beat, Fragments: p.fragments}, nil
	}
	return live.View{}, route.NotFound("page", at.Path)
}

// following is the key of contexts in which a page is made for the tabs that follow it, which take its fragments alone.
type following struct{}

// match returns the values of the wildcards of a pattern in a path that is still escaped. A pattern without a wildcard wins over one with a
// wildcard, because it comes first in the table.
func match(pattern, path string) (map[string]string, bool) {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return nil, false
	}
	values := map[string]string{}
	for i := range want {
		name, isWild := strings.CutPrefix(want[i], "{")
		if !isWild {
			if want[i] != have[i] {
				return nil, false
			}
			continue
		}
		value, err := url.PathUnescape(have[i])
		if err != nil || value == "" {
			return nil, false
		}
		values[strings.TrimSuffix(name, "}")] = value
	}
	return values, true
}

// see answers a form with the page that shows its result.
func (api *API) see(c *route.Call, path string) error {
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, c.Prefix()+path, http.StatusSeeOther)
	return nil
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

// Close ends the imports and searches that are in progress, and waits for their end.
func (api *API) Close() {
	api.imports.stop()
	api.searches.stop()
	api.visits.stop()
	api.imports.work.Wait()
	api.searches.work.Wait()
	api.visits.work.Wait()
}
