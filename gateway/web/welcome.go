package web

import "github.com/ramus-dev/ramus/gateway/route"

// welcomePages serves the first page.
type welcomePages struct {
	ways []Way // to sign in
}

func (h *welcomePages) register(t *table) {
	t.route(route.Route{Method: "GET", Pattern: "/{$}", Access: route.AccessPublic, Summary: "The first page, with the ways to sign in",
		Media: route.MediaHTML, Handle: t.serve(h.welcome)})
}

// welcome is the first page. It is public and does not know who looks.
func (h *welcomePages) welcome(c *route.Call) (*Page, error) {
	return &Page{Title: "Welcome", Template: "welcome", Bare: true, Layout: "narrow", Data: h.ways}, nil
}
