package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
)

// bare returns a server without executor and Git server. Its handlers must not be called.
func bare(t *testing.T) *Server {
	t.Helper()
	s := &Server{Version: "v0", Engine: "none"}
	s.once.Do(func() {}) // skips the setup of the Git server's handlers
	s.setUpAlone()
	return s
}

func TestEveryRouteIsReachableByItsPattern(t *testing.T) {
	s := bare(t)
	var hit string
	routes := s.routes()
	for i := range routes {
		if routes[i].Access == route.AccessPage || routes[i].Access == route.AccessSocket {
			routes[i].Access = route.AccessPublic // the socket has no sessions
		}
		name := routes[i].Method + " " + routes[i].Pattern
		routes[i].Handle = func(c *route.Call) error {
			hit = name
			for _, m := range wildcard.FindAllStringSubmatch(c.R.Pattern, -1) {
				if got := c.R.PathValue(m[1]); got != "team/a:b" {
					t.Errorf("%s: %s is %q, want the unescaped name", name, m[1], got)
				}
			}
			return nil
		}
	}
	h := s.mux.Handler(routes, &route.Local)
	for _, route := range routes {
		method := route.Method
		if method == "" {
			method = "GET"
		}
		path := strings.TrimSuffix(wildcard.ReplaceAllString(route.Pattern, "team%2Fa:b"), "{$}")
		if route.Pattern == "/" {
			path = "/team/app.git/info/refs" // the path of the pattern itself is that of the first page
		}
		hit = ""
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
		if want := route.Method + " " + route.Pattern; hit != want {
			t.Errorf("%s %s reached %q, want %q", method, path, hit, want)
		}
	}
}

// TestTableIsMadeOnce checks that later uses of the table do not set up its parts again, which requests use meanwhile.
func TestTableIsMadeOnce(t *testing.T) {
	s := bare(t)
	made := 0
	s.apis = append(s.apis, counted{&made})
	s.table = s.makeTable()
	n := len(s.routes())
	s.openAPI()
	if s.Handler(); made != 1 || len(s.routes()) != n || s.routes()[n-1].Handle == nil {
		t.Errorf("the routes of a part were made %d times, and the table has %d of %d", made, len(s.routes()), n)
	}
}

// counted counts how often its routes are made.
type counted struct{ made *int }

func (c counted) Routes() []route.Route {
	*c.made++
	return nil
}

func TestWhatIsNoRoute(t *testing.T) {
	h := bare(t).cors(bare(t).mux.Handler(bare(t).routes(), nil))
	for _, x := range []struct {
		method, path string
		status       int
		kind         route.Kind
		allow        string
	}{
		{"GET", "/nothing", 404, route.KindNotFound, ""},
		{"DELETE", "/health", 405, route.KindMethod, "GET"},
		{"PUT", "/api/repos", 405, route.KindMethod, "GET, POST"},
		{"GET", "/api/runs/x/stop", 405, route.KindMethod, "POST"},
		{"GET", "/api/repos/a/b/c", 404, route.KindNotFound, ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(x.method, x.path, nil))
		var p route.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%s %s: %v: %s", x.method, x.path, err, w.Body)
		}
		if w.Code != x.status || p.Kind != x.kind || p.Status != x.status || w.Header().Get("Allow") != x.allow ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %q allow %q, want %d %s %q", x.method, x.path, w.Code, p.Kind, w.Header().Get("Allow"),
				x.status, x.kind, x.allow)
		}
		if p.Request == "" || p.Request != w.Header().Get("X-Request-Id") {
			t.Errorf("%s %s: the answer names request %q, its header %q", x.method, x.path, p.Request,
				w.Header().Get("X-Request-Id"))
		}
	}
}

// described is the content of a request or an answer in the OpenAPI document, by its media type.
type described map[string]struct {
	Schema struct {
		Ref string `json:"$ref"`
	}
}

// sameJSON reports whether two documents have the same values.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

