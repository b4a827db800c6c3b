package web

import (
	"net/http"

	"github.com/ramus-dev/ramus/gateway/credential"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/token"
)

// The cookies of a person's choices for one browser. They hold no secret.
const (
	themeCookie   = "ramus-theme"
	densityCookie = "ramus-density"
	keysCookie    = "ramus-keys"
)

// settingsData is the data of the page of settings.
type settingsData struct {
	More                 []Settings
	Theme, Density, Keys string
	Role                 string
}

// settingsPages serves the settings of a person.
type settingsPages struct {
	credentials *credential.API // nil means that there is no page of credentials
	tokens      *token.API      // nil means that there is no page of tokens
	shares      *share.API      // nil means that there are no links
	more        []Settings
}

func (h *settingsPages) register(t *table) {
	t.page("/settings", "The settings of a person", h.settingsPage)
	t.form("/settings/appearance", "Choose theme and density, by the form of the settings", h.saveAppearance)
}

func (h *settingsPages) settingsPage(c *route.Call) (*Page, error) {
	d := &settingsData{Theme: chosen(c.R, themeCookie, "light", "dark"), Density: chosen(c.R, densityCookie, "compact"),
		Keys: chosen(c.R, keysCookie, "off"), Role: "member"}
	switch {
	case c.Who.Admin():
		d.Role = "administrator"
	case !c.Who.May(route.AccessWrite):
		d.Role = "viewer"
	}
	if h.credentials != nil {
		d.More = append(d.More, Settings{Title: "Credentials", Path: credentialsPath, Icon: "lock",
			About: "Keys of agents, and secrets for hosts"})
	}
	if h.shares != nil {
		d.More = append(d.More, Settings{Title: "Links", Path: linksPath, Icon: "branch", About: "What people see without signing in"})
	}
	if h.tokens != nil {
		d.More = append(d.More, Settings{Title: "Tokens", Path: tokensPath, Icon: "lock",
			About: "Access for programs and git"})
	}
	for _, s := range h.more {
		if !s.Admin || c.Who.Admin() {
			d.More = append(d.More, s)
		}
	}
	return &Page{Title: "Settings", Nav: "settings", Template: "settings", Data: d, Layout: "narrow"}, nil
}

// saveAppearance keeps a person's choices in the browser.
func (h *settingsPages) saveAppearance(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	for name, field := range map[string]string{themeCookie: "theme", densityCookie: "density", keysCookie: "keys"} {
		value := formText(c, field, 20)
		k := &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: 365 * 24 * 3600, HttpOnly: true,
			SameSite: http.SameSiteLaxMode, Secure: c.R.TLS != nil}
		if value == "" || value != "light" && value != "dark" && value != "compact" && value != "off" {
			k.Value, k.MaxAge = "", -1
		}
		http.SetCookie(c.W, k)
	}
	return see(c, "/settings")
}
