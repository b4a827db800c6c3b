package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/export"
	"github.com/ramus-dev/ramus/gateway/files"
	"github.com/ramus-dev/ramus/gateway/forgekey"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/mcp"
	nodesapi "github.com/ramus-dev/ramus/gateway/nodes"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/preview"
	"github.com/ramus-dev/ramus/gateway/replica"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/signin"
	standbyapi "github.com/ramus-dev/ramus/gateway/standby"
	"github.com/ramus-dev/ramus/gateway/terminal"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gateway/token"
	"github.com/ramus-dev/ramus/gateway/trigger"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// setUpAlone sets up everything except the handlers of the Git server. All options of the pages are set before their routes are asked for.
func (s *Server) setUpAlone() {
	s.setDefaults()
	m := newMetrics(s)
	s.setMux(m)

	parts := s.Executor
	if parts == nil {
		parts = new(executor.Executor) // the routes are listed, and none is called
	}
	desk := s.newDesk()
	find := &lookup.Lookup{Executor: s.Executor, Git: s.Git}
	places := &workspace.Workspaces{Executor: s.Executor, Find: find, Git: s.Git}
	machines := &workspace.Machines{Stats: s.stats, Engine: s.Engine, Version: s.Version, Workspaces: places, Now: s.Now}
	before := &past.API{Executor: s.Executor, Git: s.Git, Find: find, Links: s.Links,
		Branches: cmp.Or(s.Radar, &radar.Radar{}), Desk: desk, Now: s.Now}
	parcels := export.New(s.Executor, find)
	parcels.Links, parcels.Loopback, parcels.Version, parcels.Now = s.Links, s.Loopback, s.Version, s.Now
	s.setTools(parts, find, desk, before, parcels)
	if s.Privacy != nil {
		places.Privacy, before.Privacy, parcels.Privacy, s.terminal.Privacy = s.Privacy, s.Privacy, s.Privacy, s.Privacy
	}
	s.web = &web.API{Executor: s.Executor, Git: s.Git, Find: find, Workspaces: places, Evidence: s.pages, Past: before,
		Engineer: s.Engineer, Live: &live.API{Hub: &live.Hub{}, Watch: s.Executor}, NoScript: s.NoScript,
		Machines: machines, Cloud: s.Nodes, Address: s.prefix(), Secrets: s.Secrets, Budget: s.Budget, Log: s.Log, Now: s.Now,
		Changes: &changes.Changes{}, Seen: s.Seen, Exports: parcels, SSHPort: s.SSHPort, Desk: desk, NewCall: s.mux.NewCall,
		Files: &files.API{Mover: &parts.Files, Workspaces: places, Git: s.Git, Now: s.Now}}
	shareTopics(desk, s.web.Live)
	shares := s.sharing(find)
	s.mcp.Shares, s.web.Shares = shares, shares
	s.connectRecords(before, shares)
	s.mux.Page = s.web.Problem
	credentials, tokens := s.credentials(), &token.API{Git: s.Git}
	if credentials.Store != nil {
		s.web.Credentials = credentials
	}
	s.web.Tokens = tokens
	said := s.setConversation(parts, find)
	s.openPagesForPeople()

	s.apis = []interface{ Routes() []route.Route }{
		&aboutAPI{Executor: s.Executor, Git: s.Git, Records: s.Records, find: find, Version: s.Version,
			Engine: s.Engine, Streams: s.Streams, Leader: s.Leader, metrics: m, spec: sync.OnceValue(s.openAPI)},
		&reposAPI{Executor: s.Executor, Git: s.Git, Mirrors: s.Mirrors, Names: s.Names, Replicas: s.Replicas, find: find, Log: s.Log},
		&runsAPI{Executor: s.Executor, find: find, privacy: places.Privacy, desk: desk},
		&callersAPI{Executor: s.Executor, Git: s.Git, find: find},
		before,
		parcels,
		&conversation.API{Talk: said, Find: find},
		credentials,
		&commandsAPI{Executor: s.Executor, find: find, privacy: places.Privacy, Heartbeat: s.Heartbeat},
		s.terminal,
		s.tasksAPI(),
		&trigger.API{Triggers: s.Triggers},
		s.pages,
		s.web.Files,
		&workspace.API{Workspaces: places},
		&changes.API{Changes: s.web.Changes, Find: find},
		&comment.API{Comments: s.Comments},
		&timeline.API{Timelines: timeline.Timelines{Journals: s.Executor}, Find: find, Git: s.Git},
		s.web,
		s.preview,
		s.mcp,
		&chat.API{Chat: s.Chat, Log: s.Log, Now: s.Now},
		&deployAPI{Executor: s.Executor, DeploySecret: s.DeploySecret, Now: s.Now},
		&githubAPI{GitHub: s.GitHub},
		tokens,
		shares,
		signin.NewAPI(signin.API{Git: s.Git, GitHub: s.SignIn, People: s.People, Accounts: s.Accounts, Web: s.web,
			Loopback: s.Loopback, Log: s.Log, Now: s.Now}),
		&forgekey.API{Keys: s.ForgeKeys},
		standbyapi.New(s.Leader, s.Git),
		&replica.API{Front: s.Replicas},
		&nodesapi.API{Machines: machines, Nodes: s.Nodes, Programs: s.Programs},
		&adminAPI{Executor: s.Executor, Names: s.Names, Version: s.Version, Reload: s.Reload},
	}
	s.table = s.makeTable()
}

