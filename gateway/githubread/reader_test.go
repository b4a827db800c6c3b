package githubread

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
)

// visitor is a container of the repository with its name.
type visitor struct {
	repo string
	told []record.Event
}

func (v *visitor) Repo() string        { return v.repo }
func (v *visitor) Tell(e record.Event) { v.told = append(v.told, e) }

// tokens is a source of a token. It keeps what was asked and forgotten.
type tokens struct {
	err       error
	asked     []github.Access
	forgotten []string
}

func (t *tokens) Token(_ context.Context, _ forge.Name, a github.Access) (string, error) {
	t.asked = append(t.asked, a)
	return "s3cret", t.err
}

func (t *tokens) Forget(token string) { t.forgotten = append(t.forgotten, token) }

// site is an API of GitHub with one answer.
type site struct {
	answer func(w http.ResponseWriter, r *http.Request)

	mu     sync.Mutex // guards all below; an answer that is cut off ends before its handler
	got    []*http.Request
	bodies []string
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.got, s.bodies = append(s.got, r), append(s.bodies, string(body))
	s.mu.Unlock()
	if s.answer != nil {
		s.answer(w, r)
	}
}

func (s *site) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// open returns a reader of the repository app at a site. enterprise is the host of the site, or "" for github.com.
func open(t *testing.T, enterprise string) (*Reader, *site, *tokens) {
	t.Helper()
	s, k := &site{}, &tokens{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	r := &Reader{API: server.URL + "/", Tokens: k, Log: slog.New(slog.DiscardHandler),
		Upstream: func(repo string) (forge.Name, bool) { return app, repo == "app" }}
	if enterprise != "" {
		r.Web, r.API = &url.URL{Scheme: "https", Host: enterprise}, server.URL+"/api/v3/"
	}
	return r, s, k
}

// ask sends a request as gh does, and returns the answer and its message.
func ask(t *testing.T, r *Reader, v *visitor, method, target, text string, headers ...string) (*http.Response, string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, "http://door"+target, strings.NewReader(text))
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	r.Handler(v).ServeHTTP(w, req)
	var problem struct{ Message string }
	_ = json.Unmarshal(w.Body.Bytes(), &problem)
	if problem.Message == "" {
		problem.Message = w.Body.String()
	}
	return w.Result(), problem.Message
}

// TestForward sends allowed requests to the paths of both kinds of sites.
func TestForward(t *testing.T) {
	allowed := string(body(`{repository(owner: "acme", name: "app") {id}}`))
	for _, c := range []struct {
		name, enterprise, method, target, body string
		want                                   string // method and address at the site
	}{
		{"path", "", "GET", "/repos/acme/app/pulls?state=open&q=a%20b", "", "GET /repos/acme/app/pulls?state=open&q=a%20b"},
		{"head", "", "HEAD", "/repos/acme/app", "", "HEAD /repos/acme/app"},
		{"query", "", "POST", "/graphql", allowed, "POST /graphql"},
		{"path of an enterprise", "ghe.example", "GET", "/api/v3/repos/acme/app/issues/7", "", "GET /api/v3/repos/acme/app/issues/7"},
		{"query of an enterprise", "ghe.example", "POST", "/api/graphql", allowed, "POST /api/graphql"},
		{"github.com in capitals", "GitHub.com", "GET", "/repos/acme/app/pulls", "", "GET /api/v3/repos/acme/app/pulls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s, k := open(t, c.enterprise)
			s.answer = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Etag", "e1")
				w.Header().Set("Set-Cookie", "a=b")
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, "answer")
			}
			v := &visitor{repo: "app"}
			resp, text := ask(t, r, v, c.method, c.target, c.body,
				"Authorization", "token none", "Accept", "a/b", "If-None-Match", "e0", "Cookie", "c=d", "X-Other", "x")
			if resp.StatusCode != http.StatusTeapot || c.method != "HEAD" && text != "answer" || resp.Header.Get("Etag") != "e1" ||
				resp.Header.Get("Set-Cookie") != "" {
				t.Errorf("%d %q %v", resp.StatusCode, text, resp.Header)
			}
			if len(s.requests()) != 1 {
				t.Fatalf("%d requests", len(s.requests()))
			}
			got := s.requests()[0]
			if at := got.Method + " " + got.URL.String(); at != c.want || s.bodies[0] != c.body {
				t.Errorf("%s with %q, want %s", at, s.bodies[0], c.want)
			}
			for key, want := range map[string]string{"Authorization": "Bearer s3cret", "Accept": "a/b", "If-None-Match": "e0",
				"Cookie": "", "X-Other": "", "User-Agent": "ramus"} {
				if value := got.Header.Get(key); value != want {
					t.Errorf("%s: %q, want %q", key, value, want)
				}
			}
			if !slices.Equal(k.asked, []github.Access{github.AccessInspect}) || len(k.forgotten) > 0 {
				t.Errorf("%v asked, %v forgotten", k.asked, k.forgotten)
			}
			if len(v.told) != 1 || v.told[0].Type != record.EventEgress || v.told[0].Reason != "allowed" || v.told[0].Message != r.host() {
				t.Errorf("journal: %+v", v.told)
			}
		})
	}
}

