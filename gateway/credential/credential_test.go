package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// The callers of the tests.
var (
	admin = route.Who{Subject: "admin", Repo: "*", Scopes: []string{gitd.ScopeAdmin}}
	ada   = route.NewWho(route.Account{ID: "github:1", Login: "ada", Role: route.RoleMember})
	eve   = route.NewWho(route.Account{ID: "github:2", Login: "eve", Role: route.RoleMember})
)

// server serves credentials, and has the log of actions.
type server struct {
	*testing.T
	api   *API
	log   []string // "ACTION OBJECT"
	audit error    // that the log returns
}

func open(t *testing.T) *server {
	store := &secret.Store{Box: &sealed.Box{Dir: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "seal.key")}}
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	return &server{T: t, api: &API{Store: store}}
}

// ask returns the status and the body of the answer to a caller.
func (s *server) ask(w route.Who, method, path, body string) (int, string) {
	mux := &route.Mux{Audit: func(_ *route.Call, action, object, _ string) error {
		s.log = append(s.log, action+" "+object)
		return s.audit
	}}
	rec := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	mux.Handler(s.api.Routes(), &w).ServeHTTP(rec, r)
	return rec.Code, rec.Body.String()
}

// list returns the owners and names of the credentials of an answer, in order.
func (s *server) list(w route.Who, query string) []string {
	s.Helper()
	status, body := s.ask(w, "GET", "/api/credentials"+query, "")
	var all []secret.Secret
	if err := json.Unmarshal([]byte(body), &all); status != 200 || err != nil {
		s.Fatalf("%q: %d %s", query, status, body)
	}
	names := []string{}
	for _, x := range all {
		names = append(names, string(x.Owner)+" "+x.Name)
	}
	slices.Sort(names)
	return names
}

// id returns the id of a credential.
func (s *server) id(o secret.Owner, name string) string {
	s.Helper()
	x, err := s.api.Store.Find(o, name)
	if err != nil {
		s.Fatal(err)
	}
	return x.ID
}

// TestOwners checks who may store credentials for whom, and that the log has each.
func TestOwners(t *testing.T) {
	for _, c := range []struct {
		name   string
		who    route.Who
		owner  string
		status int
		want   string // part of the body, or the owner
	}{
		{"an administrator without an owner", admin, "", 201, "server"},
		{"a member without an owner", ada, "", 201, "person:github:1"},
		{"me", ada, "me", 201, "person:github:1"},
		{"an administrator as me", admin, "me", 201, "person:admin"},
		{"an own id", ada, "person:github:1", 201, "person:github:1"},
		{"a repository", admin, "repo:app", 201, "repo:app"},
		{"an unknown repository", admin, "repo:none", 404, "no repository"},
		{"me at the socket", route.Local, "me", 400, "nobody is"},
		{"the server at the socket", route.Local, "", 201, "server"},
		{"the server by a member", ada, "server", 403, "may not see or change the credentials of server"},
		{"a repository by a member", ada, "repo:app", 403, "may not see"},
		{"somebody else", ada, "person:github:2", 403, "may not see"},
		{"somebody else by an administrator", admin, "person:github:2", 201, "person:github:2"},
		{"a run", admin, "run:app/1", 400, "come with the request"},
		{"no owner", admin, "team:a", 400, "owner"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			s.api.HasRepo = func(name string) error {
				if name != "app" {
					return route.NotFound("repository", name)
				}
				return nil
			}
			status, body := s.ask(c.who, "POST", "/api/credentials", fmt.Sprintf(
				`{"owner":%q,"credentials":[{"name":"KEY","value":"0123456789abcdef","hosts":["a.org"]}]}`, c.owner))
			if status != c.status || !strings.Contains(body, c.want) || strings.Contains(body, "0123456789abcdef") {
				t.Fatalf("%d %s, want %d %s", status, body, c.status, c.want)
			}
			kept := s.list(admin, "")
			if c.status != 201 {
				if len(kept) > 0 || len(s.log) > 0 {
					t.Errorf("after a refusal: %q, log %q", kept, s.log)
				}
				return
			}
			if want := []string{c.want + " KEY"}; !slices.Equal(kept, want) || !slices.Equal(s.log, []string{"credential.set " + want[0]}) {
				t.Errorf("%q, log %q, want %q", kept, s.log, want)
			}
		})
	}
	s := open(t) // without HasRepo, any repository is one
	if status, body := s.ask(admin, "POST", "/api/credentials", `{"owner":"repo:x","dotenv":"A_B=0123456789"}`); status != 201 {
		t.Errorf("%d %s", status, body)
	}
}