func TestOpenAPIDescribesEveryRoute(t *testing.T) {
	s := bare(t)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
			Parameters  []struct{ Name, In string }
			RequestBody struct{ Content described }
			Responses   map[string]struct{ Content described }
		}
		Components struct{ Schemas map[string]json.RawMessage }
	}
	text := s.openAPI()
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, row := range s.routes() {
		if !isDescribed(row.Access) {
			continue
		}
		op, ok := doc.Paths[strings.NewReplacer("...}", "}", "{$}", "").Replace(row.Pattern)][strings.ToLower(row.Method)]
		if !ok {
			t.Errorf("%s %s is not described", row.Method, row.Pattern)
			continue
		}
		if op.Summary == "" || op.Responses["200"].Content == nil && row.Response != nil || ids[op.OperationID] {
			t.Errorf("%s %s: summary %q, id %q", row.Method, row.Pattern, op.Summary, op.OperationID)
		}
		ids[op.OperationID] = true
		for typ, content := range map[reflect.Type]described{reflect.TypeOf(row.Request): op.RequestBody.Content,
			reflect.TypeOf(row.Response): op.Responses["200"].Content} {
			if typ == nil || typ.Name() == "" {
				continue
			}
			want, err := json.Marshal(mustSchema(typ))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range content {
				got := doc.Components.Schemas[path.Base(c.Schema.Ref)]
				if c.Schema.Ref != "" && !sameJSON(t, got, want) {
					t.Errorf("%s %s: %v is described as %s", row.Method, row.Pattern, typ, c.Schema.Ref)
				}
			}
		}
		for _, m := range wildcard.FindAllStringSubmatch(row.Pattern, -1) {
			found := false
			for _, p := range op.Parameters {
				found = found || p.Name == m[1] && p.In == "path"
			}
			if !found {
				t.Errorf("%s %s: parameter %s is not described", row.Method, row.Pattern, m[1])
			}
		}
	}
	for _, m := range regexp.MustCompile(`#/components/schemas/(\w+)`).FindAllSubmatch(text, -1) {
		if doc.Components.Schemas[string(m[1])] == nil {
			t.Errorf("the document refers to %s, which it does not have", m[1])
		}
	}
}

func TestCORS(t *testing.T) {
	s := bare(t)
	s.CORS = []string{"https://app.example.org"}
	h := s.cors(s.mux.Handler(s.routes(), nil))
	for _, x := range []struct {
		origin, want string
	}{{"https://app.example.org", "https://app.example.org"}, {"https://evil.example.org", ""}, {"", ""}} {
		r := httptest.NewRequest("OPTIONS", "/api/runs", nil)
		if x.origin != "" {
			r.Header.Set("Origin", x.origin)
		}
		r.Header.Set("Access-Control-Request-Method", "POST")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != x.want {
			t.Errorf("origin %q is allowed as %q, want %q", x.origin, got, x.want)
		}
		if x.want != "" && w.Code != http.StatusNoContent {
			t.Errorf("preflight: status %d", w.Code)
		}
		if w.Header().Get("Access-Control-Allow-Credentials") != "" {
			t.Error("credentials are allowed")
		}
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	s := bare(t)
	h := s.mux.Serve(route.Route{Method: "GET", Pattern: "/", Access: route.AccessPublic,
		Handle: func(*route.Call) error { panic("boom") }}, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 500 || strings.Contains(w.Body.String(), "boom") {
		t.Errorf("%d %s: want 500 without the fault's text", w.Code, w.Body)
	}
}

// deadlineless is a recorder with a SetWriteDeadline that has no effect.
type deadlineless struct{ *httptest.ResponseRecorder }

func (deadlineless) SetWriteDeadline(time.Time) error { return nil }

func TestProgressLines(t *testing.T) {
	w := httptest.NewRecorder()
	c := new(route.Mux).NewCall(deadlineless{w}, httptest.NewRequest("POST", "/", nil), route.AccessWrite)
	p := &progressLines{call: c, cancel: func(error) {}}
	for _, piece := range []string{"one\rtw", "o\r\nthr", "ee", strings.Repeat("x", longestProgress)} {
		if _, err := p.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	p.rest()
	var got []string
	d := json.NewDecoder(w.Body)
	for d.More() {
		var l Progress
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		got = append(got, l.Text)
	}
	if len(got) != 4 || got[0] != "one" || got[1] != "two" || len(got[2]) != longestProgress || got[3] != "xxxxx" {
		t.Errorf("%q", got)
	}
}
