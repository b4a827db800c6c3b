package web

import "github.com/ramus-dev/ramus/gateway/route"

// welcome is the first page. It is public and does not know who looks.
func (api *API) welcome(c *route.Call) (*Page, error) {
	return &Page{Title: "Welcome", Template: "welcome", Bare: true, Layout: "narrow", Data: api.Ways}, nil
}