// setTools sets up previews, the MCP server, the evidence of runs and terminals.
func (s *Server) setTools(parts *executor.Executor, find *lookup.Lookup, desk *gather.Desk, before *past.API, parcels *export.API) {
	s.preview = &preview.API{Executor: s.Executor, Programs: &parts.Programs, Verify: s.mux.Verify, Find: find, Links: s.Links, Origin: s.Preview,
		Log: s.Log, Now: s.Now}
	s.mcp = &mcp.API{Executor: s.Executor, Prompts: &parts.Prompts, Engineer: s.Engineer, Find: find, Past: before, Leader: s.Leader,
		Exports: parcels, Links: s.Links, Desk: desk, URL: s.programs(), CORS: s.CORS, Version: s.Version, Secrets: s.Secrets, Log: s.Log, Now: s.Now}
	if s.People != nil {
		s.mcp.Audit = s.People.AuditAs
	}
	s.pages = &evidence.API{Executor: s.Executor, Programs: &parts.Programs, Find: find, Links: s.Links, Loopback: s.Loopback, Content: s.Content,
		Sessions: s.People != nil, Now: s.Now}
	s.terminal = &terminal.API{Executor: s.Executor, Find: find, Host: s.Domain.Workspace, Log: s.Log, Now: s.Now}
}

// tasksAPI returns the API of the tasks of the engineer.
func (s *Server) tasksAPI() *engineer.API {
	tasks := engineer.NewAPI(s.Engineer, s.Hooks, s.Log)
	tasks.Tickets = s.Tickets
	if s.Triggers != nil {
		tasks.Triggers = s.Triggers
	}
	return tasks
}

// connectRecords tells the replicas where the records are that are no runs.
func (s *Server) connectRecords(before *past.API, shares *share.API) {
	if s.Replicas == nil {
		return
	}
	s.Replicas.Tournament, s.Replicas.Link = before.RepoOfTournament, shares.RepoOf
	s.Replicas.Keepers = map[string]replica.Keeper{}
	if s.Shares != nil {
		s.Replicas.Keepers["links"] = s.Shares
	}
	if s.Names != nil {
		s.Replicas.Keepers["names"] = s.Names
	}
	shares.Moved = s.Replicas.IsElsewhere
}

// setConversation sets up the talk with agents, and the comments that become prompts.
func (s *Server) setConversation(parts *executor.Executor, find *lookup.Lookup) *conversation.Talk {
	said := &conversation.Talk{Executor: s.Executor, Prompts: &parts.Prompts, Find: find, Named: s.web.Named}
	if s.Names != nil {
		said.Names, s.web.Names = s.Names, s.Names
	}
	if s.Comments == nil && s.Executor != nil {
		s.Comments = comment.NewComments(s.Executor, said, find, s.Executor.Bot, s.Now)
	}
	if s.Comments != nil {
		s.Comments.OnChange(s.web.Named)
	}
	s.web.Comments, s.mcp.Comments = s.Comments, s.Comments
	return said
}

// setDefaults gives the options that are not set their defaults.
func (s *Server) setDefaults() {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Streams == 0 {
		s.Streams = 256
	}
	if s.Heartbeat == 0 {
		s.Heartbeat = 15 * time.Second
	}
}

