package terminal

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/shell"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// API serves terminals. Its exported fields are its options, which may be changed until the first call.
type API struct {
	Executor *executor.Executor
	Find     *lookup.Lookup
	// Host returns the URL of the host of a workspace, for the sockets of programs. If it is nil or the result is
	// empty, they are at the host of all routes for programs.
	Host func(record.Caller) string
	Log  *slog.Logger
	Now  func() time.Time

	// Privacy keeps which callers are private. Nil means none.
	Privacy workspace.Privacy

	tickets tickets
	sockets sockets
	open    sync.WaitGroup
}

// Routes returns the routes of terminals.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/callers/{caller}/terminals", Access: route.AccessRead,
			Summary: "A caller's terminals", Response: []shell.TerminalStatus{}, Handle: api.list},
		{Method: "POST", Pattern: "/api/callers/{caller}/terminals", Access: route.AccessWrite,
			Summary:  "Open a terminal for a caller, which may be \"new\", or an id that is free, with a repo",
			Request:  Request{},
			Response: shell.TerminalStatus{}, Handle: api.openTerminal},
		{Method: "DELETE", Pattern: "/api/callers/{caller}/terminals/{terminal}", Access: route.AccessWrite,
			Summary: "End a terminal's program, and forget the terminal", Response: struct{}{}, Handle: api.closeTerminal},
		{Method: "POST", Pattern: "/api/terminal/token", Access: route.AccessWrite,
			Summary: "A ticket for one socket of a terminal, within 30 s", Request: TokenRequest{}, Response: Token{},
			Handle: api.token},
		{Method: "GET", Pattern: "/api/callers/{caller}/tabs", Access: route.AccessRead,
			Summary: "The terminals and agent sessions of a caller", Response: Tabs{}, Handle: api.tabs},
		{Method: "GET", Pattern: "/api/callers/{caller}/shell", Access: route.AccessWrite,
			Summary: "A terminal over a WebSocket, by the protocol " + Subprotocol, Media: route.MediaBytes,
			Handle: api.shell},
		{Method: "POST", Pattern: "/terminal/token", Access: route.AccessPage,
			Summary: "A ticket for one socket of a terminal, for a page", Request: TokenRequest{}, Response: Token{},
			Handle: api.token},
		{Method: "GET", Pattern: "/workspaces/{caller}/tabs", Access: route.AccessPage,
			Summary: "The terminals and agent sessions of a workspace, for a page", Response: Tabs{}, Handle: api.tabs},
		{Method: "POST", Pattern: "/workspaces/{caller}/terminals", Access: route.AccessPage,
			Summary: "Open a terminal of a workspace, for a page", Request: PageRequest{}, Response: shell.TerminalStatus{},
			Handle: api.openForPage},
		{Method: "POST", Pattern: "/workspaces/{caller}/terminals/{terminal}/close", Access: route.AccessPage,
			Summary: "End a terminal's program, and forget the terminal, for a page", Response: struct{}{},
			Handle: api.closeTerminal},
		{Method: "GET", Pattern: "/workspaces/{caller}/shell", Access: route.AccessSocket,
			Summary: "A terminal over a WebSocket, for a page that has a ticket", Media: route.MediaBytes,
			Handle: api.shell},
	}
}

// caller returns a caller by its name, or by that of its workspace. On a route for writers, and for what a page changes in
// a terminal, the caller of the request must be allowed to change its branch.
func (api *API) caller(c *route.Call, name string) (executor.CallerStatus, error) {
	if of, ok := workspace.CallerOf(name); ok {
		name = of.String()
	}
	st, err := api.Find.Caller(c.R.Context(), c.Who, name)
	if err == nil && (c.Access == route.AccessWrite || c.R.Method == http.MethodPost && c.R.PathValue("caller") != "") {
		err = c.Who.CheckChangeCaller(st)
	}
	return st, err
}

// Close waits until all sockets are closed. The server must drain before.
func (api *API) Close() { api.open.Wait() }

// Request asks for a terminal.
type Request struct {
	record.TerminalCall
	Repo  string       `json:"repo,omitempty" jsonschema:"required for a caller that is new"`
	Base  string       `json:"base,omitempty" jsonschema:"branch to start from; the repository's base if empty"`
	Key   string       `json:"key,omitempty" jsonschema:"makes the request idempotent"`
	Fork  *record.Fork `json:"fork,omitempty" jsonschema:"begin a new caller at a commit of another one"`
	Asker gitd.Person  `json:"asker,omitzero"`
}

func (api *API) openTerminal(c *route.Call) error {
	var q Request
	if err := c.ReadOptionalJSON(&q); err != nil {
		return err
	}
	caller, repo, err := api.Find.CallerOrNew(c.Who, c.R.PathValue("caller"), q.Repo, q.Fork != nil)
	if err != nil {
		return err
	}
	request := record.Request{Key: q.Key, Caller: caller, Repo: repo, Base: q.Base, Fork: q.Fork,
		Terminal: &q.TerminalCall, Asker: q.Asker}
	t, err := api.findOrOpen(c.R.Context(), c, request)
	if err != nil {
		return err
	}
	return c.Reply(t.Status())
}

// PageRequest asks for a terminal of a workspace that is there.
type PageRequest struct {
	Key string `json:"key,omitempty" jsonschema:"makes the request idempotent"`
}

func (api *API) openForPage(c *route.Call) error {
	var q PageRequest
	if err := c.ReadOptionalJSON(&q); err != nil {
		return err
	}
	st, err := api.caller(c, c.R.PathValue("caller"))
	if err != nil {
		return err
	}
	t, err := api.findOrOpen(c.R.Context(), c,
		record.Request{Key: q.Key, Caller: st.Caller, Repo: st.Repo, Terminal: &record.TerminalCall{}})
	if err != nil {
		return err
	}
	return c.Reply(t.Status())
}