// TestSeen checks who sees and changes which credentials.
func TestSeen(t *testing.T) {
	s := open(t)
	for owner, name := range map[secret.Owner]string{secret.OfServer: "S", secret.OfRepo("app"): "APP",
		secret.OfRepo("lib"): "LIB", secret.OfPerson("github:1"): "ADA", secret.OfPerson("github:2"): "EVE"} {
		if _, err := s.api.Store.Put([]secret.Secret{{Name: name, Owner: owner, Hosts: []string{"a.org"}}}, []string{"0123456789"}); err != nil {
			t.Fatal(err)
		}
	}
	everything := []string{"person:github:1 ADA", "person:github:2 EVE", "repo:app APP", "repo:lib LIB", "server S"}
	for _, c := range []struct {
		who   route.Who
		query string
		want  []string
	}{
		{admin, "", everything}, {route.Local, "", everything}, {ada, "", everything[:1]}, {eve, "", everything[1:2]},
		{admin, "?owner=server", everything[4:]}, {admin, "?owner=person:github:2", everything[1:2]},
		{ada, "?owner=me", everything[:1]}, {admin, "?repo=app", []string{"repo:app APP", "server S"}},
		{admin, "?repo=app&owner=repo:app", []string{"repo:app APP"}}, {ada, "?repo=app", []string{}},
		{admin, "?repo=app&owner=repo:lib", []string{}},
	} {
		if got := s.list(c.who, c.query); !slices.Equal(got, c.want) {
			t.Errorf("%s%s: %q, want %q", c.who.Subject, c.query, got, c.want)
		}
	}
	for query, want := range map[string]int{"?owner=server": 403, "?owner=person:github:2": 403, "?owner=x": 400, "?x=1": 400} {
		if status, body := s.ask(ada, "GET", "/api/credentials"+query, ""); status != want {
			t.Errorf("%s: %d %s, want %d", query, status, body, want)
		}
	}
	mine, hers := s.id(secret.OfPerson("github:1"), "ADA"), s.id(secret.OfPerson("github:2"), "EVE")
	for _, c := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"PATCH", "", `{"is_active":false}`}, {"POST", "/verify", ""}, {"DELETE", "", ""},
	} {
		if status, body := s.ask(ada, c.method, "/api/credentials/"+hers+c.path, c.body); status != 404 {
			t.Errorf("%s%s of somebody else: %d %s", c.method, c.path, status, body)
		}
		if status, body := s.ask(ada, c.method, "/api/credentials/none"+c.path, c.body); status != 404 {
			t.Errorf("%s%s of none: %d %s", c.method, c.path, status, body)
		}
	}
	if len(s.log) > 0 || !slices.Equal(s.list(admin, ""), everything) {
		t.Errorf("after refusals: %q, log %q", s.list(admin, ""), s.log)
	}
	if status, body := s.ask(ada, "GET", "/api/credentials/"+mine, ""); status != 200 || !strings.Contains(body, `"ADA"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.ask(admin, "DELETE", "/api/credentials/"+hers, ""); status != 200 || !slices.Equal(s.list(eve, ""), []string{}) {
		t.Errorf("an administrator removes: %d %s", status, body)
	}
	if status, body := s.ask(ada, "DELETE", "/api/credentials/"+mine, ""); status != 200 || len(s.list(ada, "")) > 0 {
		t.Errorf("an owner removes: %d %s", status, body)
	}
	if want := []string{"credential.remove person:github:2 EVE", "credential.remove person:github:1 ADA"}; !slices.Equal(s.log, want) {
		t.Errorf("log %q, want %q", s.log, want)
	}
}

// TestStored checks requests that store credentials. A mistake in one stores none.
func TestStored(t *testing.T) {
	const value = "0123456789abcdef"
	one := func(fields string) string { return `{"credentials":[{"value":"` + value + `",` + fields + `}]}` }
	many := func(n int) string {
		var lines strings.Builder
		for i := range n {
			fmt.Fprintf(&lines, "N%d=%s\n", i, value)
		}
		text, _ := json.Marshal(NewCredentials{Dotenv: lines.String(), Hosts: []string{"a.org"}})
		return string(text)
	}
	for _, c := range []struct {
		name, body string
		status     int
		want       string
		kept       int
	}{
		{"a secret", one(`"name":"A","hosts":["a.org"]`), 201, `"is_active":false`, 1},
		{"a named type", one(`"name":"A","credential_type":"secret","hosts":["a.org"]`), 201, `"is_active":false`, 1},
		{"a key", one(`"credential_type":"agent-api-key","agent_type":"codex"`), 201, `"is_active":true`, 1},
		{"a key that is off", one(`"credential_type":"agent-api-key","agent_type":"codex","inactive":true`), 201, `"is_active":false`, 1},
		{"a token of a forge", one(`"name":"A","credential_type":"forge-token","agent_type":"github"`), 400, "is tried before", 0},
		{"a value and a reference", one(`"name":"A","reference":"env://A"`), 400, "both a value and a reference", 0},
		{"a reference", `{"credentials":[{"name":"A","reference":"env://A"}]}`, 201, `"env://A"`, 1},
		{"nothing", `{}`, 400, "1 to 200 credentials to store at once, not 0", 0},
		{"most", many(maxAtOnce), 201, `"N199"`, maxAtOnce},
		{"too many", many(maxAtOnce + 1), 400, "not 201", 0},
		{"a file and a list", `{"dotenv":"B=` + value + `","hosts":["b.org"],"credentials":[{"name":"A","value":"` + value + `"}]}`, 201, `"b.org"`, 2},
		{"a broken file", `{"dotenv":"B"}`, 400, "line 1", 0},
		{"a mistake in the second", `{"credentials":[{"name":"A","value":"` + value + `"},{"name":"b","value":"` + value + `"}]}`, 400, "capital letters", 0},
		{"no JSON", `{`, 400, "", 0},
	} {
		s := open(t)
		status, body := s.ask(admin, "POST", "/api/credentials", c.body)
		if status != c.status || !strings.Contains(body, c.want) || strings.Contains(body, value) {
			t.Errorf("%s: %d %.300s, want %d %s", c.name, status, body, c.status, c.want)
		}
		if kept := s.list(admin, ""); len(kept) != c.kept || len(s.log) != c.kept {
			t.Errorf("%s: %d are kept and %d in the log, want %d", c.name, len(kept), len(s.log), c.kept)
		}
		for _, x := range s.api.Store.List(func(secret.Owner) bool { return true }) {
			if x.By != "admin" {
				t.Errorf("%s: set by %q", c.name, x.By)
			}
		}
	}
	s := open(t)
	s.audit = errors.New("the disk is full")
	if status, _ := s.ask(admin, "POST", "/api/credentials", one(`"name":"A"`)); status != 500 {
		t.Errorf("an action that the log does not have: %d", status)
	}
}

// prober accepts one key.
type prober struct {
	good  string
	asked []string
}

func (p *prober) Probe(_ context.Context, provider, key string, oauth bool) error {
	p.asked = append(p.asked, fmt.Sprint(provider, " ", key, " ", oauth))
	if key != p.good {
		return errors.New("anthropic refuses it")
	}
	return nil
}

// TestVerify tries keys at model APIs, and opens others.
func TestVerify(t *testing.T) {
	t.Setenv("RAMUS_TEST_SECRET", "0123456789")
	s := open(t)
	put := func(x secret.Secret, value string) string {
		t.Helper()
		x.Owner = secret.OfServer
		list, err := s.api.Store.Put([]secret.Secret{x}, []string{value})
		if err != nil {
			t.Fatal(err)
		}
		return list[0].ID
	}
	key := put(secret.Secret{Type: secret.TypeAgentKey, Agent: "claude-code"}, "key-0123456789")
	oauth := put(secret.Secret{Type: secret.TypeAgentKey, Agent: "claude-code", Kind: secret.KindOAuth}, "oat-0123456789")
	cloud := put(secret.Secret{Type: secret.TypeCloud, Agent: "hetzner"}, "cld-0123456789")
	plain := put(secret.Secret{Name: "PLAIN"}, "abc-0123456789")
	lost := put(secret.Secret{Name: "LOST", Reference: "env://RAMUS_TEST_NOT_SET"}, "")
	check := func(id string, ok, tried bool, want string) {
		t.Helper()
		status, body := s.ask(admin, "POST", "/api/credentials/"+id+"/verify", "")
		var v Verified
		if err := json.Unmarshal([]byte(body), &v); err != nil || status != 200 || v.OK != ok || v.Tried != tried || !strings.Contains(v.Message, want) {
			t.Errorf("%d %s, want ok %t, tried %t, %q", status, body, ok, tried, want)
		}
	}
	check(key, true, false, "no place to try it")
	p := &prober{good: "key-0123456789"}
	s.api.Models = p
	check(key, true, true, "anthropic accepts it")
	check(oauth, false, true, "anthropic refuses it")
	check(cloud, true, false, "no place to try it")
	check(plain, true, false, "no place to try it")
	check(lost, false, false, "RAMUS_TEST_NOT_SET")
	if want := []string{"anthropic key-0123456789 false", "anthropic oat-0123456789 true"}; !slices.Equal(p.asked, want) {
		t.Errorf("asked %q, want %q", p.asked, want)
	}
}

// TestSwitch switches keys on and off, and writes it to the log.
func TestSwitch(t *testing.T) {
	s := open(t)
	if status, body := s.ask(ada, "POST", "/api/credentials",
		`{"credentials":[{"credential_type":"agent-api-key","agent_type":"codex","value":"0123456789abcdef"}]}`); status != 201 {
		t.Fatal(status, body)
	}
	id, object := s.id(secret.OfPerson("github:1"), "CODEX_API_KEY"), "person:github:1 CODEX_API_KEY"
	for _, on := range []bool{false, true} {
		status, body := s.ask(ada, "PATCH", "/api/credentials/"+id, fmt.Sprintf(`{"is_active":%t}`, on))
		if x, err := s.api.Store.Get(id); status != 200 || err != nil || x.Active != on || !strings.Contains(body, fmt.Sprintf(`"is_active":%t`, on)) {
			t.Errorf("%d %s, %v", status, body, err)
		}
	}
	if want := []string{"credential.set " + object, "credential.off " + object, "credential.on " + object}; !slices.Equal(s.log, want) {
		t.Errorf("log %q, want %q", s.log, want)
	}
	if status, _ := s.ask(ada, "PATCH", "/api/credentials/"+id, `{`); status/100 != 4 {
		t.Errorf("no JSON: %d", status)
	}
	// A plain secret is not used by itself, so that it cannot be switched on.
	if _, err := s.api.Store.Put([]secret.Secret{{Name: "A", Owner: secret.OfPerson("github:1")}}, []string{"0123456789"}); err != nil {
		t.Fatal(err)
	}
	if status, body := s.ask(ada, "PATCH", "/api/credentials/"+s.id(secret.OfPerson("github:1"), "A"), `{"is_active":true}`); status/100 != 4 || len(s.log) != 3 {
		t.Errorf("%d %s, log %q", status, body, s.log)
	}
	s.audit = errors.New("the disk is full")
	if status, _ := s.ask(ada, "DELETE", "/api/credentials/"+id, ""); status != 500 {
		t.Errorf("an action that the log does not have: %d", status)
	}
}

// TestRotate seals all credentials with a new key, for administrators.
func TestRotate(t *testing.T) {
	s := open(t)
	if status, body := s.ask(admin, "POST", "/api/keys/rotate", ""); status != 404 || !strings.Contains(body, "keeps no credentials") {
		t.Errorf("without a function: %d %s", status, body)
	}
	n, fail := 3, error(nil)
	s.api.Rotate = func(context.Context) (int, error) { return n, fail }
	if status, body := s.ask(admin, "POST", "/api/keys/rotate", ""); status != 200 || strings.TrimSpace(body) != `{"credentials":3}` {
		t.Errorf("%d %s", status, body)
	}
	fail = errors.New("the disk is full")
	if status, _ := s.ask(admin, "POST", "/api/keys/rotate", ""); status != 500 {
		t.Errorf("a failure: %d", status)
	}
	s.api.Store = nil
	for _, c := range [][3]string{{"POST", "/api/keys/rotate", ""}, {"GET", "/api/credentials", ""}, {"GET", "/api/credentials/x", ""},
		{"POST", "/api/credentials", `{"dotenv":"A=0123456789"}`}, {"DELETE", "/api/credentials/x", ""}} {
		if status, body := s.ask(admin, c[0], c[1], c[2]); status != http.StatusNotFound || !strings.Contains(body, "keeps no credentials") {
			t.Errorf("%s %s without a store: %d %s", c[0], c[1], status, body)
		}
	}
}