// setMux makes the table of routes, with the checks of tokens, accounts and private workspaces.
func (s *Server) setMux(m *metrics) {
	s.mux = &route.Mux{URL: s.URL, Links: s.Links, Secrets: s.Secrets, Streams: s.Streams, Heartbeat: s.Heartbeat,
		Observe: m.request, Ended: s.ended, Log: s.Log, Now: s.Now}
	if s.Domain != nil {
		s.mux.API = s.Domain.API()
	}
	if s.Git != nil {
		s.mux.Verify, s.mux.IsPublic = s.Git.Verify, s.isPublic
	}
	if s.Privacy != nil {
		s.mux.Veil, s.mux.Changed, s.mux.Gone = s.Privacy.Veil, s.Privacy.Changed, s.gone
	}
	if s.People != nil {
		s.mux.Account, s.mux.Again, s.mux.Audit = s.People.Account, s.People.Again, s.People.Audit
	}
	if s.Replicas != nil {
		s.connectReplicas()
	}
}

// newDesk returns the desk that asks the other replicas. It returns nil for the only server.
func (s *Server) newDesk() *gather.Desk {
	if s.Replicas == nil {
		return nil
	}
	desk := &gather.Desk{Name: s.Replicas.Group.Name, Others: s.Replicas, Veil: s.mux.Veil}
	s.Replicas.Desk = desk
	return desk
}

// shareTopics wakes open pages at changes of other replicas.
func shareTopics(desk *gather.Desk, pages *live.API) {
	if desk == nil {
		return
	}
	topics := gather.NewStream(desk, "topics", func(ctx context.Context, _ route.Who, _ struct{}, send func([]string) error) error {
		pages.Topics(ctx, send)
		return nil
	})
	pages.Others = func(ctx context.Context, wake func(topics ...string), lost func()) {
		topics.Follow(ctx, route.Who{}, struct{}{}, func(t []string) { wake(t...) }, lost)
	}
}

// connectReplicas has the home know people for all replicas.
func (s *Server) connectReplicas() {
	r := s.Replicas
	s.mux.Elsewhere = r.Elsewhere
	if r.Home != r.Group.Name {
		s.mux.Account, s.mux.Again, s.mux.Ended = r.Account, r.Again, r.Ended
		return
	}
	if s.People != nil {
		r.Sessions = &replica.Sessions{NewCall: s.mux.NewCall, Account: s.People.Account, Again: s.People.Again}
	}
}

// sharing returns the routes of links for people who do not sign in.
func (s *Server) sharing(find *lookup.Lookup) *share.API {
	api := &share.API{Store: s.Shares, Find: find, Timelines: &timeline.Timelines{Journals: s.Executor}, Links: s.Links, Loopback: s.Loopback,
		Now: s.Now}
	if s.Privacy != nil {
		api.Owner = func(c record.Caller) (string, bool) {
			r, _ := s.Privacy.Get(c)
			return r.Owner.ID, r.Private
		}
	}
	return api
}

// isPublic reports whether strangers may read a repository. It is [route.Mux.IsPublic].
func (s *Server) isPublic(name string) bool {
	r, err := s.Git.Repo(name)
	return err == nil && !lookup.IsOwnRepo(name) && r.IsPublic()
}

// openPagesForPeople has pages answer the sessions of people. Without people they answer tokens and the owner alone.
func (s *Server) openPagesForPeople() {
	if s.People == nil {
		return
	}
	s.web.Access, s.web.Write, s.web.Socket = route.AccessPage, route.AccessPage, route.AccessSocket
	s.web.SignOut, s.People.Home = signin.OutPath, "/dashboard"
	s.web.Ways = []web.Way{{Text: "Sign in", Href: route.SignInPath}}
	s.web.More = append(s.web.More,
		web.Settings{Title: "Browsers", Path: signin.SessionsPath, Icon: "lock", About: "Where you are signed in"},
		web.Settings{Title: "People", Path: signin.PeoplePath, Icon: "person",
			About: "The people who may sign in, and their roles", Admin: true},
		web.Settings{Title: "Actions", Path: signin.AuditPath, Icon: "pulse", About: "The log of the actions of people",
			Admin: true})
}
