// Package githubtest is a stand-in of GitHub: the part of its API that gives
// installation tokens to Apps, and repositories over smart HTTP that ask for
// them. It refuses what GitHub refuses, remembers what it was asked for, and can
// be slow, overworked or away.
package githubtest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ramus-dev/ramus/gitd"
)

// Server is the stand-in, with one App that is installed in one account. Its
// exported fields are its options and may be changed until Start.
type Server struct {
	// Root has the account's repositories: ACCOUNT/NAME.git, bare. Required.
	Root string
	// App and Installation are the ids; default 12 and 34.
	App, Installation int64
	// Account owns the repositories; default "acme".
	Account string
	// Key is the App's private key, made when nil.
	Key *rsa.PrivateKey
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	http *httptest.Server
	git  *gitd.Server

	mu         sync.Mutex // guards all below
	weather    Weather
	tokens     map[string]grant
	minted     int
	complaints []string
}

// Weather is what a caller has to cope with.
type Weather struct {
	// Down: everything is answered 503.
	Down bool
	// Limited: the API answers 429 with this Retry-After, in whole seconds.
	Limited time.Duration
	// Slow holds every answer until it is closed; nil: none.
	Slow <-chan struct{}
}

type grant struct {
	repos   []string
	expires time.Time
}

// Start begins to serve on loopback.
func (s *Server) Start(ctx context.Context) (err error) {
	if s.App == 0 {
		s.App = 12
	}
	if s.Installation == 0 {
		s.Installation = 34
	}
	if s.Account == "" {
		s.Account = "acme"
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Key == nil {
		if s.Key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			return err
		}
	}
	s.tokens = make(map[string]grant)
	s.git = &gitd.Server{Root: s.Root, Anonymous: true, OwnConfig: true}
	if err := s.git.Open(ctx); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /app/installations/{id}/access_tokens", s.mint)
	mux.Handle("/"+s.Account+"/", s.repositories(s.git.Handler()))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { refuse(w, http.StatusNotFound, "Not Found") })
	s.http = httptest.NewServer(s.under(mux))
	return nil
}

// Close ends it and everything that is being answered.
func (s *Server) Close() error {
	s.Set(Weather{})
	s.http.CloseClientConnections()
	s.http.Close()
	return s.git.Close()
}

// URL is the address of the API and of the repositories.
func (s *Server) URL() string { return s.http.URL }

// Upstream is a repository's clone URL.
func (s *Server) Upstream(name string) string {
	return s.http.URL + "/" + s.Account + "/" + name + ".git"
}

// Set changes the weather.
func (s *Server) Set(w Weather) {
	s.mu.Lock()
	s.weather = w
	s.mu.Unlock()
}

// Minted is how many tokens were given out, Tokens are their texts.
func (s *Server) Minted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.minted
}

// Tokens are all tokens that were given out.
func (s *Server) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for t := range s.tokens {
		list = append(list, t)
	}
	return list
}

// Complaints are what callers did wrong.
func (s *Server) Complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.complaints)
}

func (s *Server) complain(format string, args ...any) {
	s.mu.Lock()
	s.complaints = append(s.complaints, fmt.Sprintf(format, args...))
	s.mu.Unlock()
}

// under is what the weather does to a request.
func (s *Server) under(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		now := s.weather
		s.mu.Unlock()
		if now.Slow != nil {
			select {
			case <-now.Slow:
			case <-r.Context().Done():
				return
			}
		}
		switch api := strings.HasPrefix(r.URL.Path, "/app/"); {
		case now.Down:
			refuse(w, http.StatusServiceUnavailable, "Service unavailable")
		case api && now.Limited > 0:
			w.Header().Set("Retry-After", strconv.Itoa(int(now.Limited/time.Second)))
			refuse(w, http.StatusTooManyRequests, "You have exceeded a secondary rate limit")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
}

// asserted checks the App's assertion as GitHub documents it; the result is
// GitHub's complaint, or empty.
func (s *Server) asserted(r *http.Request) string {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
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
func (s *Server) mint(w http.ResponseWriter, r *http.Request) {
	if complaint := s.asserted(r); complaint != "" {
		s.complain("assertion: %s", complaint)
		refuse(w, http.StatusUnauthorized, complaint)
		return
	}
	if r.PathValue("id") != strconv.FormatInt(s.Installation, 10) {
		s.complain("installation %s", r.PathValue("id"))
		refuse(w, http.StatusNotFound, "Not Found")
		return
	}
	var ask struct {
		Repositories []string          `json:"repositories"`
		Permissions  map[string]string `json:"permissions"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&ask); err != nil {
		s.complain("body: %v", err)
		refuse(w, http.StatusBadRequest, "Problems parsing JSON")
		return
	}
	for _, name := range ask.Repositories {
		if _, err := s.git.Repo(s.Account + "/" + name); err != nil {
			refuse(w, http.StatusUnprocessableEntity, "There is at least one repository that does not exist or is not accessible to the parent installation.")
			return
		}
	}
	if len(ask.Repositories) == 0 || len(ask.Permissions) != 1 || ask.Permissions["contents"] != "read" {
		s.complain("more was asked for than needed: %+v", ask)
	}
	token, expires := "ghs_"+rand.Text()+rand.Text()[:10], s.Now().Add(time.Hour).UTC().Truncate(time.Second)
	s.mu.Lock()
	s.minted++
	s.tokens[token] = grant{ask.Repositories, expires}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_at": expires.Format(time.RFC3339), "permissions": ask.Permissions,
		"repository_selection": "selected"})
}

// repositories asks git clients for a token.
func (s *Server) repositories(git http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "ghs_") || strings.Contains(r.URL.Path, "ghs_") {
			s.complain("a token in the URL %s", r.URL.Path)
		}
		user, token, ok := r.BasicAuth()
		s.mu.Lock()
		g, known := s.tokens[token]
		s.mu.Unlock()
		name := strings.TrimPrefix(r.URL.Path, "/"+s.Account+"/")
		name, _, _ = strings.Cut(name, ".git/")
		switch {
		case !ok || user != "x-access-token" || !known || !s.Now().Before(g.expires):
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
			refuse(w, http.StatusUnauthorized, "Bad credentials")
		case !slices.Contains(g.repos, name):
			refuse(w, http.StatusNotFound, "Repository not found.")
		case strings.Contains(r.URL.Path+r.URL.RawQuery, "git-receive-pack"):
			refuse(w, http.StatusForbidden, "Write access to repository not granted.")
		default:
			r.Header.Del("Authorization")
			git.ServeHTTP(w, r)
		}
	})
}

// Dir is where a repository lies.
func (s *Server) Dir(name string) string { return filepath.Join(s.Root, s.Account, name+".git") }
