package web

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/route"
)

// table has the routes of the pages, and makes pages for the tabs that follow them.
type table struct {
	shell         *shell
	access, write route.Access // of pages and files, and of forms
	views         []view
	routes        []route.Route

	// desk asks the other servers of the installation, and newCall makes the calls of their questions.
	desk    *gather.Desk
	newCall func(w http.ResponseWriter, r *http.Request, access route.Access) *route.Call
}

// builder makes the page of a call.
type builder func(c *route.Call) (*Page, error)

// view is a page with its path.
type view struct {
	pattern string
	build   builder
}

// page adds a page, which open tabs may follow. One whose pattern has no wildcard comes before those with a wildcard that match its path.
func (t *table) page(pattern, summary string, build builder) {
	t.addPage(pattern, summary, false, build)
}

// strangerPage adds a page that strangers may open if everybody may read its repository.
func (t *table) strangerPage(pattern, summary string, build builder) {
	t.addPage(pattern, summary, true, build)
}

func (t *table) addPage(pattern, summary string, strangers bool, build builder) {
	t.views = append(t.views, view{pattern, build})
	t.route(route.Route{Method: "GET", Pattern: pattern, Access: t.access, Summary: summary, Media: route.MediaHTML, Strangers: strangers,
		Handle: t.serve(build)})
}

// form adds the action of a form.
func (t *table) form(pattern, summary string, handle func(c *route.Call) error) {
	t.upload(pattern, summary, formBody, handle)
}

// upload adds the action of a form with a bound of its own on the body, in bytes.
func (t *table) upload(pattern, summary string, most int64, handle func(c *route.Call) error) {
	t.route(route.Route{Method: "POST", Pattern: pattern, Access: t.write, Summary: summary, Media: route.MediaHTML, Body: most, Handle: handle})
}

// file adds a file, with its media type.
func (t *table) file(pattern, summary, media string, handle func(c *route.Call) error) {
	t.route(route.Route{Method: "GET", Pattern: pattern, Access: t.access, Summary: summary, Media: media, Handle: handle})
}

// route adds any other route.
func (t *table) route(r route.Route) { t.routes = append(t.routes, r) }

// formBody limits the body of a form, in bytes.
const formBody = 2 << 20

// serve returns the handler of a page.
func (t *table) serve(build builder) func(c *route.Call) error {
	return func(c *route.Call) error {
		p, err := t.build(c, build)
		if err != nil {
			return err
		}
		return t.shell.write(c, p)
	}
}

// build makes a page, which names the servers that it lacks.
func (t *table) build(c *route.Call, build builder) (*Page, error) {
	ctx, lack := gather.Collect(c.R.Context())
	c.R = c.R.WithContext(ctx)
	p, err := build(c)
	if err == nil {
		p.Missing = lack.Names()
	}
	return p, err
}

// render returns the view of the page at a path, for package live.
func (t *table) render(c *route.Call, at *url.URL) (live.View, error) {
	return t.renderHere(c, at, t.viewElsewhere)
}

// renderHere returns the view of the page at a path. elsewhere, if it is not nil, may make it first.
func (t *table) renderHere(c *route.Call, at *url.URL, elsewhere func(c *route.Call, pattern string) (live.View, bool, error)) (live.View, error) {
	for _, v := range t.views {
		values, ok := match(v.pattern, strings.TrimPrefix(at.EscapedPath(), t.shell.address))
		if !ok {
			continue
		}
		call := *c
		call.R = c.R.Clone(context.WithValue(c.R.Context(), following{}, true))
		call.R.URL, call.R.Method, call.R.Pattern = at, http.MethodGet, v.pattern
		for name, value := range values {
			call.R.SetPathValue(name, value)
		}
		if elsewhere != nil {
			if view, is, err := elsewhere(&call, v.pattern); is {
				return view, err
			}
		}
		p, err := t.build(&call, v.build)
		if err != nil {
			return live.View{}, err
		}
		if _, err := t.shell.fill(&call, p); err != nil {
			return live.View{}, err
		}
		return live.View{Title: p.FullTitle(), Topics: p.Topics, Beat: p.Beat, Fragments: p.fragments}, nil
	}
	return live.View{}, route.NotFound("page", at.Path)
}

// following is the key of contexts in which a page is made for the tabs that follow it, which take its fragments alone.
type following struct{}

// match returns the values of the wildcards of a pattern in a path that is still escaped. A pattern without a wildcard wins over one with a
// wildcard, because it comes first in the table.
func match(pattern, path string) (map[string]string, bool) {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return nil, false
	}
	values := map[string]string{}
	for i := range want {
		name, isWild := strings.CutPrefix(want[i], "{")
		if !isWild {
			if want[i] != have[i] {
				return nil, false
			}
			continue
		}
		value, err := url.PathUnescape(have[i])
		if err != nil || value == "" {
			return nil, false
		}
		values[strings.TrimSuffix(name, "}")] = value
	}
	return values, true
}
