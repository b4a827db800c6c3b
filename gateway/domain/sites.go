package domain

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Headers with the workspace and the machine of a request. The answers of a workspace's host have them, and so have the
// requests that its applications get. See [RemoveOwn].
const (
	WorkspaceHeader = "X-Ramus-Workspace-Id"
	NodeHeader      = "X-Ramus-Node-Id"
	// ThisNode is the id of the machine.
	ThisNode = "local"
)

// RemoveOwn removes the headers of this package from the request of a client. It removes names with underscores, too,
// because the interfaces of many applications, such as CGI, do not distinguish them from hyphens.
func RemoveOwn(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		name = strings.ReplaceAll(name, "_", "-")
		return strings.EqualFold(name, WorkspaceHeader) || strings.EqualFold(name, NodeHeader)
	})
}

// Sites serve the routes of a server at the hosts of a domain.
type Sites struct {
	Domain *Domain
	Mux    *route.Mux
	// Table has all routes.
	Table []route.Route
	// CORS lets pages of other origins use the routes of programs.
	CORS func(http.Handler) http.Handler
	// WithPorts and WithContent return the handlers of these places, which pass requests for other hosts to their
	// argument.
	WithPorts, WithContent func(http.Handler) http.Handler
}

// Handler returns a handler for all hosts. It panics on a route without a known access class.
func (s *Sites) Handler() http.Handler {
	nothing := s.nothing()
	handlers := map[Part]http.Handler{
		Nothing:   s.WithContent(s.WithPorts(nothing)), // the configuration may have given them other domains
		Pages:     s.Mux.Handler(s.ofPages(), nil),
		API:       s.CORS(s.Mux.Handler(RoutesAt(API, s.Table), nil)),
		Content:   s.WithContent(nothing),
		Port:      s.WithPorts(nothing),
		Workspace: s.CORS(s.Mux.Handler(s.ofWorkspace(), nil)),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		place := s.Domain.Find(r.Host)
		r = r.Clone(r.Context())
		RemoveOwn(r.Header)
		if place.Part != Nothing {
			r.Host = s.Domain.host(place.Label)
		}
		if place.Part == Workspace {
			w.Header().Set(WorkspaceHeader, place.Caller.Slug())
			w.Header().Set(NodeHeader, ThisNode)
		}
		handlers[place.Part].ServeHTTP(w, r)
	})
}

// PartsOf returns the parts at which a route is served, apart from the hosts of workspaces.
func PartsOf(r route.Route) []Part {
	switch r.Access {
	case route.AccessPage, route.AccessSocket, route.AccessPreview:
		return []Part{Pages}
	case route.AccessSigned:
		return []Part{Pages, API} // people by a link, programs by a token
	case route.AccessPublic:
		switch {
		case r.Pattern == "/health":
			return []Part{Pages, API}
		case strings.HasPrefix(r.Pattern, "/api/"), strings.HasPrefix(r.Pattern, "/.well-known/"):
			return []Part{API}
		}
		return []Part{Pages} // the first page, files of pages, the sign-in
	}
	if r.Media == route.MediaHTML {
		return []Part{Pages}
	}
	return []Part{API}
}

// RoutesAt returns the routes of a table that a part has.
func RoutesAt(part Part, table []route.Route) (list []route.Route) {
	for _, r := range table {
		if slices.Contains(PartsOf(r), part) {
			list = append(list, r)
		}
	}
	return list
}

// names are the wildcards of patterns that name a workspace.
var names = []string{"workspace", "caller"}

// ofWorkspace returns the routes of the hosts of workspaces: those of programs whose path names a workspace, and
// the way to its page.
func (s *Sites) ofWorkspace() []route.Route {
	list := []route.Route{{Method: "GET", Pattern: "/{$}", Access: route.AccessPublic, Media: route.MediaHTML,
		Summary: "Redirects to the page of the workspace", Handle: s.redirectToPage}}
	for _, r := range RoutesAt(API, s.Table) {
		if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(r.Pattern, "{"+name+"}") }) {
			r.Handle = s.bound(r.Handle)
			list = append(list, r)
		}
	}
	known := list
	return append(list, route.Route{Pattern: "/", Access: route.AccessPublic, Summary: "Nothing",
		Handle: func(c *route.Call) error {
			if err := c.CheckMethod(known); err != nil {
				return err
			}
			return route.NewProblem(route.KindNotFound, "there is nothing at %s of this workspace", c.R.URL.Path).
				WithHint("all routes of programs are at " + s.Domain.API() + ", and the pages at " + s.Domain.Pages())
		}})
}

// bound returns the handler of a route that serves the workspace of its host and no other.
func (s *Sites) bound(handle func(*route.Call) error) func(*route.Call) error {
	return func(c *route.Call) error {
		own := s.Domain.Find(c.R.Host).Caller
		for _, key := range names {
			if name := c.R.PathValue(key); name != "" && !isNamed(own, name) {
				return route.NewProblem(route.KindNotFound, "%.200q is not the workspace of this host", name).
					WithHint("all workspaces are at " + s.Domain.API())
			}
		}
		return handle(c)
	}
}

// isNamed reports whether a name is the whole name of a caller or of its workspace.
func isNamed(c record.Caller, name string) bool { return name == c.String() || name == c.Slug() }

// redirectToPage redirects to the page of the workspace. It does not check that the workspace exists.
func (s *Sites) redirectToPage(c *route.Call) error {
	c.W.Header().Set("Cache-Control", "no-store")
	slug := s.Domain.Find(c.R.Host).Caller.Slug()
	http.Redirect(c.W, c.R, s.Domain.Pages()+"/workspaces/"+url.PathEscape(slug), http.StatusSeeOther)
	return nil
}

// ofPages returns the routes of the host of pages, with that of all other paths.
func (s *Sites) ofPages() []route.Route {
	known := RoutesAt(Pages, s.Table)
	return append(known, route.Route{Pattern: "/", Access: route.AccessPublic, Media: route.MediaHTML,
		Summary: "Nothing",
		Handle: func(c *route.Call) error {
			if err := c.CheckMethod(known); err != nil {
				return err
			}
			return route.NewProblem(route.KindNotFound, "there is nothing at %s", c.R.URL.Path).
				WithHint("programs and git use " + s.Domain.API())
		}})
}

// nothing returns the handler of hosts that no part has.
func (s *Sites) nothing() http.Handler {
	return s.Mux.Serve(route.Route{Pattern: "/", Access: route.AccessPreview, Media: route.MediaHTML, Body: -1,
		Summary: "Nothing", Handle: func(c *route.Call) error {
			return route.NewProblem(route.KindNotFound, "this server has no host %.200q", c.R.Host).
				WithHint("check the address; a proxy in front of the server has to pass the header Host on unchanged")
		}}, nil)
}

// OnlyOwn passes requests for hosts of the domain to next, with any port, and refuses all others. It is for
// requests without TLS, which next redirects to the same host with TLS.
func (d *Domain) OnlyOwn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := cutPort(r.Host)
		place := d.find(name)
		if place.Part == Nothing {
			http.Error(w, "this server has no such host", http.StatusNotFound)
			return
		}
		r = r.Clone(r.Context())
		r.Host = place.Label + "." + d.name
		next.ServeHTTP(w, r)
	})
}
