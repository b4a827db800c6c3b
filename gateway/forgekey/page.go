package forgekey

import (
	"context"
	"embed"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
)

//go:embed pages
var pageFiles embed.FS

var (
	pages = page.Parse(pageFiles)
	// policy lets the page of an invitation send its form here.
	policy = strings.Replace(page.Policy, "form-action 'none'", "form-action 'self'", 1)
)

const connectPath = "/connect"

// API is the routes of invitations. Its fields are its options.
type API struct {
	Keys *Keys // nil for none
}

// Routes returns the routes of invitations. The ticket in a request is its authority.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: connectPath, Access: route.AccessPublic, Media: route.MediaHTML, Query: ticketQuery{},
			Summary: "The page of an invitation, on which a person stores a token of a forge", Handle: api.show},
		{Method: "POST", Pattern: connectPath, Access: route.AccessPublic, Media: route.MediaHTML, Body: 8 << 10,
			Summary: "Store the token of an invitation's form: ticket, token", Handle: api.store},
	}
}

type ticketQuery struct {
	Ticket string `json:"ticket,omitempty" jsonschema:"of an invitation, from /ramus connect in Slack"`
}

// shown is the data of the page.
type shown struct {
	Site, URL, Scopes, Person, Name, Ticket string
	Mistake                                 string
	Login                                   string // of the stored token
}

var errNoInvitation = route.NewProblem(route.KindInvalid, "this invitation was used, is older than %v, or never was",
	invitationLife).
	WithHint("`/ramus connect` in Slack makes a new one")

func (api *API) find(ticket string, claim bool) (invitation, error) {
	if api.Keys != nil && ticket != "" {
		if i, ok := api.Keys.find(ticket, claim); ok {
			return i, nil
		}
	}
	problem := *errNoInvitation // the server completes it
	return invitation{}, &problem
}

func (i invitation) shown(ticket string) shown {
	return shown{Site: i.site.Forge.Title(), URL: i.site.URL, Scopes: i.site.Scopes, Person: i.person,
		Name: render.ClipClean(i.name, 100), Ticket: ticket}
}

func (api *API) show(c *route.Call) error {
	ticket := c.R.URL.Query().Get("ticket")
	i, err := api.find(ticket, false)
	if err != nil {
		return err
	}
	c.W.Header().Set("Cache-Control", "no-store")
	return page.Write(c.W, http.StatusOK, policy, pages, "connect.html", i.shown(ticket))
}

func (api *API) store(c *route.Call) error {
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return route.NewProblem(route.KindInvalid, "cannot read the form")
	}
	ticket, token := form.Get("ticket"), strings.TrimSpace(form.Get("token"))
	i, err := api.find(ticket, true)
	if err != nil {
		return err
	}
	stored := false
	defer func() { api.Keys.settle(ticket, stored) }()
	at := i.shown(ticket)
	status := http.StatusOK
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token,
		func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }) {
		at.Mistake, status = "That is no token", http.StatusBadRequest
	} else {
		ctx, cancel := context.WithTimeout(c.R.Context(), askWithin)
		defer cancel()
		at.Login, err = api.Keys.keep(ctx, i, token)
		switch {
		case errors.Is(err, forge.ErrRefused) || errors.Is(err, forge.ErrNotFound):
			at.Mistake, status = at.Site+" refuses that token", http.StatusBadRequest
		case err != nil && ctx.Err() != nil:
			at.Mistake, status = at.Site+" does not answer at the moment", http.StatusBadGateway
		case err != nil:
			return err
		}
	}
	stored = at.Mistake == ""
	c.W.Header().Set("Cache-Control", "no-store")
	return page.Write(c.W, status, policy, pages, "connect.html", at)
}
