package signin

import (
	"log/slog"
	"time"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gitd"
)

// API is the routes of tokens, people, sessions and of signing in. Its fields are its options.
type API struct {
	// Git signs the grants of tokens.
	Git *gitd.Server
	// GitHub lets people in by GitHub. Nil lets nobody in by it.
	GitHub *GitHub
	// People lets people in with a session. Nil lets nobody in, such as in a server that ends with its command.
	People *People
	// Accounts has the people, also if People is nil.
	Accounts *account.Store
	// Web writes pages. It is required if People is not nil.
	Web *web.API
	// Loopback is where a browser on this machine reaches this server if it has no URL. Empty means nowhere.
	Loopback string
	Log      *slog.Logger
	Now      func() time.Time
}

// NewAPI returns the routes of an API.
func NewAPI(api API) *API {
	if api.People != nil {
		api.People.github = api.GitHub
	}
	if api.Git != nil && api.Log != nil {
		if err := endAmbiguousTokens(api.Git); err != nil {
			api.Log.Error("cannot revoke the tokens of logins that are numbers", "err", err)
		}
	}
	return &api
}

// Routes returns the routes.
func (api *API) Routes() []route.Route {
	return append(api.pageRoutes(), []route.Route{
		{Method: "POST", Pattern: "/api/tokens", Access: route.AccessAdmin, Summary: "Make a token",
			Request: NewToken{}, Response: Token{}, Handle: api.newToken},
		{Method: "GET", Pattern: githubPath, Access: route.AccessPublic, Media: route.MediaHTML,
			Summary: "Sign in with GitHub: sends a browser there",
			Query:   beginQuery{}, Handle: api.signIn},
		{Method: "GET", Pattern: githubCallback, Access: route.AccessPublic, Media: route.MediaHTML,
			Summary: "Where GitHub sends the browser back: a session, or a token as JSON", Handle: api.signedIn},
		{Method: "GET", Pattern: oidcPath, Access: route.AccessPublic, Media: route.MediaHTML,
			Summary: "Sign in with OpenID Connect: sends a browser to the provider", Query: beginQuery{},
			Handle: api.beginOIDC},
		{Method: "GET", Pattern: oidcCallback, Access: route.AccessPublic, Media: route.MediaHTML,
			Summary: "Where the provider of OpenID Connect sends the browser back: a session", Handle: api.finishOIDC},
		{Method: "GET", Pattern: linkPath, Access: route.AccessPublic, Media: route.MediaHTML,
			Summary: "The link that signs in the owner of the data folder, once", Handle: api.followLink},
		{Method: "POST", Pattern: "/api/sign-in/link", Access: route.AccessAdmin,
			Summary: "Make a link that signs in the owner of the data folder, once; at the unix socket only",
			Request: NewLink{}, Response: Link{}, Handle: api.newLink},
		{Method: "GET", Pattern: "/api/people", Access: route.AccessAdmin,
			Summary:  "The people who have signed in, with their roles",
			Response: []Person{}, Handle: api.listPeople},
		{Method: "PATCH", Pattern: "/api/people/{person}", Access: route.AccessAdmin,
			Summary: "Change the roles of a person",
			Request: NewRoles{}, Response: Person{}, Handle: api.changePerson},
		{Method: "DELETE", Pattern: "/api/people/{person}", Access: route.AccessAdmin,
			Summary:  "Remove a person, and end their sessions",
			Response: Ended{}, Handle: api.removePerson},
		{Method: "GET", Pattern: "/api/sessions", Access: route.AccessAdmin, Summary: "The browsers that are signed in",
			Query: sessionsQuery{}, Response: []session.Session{}, Handle: api.listSessions},
		{Method: "DELETE", Pattern: "/api/sessions", Access: route.AccessAdmin, Summary: "End all sessions of a person",
			Query: sessionsQuery{}, Response: Ended{}, Handle: api.endSessions},
		{Method: "DELETE", Pattern: "/api/sessions/{session}", Access: route.AccessAdmin, Summary: "End a session",
			Response: Ended{}, Handle: api.endSession},
	}...)
}

// beginQuery is the query of the beginning of a sign-in.
type beginQuery struct {
	To    string `json:"to,omitempty" jsonschema:"the path of this server to come back to"`
	Again string `json:"again,omitempty" jsonschema:"1 asks for the password, at a provider that can"`
	For   string `json:"for,omitempty" jsonschema:"token, for a token instead of a session"`
}