// TestRefuse sends requests that do not reach the site.
func TestRefuse(t *testing.T) {
	query := func(n int) string { // of n bytes
		text := string(body(`{viewer {login}}`))
		return text + strings.Repeat(" ", n-len(text))
	}
	for _, c := range []struct {
		name, enterprise, method, target, body string
		status                                 int
		want                                   string
	}{
		{"write", "", "POST", "/repos/acme/app/pulls", "{}", 403, "may only read acme/app, and not POST"},
		{"delete", "", "DELETE", "/repos/acme/app", "", 403, "and not DELETE"},
		{"another repository", "", "GET", "/repos/acme/web/pulls", "", 403, `may not read "/repos/acme/web/pulls"`},
		{"user", "", "GET", "/user", "", 403, "may not read"},
		{"step", "", "GET", "/repos/acme/app/pulls/%2e%2e/hooks", "", 403, "may not read"},
		{"GraphQL by GET", "", "GET", "/graphql", "", 405, "GraphQL needs POST"},
		{"mutation", "", "POST", "/graphql", string(body(`mutation {a}`)), 403, "a mutation is not allowed"},
		{"long query", "", "POST", "/graphql", query(maxQuery + 1), 413, "a query may have 65536 bytes"},
		{"path of github.com", "ghe.example", "GET", "/repos/acme/app/pulls", "", 403, "may not read"},
		{"query of github.com", "ghe.example", "POST", "/graphql", query(100), 403, "and not POST"},
		{"another version", "ghe.example", "GET", "/api/v4/repos/acme/app", "", 403, "may not read"},
		{"path of an enterprise", "", "GET", "/api/v3/repos/acme/app", "", 403, "may not read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s, k := open(t, c.enterprise)
			v := &visitor{repo: "app"}
			resp, text := ask(t, r, v, c.method, c.target, c.body)
			if resp.StatusCode != c.status || !strings.HasPrefix(text, "ramus: ") || !strings.Contains(text, c.want) {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, text, c.status, c.want)
			}
			if len(s.requests()) > 0 || len(k.asked) > 0 {
				t.Error("the site or its token is asked")
			}
			if len(v.told) != 1 || v.told[0].Reason != record.EgressRefused {
				t.Errorf("journal: %+v", v.told)
			}
		})
	}

	r, s, _ := open(t, "")
	if resp, _ := ask(t, r, &visitor{repo: "app"}, "POST", "/graphql", query(maxQuery)); resp.StatusCode != 200 ||
		len(s.requests()) != 1 {
		t.Errorf("the longest query: %d", resp.StatusCode)
	}
	other := &visitor{repo: "other"}
	if resp, text := ask(t, r, other, "GET", "/repos/acme/app", ""); resp.StatusCode != 404 || text != "ramus: this repository is not at GitHub" || len(other.told) > 0 {
		t.Errorf("a repository that is not at GitHub: %d %s, %+v", resp.StatusCode, text, other.told)
	}
}