// findOrOpen opens a terminal, or finds the one that a request names.
func (api *API) findOrOpen(ctx context.Context, c *route.Call, r record.Request) (*shell.Shell, error) {
	if err := api.Find.Bind(ctx, c.Who, &r); err != nil {
		return nil, err
	}
	if st, err := api.Executor.Named(r.Caller.String()); err == nil && st.Caller == r.Caller {
		if err := c.Who.CheckChangeCaller(st); err != nil {
			return nil, err
		}
	}
	settle, err := workspace.Hide(ctx, api.Executor, api.Privacy, &r)
	if err != nil {
		return nil, err
	}
	t, err := api.Executor.OpenTerminal(ctx, r)
	if err := settle(err); err != nil {
		return t, err
	}
	return t, audit(c, "open", t.Status().Caller, t.Name)
}

// audit adds an action at a terminal to the log of actions, never input.
func audit(c *route.Call, deed string, caller record.Caller, name string) error {
	return c.Audit("terminal."+deed, caller.String()+" "+name)
}

func (api *API) list(c *route.Call) error {
	st, err := api.caller(c, c.R.PathValue("caller"))
	if err != nil {
		return err
	}
	return c.Reply(statuses(api.Executor.Shells.All(st.Caller)))
}

func statuses(list []*shell.Shell) []shell.TerminalStatus {
	all := []shell.TerminalStatus{}
	for _, t := range list {
		all = append(all, t.Status())
	}
	return all
}

func (api *API) closeTerminal(c *route.Call) error {
	st, err := api.caller(c, c.R.PathValue("caller"))
	if err != nil {
		return err
	}
	name := c.R.PathValue("terminal")
	if err := api.Executor.Shells.Close(c.R.Context(), st.Caller, name, c.Who.Person(gitd.Person{})); err != nil {
		return err
	}
	if err := audit(c, "close", st.Caller, name); err != nil {
		return err
	}
	return c.Reply(struct{}{})
}

// TokenRequest asks for a ticket.
type TokenRequest struct {
	WorkspaceID string `json:"workspaceId" jsonschema:"the workspace, which is a caller"`
	Terminal    string `json:"terminal,omitempty" jsonschema:"the only terminal that the ticket is for; any if empty"`
}

// Token is a ticket. It opens one socket.
type Token struct {
	Token string `json:"token"`
	// URL is that of the socket, and WorkspaceURL that of the workspace's page.
	URL          string    `json:"url"`
	WorkspaceURL string    `json:"workspaceUrl"`
	Expires      time.Time `json:"expires"`
}

func (api *API) token(c *route.Call) error {
	var q TokenRequest
	if err := c.ReadJSON(&q); err != nil {
		return err
	}
	st, err := api.caller(c, q.WorkspaceID)
	if err != nil {
		return err
	}
	now := api.Now()
	secret, err := api.tickets.issue(ticket{who: c.Who, caller: st.Caller, terminal: q.Terminal}, now)
	if err != nil {
		return err
	}
	page := c.Address() + "/workspaces/" + url.PathEscape(st.Caller.Slug())
	socket := page
	if c.Access != route.AccessPage {
		host := c.Programs()
		if api.Host != nil {
			host = cmp.Or(api.Host(st.Caller), host)
		}
		socket = host + "/api/callers/" + url.PathEscape(st.Caller.String())
	}
	return c.Reply(Token{Token: secret, URL: socketURL(socket) + "/shell", WorkspaceURL: page,
		Expires: now.Add(ticketTime).UTC()})
}

// socketURL returns an address of http for a WebSocket.
func socketURL(address string) string {
	if rest, ok := strings.CutPrefix(address, "http"); ok {
		return "ws" + rest
	}
	return address
}

// Tab is a terminal or an agent's session of a workspace.
type Tab struct {
	Kind  string `json:"kind"` // "shell" or "chat"
	ID    string `json:"id"`
	Label string `json:"label"`
	// Agent is the agent of a chat.
	Agent   string                `json:"agent,omitempty"`
	Running bool                  `json:"running"`
	Shell   *shell.TerminalStatus `json:"shell,omitempty"`
}

// Tabs are the tabs of a workspace, in order.
type Tabs struct {
	Workspace string `json:"workspace"`
	Tabs      []Tab  `json:"tabs"`
}

func (api *API) tabs(c *route.Call) error {
	st, err := api.caller(c, c.R.PathValue("caller"))
	if err != nil {
		return err
	}
	tabs := Tabs{Workspace: st.Caller.Slug(), Tabs: []Tab{}}
	for _, t := range statuses(api.Executor.Shells.All(st.Caller)) {
		label := t.Title
		if label == "" {
			label = "Terminal " + t.Name
		}
		tabs.Tabs = append(tabs.Tabs, Tab{Kind: "shell", ID: t.Name, Label: label, Running: t.State.Running, Shell: &t})
	}
	at := map[string]int{}
	for _, r := range api.Executor.OfCaller(st.Caller) {
		if r.Kind != record.KindAgent || r.Agent == nil || !c.Who.SeesRun(r) {
			continue
		}
		id := r.Agent.Name + "/" + r.Agent.Session
		i, known := at[id]
		if !known {
			i = len(tabs.Tabs)
			at[id] = i
			label := r.Agent.Session
			if label == "" {
				label = r.Agent.Name
			}
			tabs.Tabs = append(tabs.Tabs, Tab{Kind: "chat", ID: id, Label: label, Agent: r.Agent.Name})
		}
		tabs.Tabs[i].Running = tabs.Tabs[i].Running || !r.Ended()
	}
	return c.Reply(tabs)
}
