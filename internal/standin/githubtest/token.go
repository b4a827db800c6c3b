package githubtest

import (
	"crypto/rand"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Granted has an installation's default permissions.
var Granted = map[string]string{"metadata": "read", "contents": "write", "pull_requests": "write", "issues": "write",
	"checks":   "write",
	"statuses": "write", "actions": "read", "members": "read", "administration": "read"}

// Enough is the default of the permissions that a token may request without a complaint.
var Enough = map[string]string{"metadata": "read", "contents": "write", "pull_requests": "write", "issues": "read",
	"checks":   "read",
	"statuses": "write", "actions": "read", "members": "read"}

// tokenLife is the lifetime of an installation's token.
const tokenLife = time.Hour

// actor is the owner of a token, with its permissions.
type actor struct {
	token string
	user  *user
	// app means that the token belongs to an installation, and acts as the App's bot.
	app bool
	// repos are the names of the repositories. Nil means all that the user can see.
	repos []string
	// permissions are those of the token. Nil means all permissions of the user (a classic token).
	permissions map[string]string
	expires     time.Time // zero means never
}

// may reports whether the token has a permission such as "contents=write".
func (a *actor) may(permission string) bool {
	if a.permissions == nil || permission == "metadata=read" { // all tokens have metadata=read
		return true
	}
	name, level, _ := strings.Cut(permission, "=")
	return rank(a.permissions[name]) >= rank(level)
}

// rank orders levels of permissions, and roles.
func rank(level string) int {
	return slices.Index([]string{"read", "triage", "write", "maintain", "admin"}, level) + 1
}

// AddToken makes a token for a user. With repositories and permissions (such as "contents": "write") it is a
// fine-grained one. With neither it has all permissions of the user.
func (s *Server) AddToken(login string, repos []string, permissions map[string]string) string {
	prefix := "ghp_"
	if permissions != nil {
		prefix = "github_pat_"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token(prefix, &actor{user: s.user(login, "User"), repos: repos, permissions: permissions}).token
}

// SetToken makes a given text a user's classic token.
func (s *Server) SetToken(login, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.tokens[text] = &actor{token: text, user: s.user(login, "User")}
}

// Revoke revokes a token at once, as an owner or GitHub may do.
func (s *Server) Revoke(text string) {
	s.mu.Lock()
	delete(s.state.tokens, text)
	s.mu.Unlock()
}

// token makes a token for an actor. s.mu is held.
func (s *Server) token(prefix string, a *actor) *actor {
	a.token = prefix + rand.Text() + rand.Text()[:10]
	s.state.tokens[a.token] = a
	return a
}

// Minted returns the number of the App's tokens so far.
func (s *Server) Minted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.state.minted)
}

// Tokens returns all valid tokens, including those of users.
func (s *Server) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.state.tokens))
}

// credential returns a request's token or assertion.
func credential(r *http.Request) string {
	kind, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch strings.ToLower(kind) {
	case "bearer", "token":
		return strings.TrimSpace(text)
	case "basic":
		if user, password, ok := r.BasicAuth(); ok && password != "" {
			return password
		} else if ok {
			return user
		}
	}
	return ""
}

// actor returns the owner of a token, or nil if the token is unknown. s.mu is held.
func (s *Server) actor(token string) *actor {
	a := s.state.tokens[token]
	if a == nil || !a.expires.IsZero() && !s.Now().Before(a.expires) {
		return nil
	}
	return a
}

// asserted checks the App's assertion as GitHub documents it. It returns GitHub's complaint, or "".
func (s *Server) asserted(text string) string {
	if text == "" {
		return "A JSON web token could not be decoded"
	}
	var c jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return &s.Key.PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(strconv.FormatInt(s.App, 10)), jwt.WithIssuedAt(),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(s.Now))
	switch {
	case err != nil:
		return "A JSON web token could not be decoded: " + err.Error()
	case c.IssuedAt == nil:
		return "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
	case c.ExpiresAt.Sub(s.Now()) > 10*time.Minute:
		return "'Expiration time' claim ('exp') is too far in the future"
	}
	return ""
}