// TestAnswers passes on some answers of the site, and refuses others.
func TestAnswers(t *testing.T) {
	status := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		}
	}
	long := func(n int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, n)) }
	}
	for _, c := range []struct {
		name      string
		answer    func(http.ResponseWriter, *http.Request)
		status    int
		want      string // in the message; empty means that the answer is passed on
		reason    string
		forgotten bool
	}{
		{"success", status(200), 200, "", "allowed", false},
		{"not found", status(404), 404, "", "allowed", false},
		{"not modified", status(304), 304, "", "allowed", false},
		{"server error", status(500), 500, "", "allowed", false},
		{"several choices", status(300), 403, "a redirect to another address", record.EgressRefused, false},
		{"redirect", status(302), 403, "a redirect to another address", record.EgressRefused, false},
		{"last redirect", status(399), 403, "a redirect to another address", record.EgressRefused, false},
		{"bad request", status(400), 400, "", "allowed", false},
		{"token is refused", status(401), 502, "did not accept the token of ramus", record.EgressRefused, true},
		{"longest", long(maxAnswer), 200, "", "allowed", false},
		{"too long", long(maxAnswer + 1), 502, "larger than 32 MiB", record.EgressRefused, false},
		{"connection ends", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502,
			"GitHub did not answer; try again later", "allowed", false},
		{"body ends", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "a")
		}, 502, "GitHub did not answer", "allowed", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s, k := open(t, "")
			s.answer = c.answer
			v := &visitor{repo: "app"}
			resp, text := ask(t, r, v, "GET", "/repos/acme/app/pulls", "")
			if resp.StatusCode != c.status || !strings.Contains(text, c.want) || strings.HasPrefix(text, "ramus: ") != (c.want != "") {
				t.Errorf("%d %.100q, want %d %q", resp.StatusCode, text, c.status, c.want)
			}
			if forgotten := slices.Equal(k.forgotten, []string{"s3cret"}); forgotten != c.forgotten ||
				len(s.requests()) > 2 {
				t.Errorf("%q are forgotten after %d requests", k.forgotten, len(s.requests()))
			}
			if len(v.told) != 1 || v.told[0].Reason != c.reason {
				t.Errorf("journal: %+v", v.told)
			}
		})
	}

	r, s, k := open(t, "")
	k.err = errors.New("no installation")
	if resp, text := ask(t, r, &visitor{repo: "app"}, "GET", "/repos/acme/app", ""); resp.StatusCode != 502 ||
		len(s.requests()) > 0 {
		t.Errorf("without a token: %d %s", resp.StatusCode, text)
	}
	r, s, _ = open(t, "")
	r.Tokens, s.answer = github.Token("fixed"), status(401)
	if resp, text := ask(t, r, &visitor{repo: "app"}, "GET", "/repos/acme/app", ""); resp.StatusCode != 502 || !strings.Contains(text, "did not accept") {
		t.Errorf("a token that cannot be forgotten: %d %s", resp.StatusCode, text)
	}
	r, s, _ = open(t, "")
	r.HTTP = &http.Client{Transport: failing{}}
	if resp, _ := ask(t, r, &visitor{repo: "app"}, "GET", "/repos/acme/app", ""); resp.StatusCode != 502 ||
		len(s.requests()) > 0 {
		t.Errorf("the client of the field HTTP is not used: %d", resp.StatusCode)
	}
}

// failing is a transport that never reaches a site.
type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no network") }

// TestEnv names the site and the repository for gh.
func TestEnv(t *testing.T) {
	for _, c := range []struct {
		web, prefix string
		env         []string // besides those of every site
	}{
		{"", "api.github.com/", []string{"GH_TOKEN=none", "GH_REPO=acme/app"}},
		{"https://GitHub.com", "api.github.com/", []string{"GH_TOKEN=none", "GH_REPO=acme/app"}},
		{"https://ghe.example", "ghe.example/api/",
			[]string{"GH_HOST=ghe.example", "GH_ENTERPRISE_TOKEN=none", "GH_REPO=ghe.example/acme/app"}},
	} {
		r, _, _ := open(t, "")
		if c.web != "" {
			u, err := url.Parse(c.web)
			if err != nil {
				t.Fatal(err)
			}
			r.Web = u
		}
		want := append([]string{"GH_NO_UPDATE_NOTIFIER=1", "GH_PROMPT_DISABLED=1"}, c.env...)
		if got := r.Env("app"); !slices.Equal(got, want) || r.Prefix() != c.prefix {
			t.Errorf("%q: %q and %q, want %q and %q", c.web, got, r.Prefix(), want, c.prefix)
		}
		if got := r.Env("other"); got != nil {
			t.Errorf("a repository that is not at GitHub has %q", got)
		}
	}
}

// TestQueryBounds checks depth and number of the fields of queries.
func TestQueryBounds(t *testing.T) {
	// The repository is at depth 1, and each element of a path one deeper.
	nested := func(n int) string {
		return `{repository(owner: "acme", name: "app") ` + strings.Repeat("{commit ", n) + "{id}" + strings.Repeat("}", n) + "}"
	}
	for _, c := range []struct {
		name, text string
		want       string // empty if it is allowed
	}{
		{"deepest", nested(maxDepth - 2), ""},
		{"too deep", nested(maxDepth - 1), "nested deeper than 24"},
		{"deepest names", `{viewer ` + strings.Repeat("{user ", maxDepth-2) + "{id}" + strings.Repeat("}", maxDepth-2) + "}", ""},
		{"too deep names", `{viewer ` + strings.Repeat("{user ", maxDepth-1) + "{id}" + strings.Repeat("}", maxDepth-1) + "}", "nested deeper"},
		{"too deep fragments", `{` + strings.Repeat("... {", maxDepth) + "viewer {id}" + strings.Repeat("}", maxDepth) + "}", "nested deeper"},
		{"most fields", `{viewer {` + strings.Repeat("id ", maxFields-1) + `}}`, ""},
		{"too many fields", `{viewer {` + strings.Repeat("id ", maxFields) + `}}`, "more than 4000 fields"},
		{"type names", `{__typename repository(owner: "acme", name: "app") {__typename owner {__typename}}}`, ""},
		{"block text", `{repository(owner: """acme""", name: "app") {id}}`, ""},
		{"a number for a name", `{repository(owner: "acme", name: 1) {id}}`, "only the repository"},
		{"a variable without a value", `query($r: String) {repository(owner: "acme", name: $r) {id}}`, "only the repository"},
	} {
		if err := allowQuery(body(c.text), app); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
