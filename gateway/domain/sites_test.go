package domain

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/route"
)

// newSites returns sites whose routes answer with their pattern, and with what they got of the headers of this package.
func newSites(t *testing.T) http.Handler {
	t.Helper()
	answer := func(c *route.Call) error {
		for name := range c.R.Header {
			if strings.Contains(strings.ToLower(name), "ramus") {
				t.Errorf("%s reaches a route", name)
			}
		}
		_, err := io.WriteString(c.W, c.R.Pattern+" at "+c.R.Host)
		return err
	}
	var table []route.Route
	for _, r := range []route.Route{
		{Pattern: "/health"}, {Pattern: "/api/version"}, {Pattern: "/{$}"},
		{Pattern: "/api/callers/{caller}"}, {Pattern: "/api/workspaces/{workspace}/files"},
	} {
		table = append(table, route.Route{Method: "GET", Pattern: r.Pattern, Access: route.AccessPublic, Handle: answer})
	}
	same := func(next http.Handler) http.Handler { return next }
	s := &Sites{Domain: parse(t, "https://ramus.example.org:8443"), Mux: &route.Mux{}, Table: table, CORS: same, WithPorts: same,
		WithContent: same}
	return s.Handler()
}

// TestSites asks for routes at the hosts of all parts. Each host has the routes of its part alone, and that of a workspace serves this
// workspace alone.
func TestSites(t *testing.T) {
	h := newSites(t)
	const ok, missing, denied = http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed
	for _, x := range []struct {
		method, host, path string
		code               int
	}{
		{"GET", "app", "/", ok},
		{"GET", "app", "/health", ok},
		{"GET", "app", "/api/version", missing},
		{"GET", "app", "/none", missing},
		{"POST", "app", "/health", denied},
		{"GET", "api", "/health", ok},
		{"GET", "api", "/api/version", ok},
		{"GET", "api", "/api/callers/run:a", ok},
		{"GET", "api", "/", missing},
		{"GET", "content", "/api/version", missing},
		{"GET", "ws-run-a", "/", http.StatusSeeOther},
		{"GET", "ws-run-a", "/api/callers/run:a", ok},
		{"GET", "ws-run-a", "/api/callers/run-a", ok},
		{"GET", "ws-run-a", "/api/callers/run:b", missing},
		{"GET", "ws-run-a", "/api/callers/a", missing},
		{"GET", "ws-run-a", "/api/workspaces/run-a/files", ok},
		{"GET", "ws-run-a", "/api/workspaces/run-b/files", missing},
		{"GET", "ws-run-a", "/api/version", missing},
		{"POST", "ws-run-a", "/api/callers/run:a", denied},
		{"GET", "ws-run-a--80", "/api/version", missing},
		{"GET", "other", "/api/version", missing},
	} {
		r := httptest.NewRequest(x.method, x.path, nil)
		r.Host = x.host + ".ramus.example.org"
		r.Header.Set(WorkspaceHeader, "run-forged")
		r.Header.Set("x_ramus_node_id", "forged")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != x.code {
			t.Errorf("%s %s %s: %d, want %d", x.method, x.host, x.path, w.Code, x.code)
		}
		if w.Code == ok && !strings.HasSuffix(w.Body.String(), " at "+x.host+".ramus.example.org:8443") {
			t.Errorf("%s %s: %s", x.host, x.path, w.Body)
		}
		workspace, node := "", ""
		if x.host == "ws-run-a" {
			workspace, node = "run-a", ThisNode
		}
		if got := w.Header(); got.Get(WorkspaceHeader) != workspace || got.Get(NodeHeader) != node {
			t.Errorf("%s %s: the headers are %q", x.host, x.path, got)
		}
		if x.code == http.StatusSeeOther && w.Header().Get("Location") != "https://app.ramus.example.org:8443/workspaces/run-a" {
			t.Errorf("the page is at %s", w.Header().Get("Location"))
		}
	}
}

// TestPartsOf places routes by their access.
func TestPartsOf(t *testing.T) {
	for _, x := range []struct {
		route.Route
		pages, api bool
	}{
		{route.Route{Access: route.AccessPage}, true, false},
		{route.Route{Access: route.AccessSocket}, true, false},
		{route.Route{Access: route.AccessPreview}, true, false},
		{route.Route{Access: route.AccessSigned}, true, true},
		{route.Route{Access: route.AccessPublic, Pattern: "/health"}, true, true},
		{route.Route{Access: route.AccessPublic, Pattern: "/.well-known/x"}, false, true},
		{route.Route{Access: route.AccessPublic, Pattern: "/sign-in"}, true, false},
		{route.Route{Access: route.AccessRead}, false, true},
		{route.Route{Access: route.AccessRead, Media: route.MediaHTML}, true, false},
	} {
		pages, api := len(RoutesAt(Pages, []route.Route{x.Route})) == 1, len(RoutesAt(API, []route.Route{x.Route})) == 1
		if pages != x.pages || api != x.api {
			t.Errorf("%s %s %s: pages %v, programs %v", x.Access, x.Pattern, x.Media, pages, api)
		}
	}
}