// mint is POST /app/installations/ID/access_tokens.
func (c *call) mint() answer {
	s := c.s
	if c.value("installation_id") != strconv.FormatInt(s.Installation, 10) {
		s.complain("installation %s", c.value("installation_id"))
		return refused(http.StatusNotFound, "Not Found")
	}
	var ask struct {
		Repositories  []string          `json:"repositories"`
		RepositoryIDs []int64           `json:"repository_ids"`
		Permissions   map[string]string `json:"permissions"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	names := slices.Clone(ask.Repositories)
	for _, id := range ask.RepositoryIDs {
		found := false
		for name, r := range s.state.repos {
			if found = r.id == id; found {
				names = append(names, name)
				break
			}
		}
		if !found {
			names = append(names, "")
		}
	}
	var list []any
	for _, name := range names {
		r := s.repo(name)
		if r == nil {
			return refused(http.StatusUnprocessableEntity,
				"There is at least one repository that does not exist or is not accessible to the parent installation.")
		}
		list = append(list, s.repoObject(r))
	}
	granted := map[string]string{"metadata": "read"}
	for name, level := range ask.Permissions {
		if rank(level) == 0 || rank(level) > rank(s.Permissions[name]) {
			s.complain("a token was asked for with %s=%s, which the installation has not got", name, level)
			return refused(http.StatusUnprocessableEntity, "The permissions requested are not granted to this installation.")
		}
		if rank(level) > rank(s.Needed[name]) {
			s.complain("a token was asked for with %s=%s, which is more than is needed", name, level)
		}
		granted[name] = level
	}
	if ask.Permissions == nil {
		granted = s.Permissions
		s.complain("a token was asked for with all permissions of the installation")
	}
	// A token that may only read names may cover all repositories.
	if listing := len(ask.Permissions) == 1 && ask.Permissions["metadata"] == "read"; len(names) != 1 && !listing {
		s.complain("a token was asked for %d repositories (0: all), not for one", len(names))
	}
	if len(names) == 0 {
		names = nil
	}
	t := s.token("ghs_", &actor{user: s.user(s.bot(), "Bot"), app: true, repos: names, permissions: granted,
		expires: s.Now().Add(tokenLife).UTC().Truncate(time.Second)})
	s.state.minted = append(s.state.minted, t.token)
	o := object{"token": t.token, "expires_at": stamp(t.expires), "permissions": granted, "repository_selection": "all"}
	if names != nil {
		o["repository_selection"], o["repositories"] = "selected", list
	}
	return created(o)
}

// app is GET /app.
func (c *call) app() answer { return ok(c.s.appObject(true)) }

// appObject returns the JSON of the App. s.mu is held.
func (s *Server) appObject(whole bool) object {
	o := object{"id": s.App, "slug": s.Slug, "node_id": node("A", s.App), "client_id": "Iv1.standin",
		"owner": s.userObject(s.user(s.Account, "Organization")),
		"name":  s.Slug, "description": "", "external_url": "https://example.org", "html_url": s.URL() + "/apps/" + s.Slug,
		"created_at": epoch, "updated_at": epoch, "permissions": s.Permissions, "events": events}
	if whole {
		o["installations_count"] = 1
	}
	return o
}

// installationObject returns the JSON of the installation. s.mu is held.
func (s *Server) installationObject() object {
	return object{"id": s.Installation, "account": s.userObject(s.user(s.Account, "Organization")),
		"repository_selection": "all",
		"access_tokens_url":    s.API() + "app/installations/" + strconv.FormatInt(s.Installation, 10) + "/access_tokens",
		"repositories_url":     s.API() + "installation/repositories", "html_url": s.URL() + "/organizations/" +
			s.Account + "/settings/installations/" + strconv.FormatInt(s.Installation, 10),
		"app_id": s.App, "app_slug": s.Slug, "target_id": s.user(s.Account, "Organization").id,
		"target_type": "Organization", "permissions": s.Permissions,
		"events": events, "created_at": epoch, "updated_at": epoch, "single_file_name": nil, "suspended_at": nil,
		"suspended_by": nil}
}

func (c *call) installations() answer { return c.page([]any{c.s.installationObject()}) }

func (c *call) installation() answer {
	if id := c.value("installation_id"); id != "" && id != strconv.FormatInt(c.s.Installation, 10) {
		return refused(http.StatusNotFound, "Not Found")
	}
	return ok(c.s.installationObject())
}
