package signin

import (
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/audit"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gitd"
)

//go:embed pages
var pageFiles embed.FS

//go:embed pages/token.html
var tokenFile embed.FS

// pages has the page of a token, which needs nothing else. The others are in the shell of package web, and are parsed at
// the first call.
var (
	pages     = page.Parse(tokenFile)
	templates = sync.OnceValue(func() *template.Template {
		return template.Must(web.NewTemplates().ParseFS(pageFiles, "pages/choose.html", "pages/sessions.html",
			"pages/people.html", "pages/audit.html"))
	})
)

// The paths of pages, and of the form that signs out.
const (
	OutPath      = "/auth/out"
	SessionsPath = "/settings/sessions"
	PeoplePath   = "/admin/people"
	AuditPath    = "/admin/audit"

	allOutPath = OutPath + "/everywhere"
)

// pageRoutes returns the routes of pages and their forms.
func (api *API) pageRoutes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: route.SignInPath, Access: route.AccessPublic, Media: route.MediaHTML,
			Summary: "The page where people sign in", Handle: api.choose},
		{Method: "POST", Pattern: OutPath, Access: route.AccessPage, Media: route.MediaHTML, Summary: "Sign out",
			Handle: api.signOut},
		{Method: "POST", Pattern: allOutPath, Access: route.AccessPage, Media: route.MediaHTML,
			Summary: "Sign out everywhere", Handle: api.signOutEverywhere},
		{Method: "GET", Pattern: SessionsPath, Access: route.AccessPage, Media: route.MediaHTML,
			Summary: "The browsers in which a person is signed in", Handle: api.sessionsPage},
		{Method: "POST", Pattern: SessionsPath + "/{session}/end", Access: route.AccessPage, Media: route.MediaHTML,
			Summary: "End one of them", Handle: api.endOwn},
		{Method: "GET", Pattern: PeoplePath, Access: route.AccessPage, Media: route.MediaHTML,
			Summary: "The people, for administrators", Handle: api.peoplePage},
		{Method: "POST", Pattern: PeoplePath + "/{person}", Access: route.AccessPage, Media: route.MediaHTML,
			Summary: "Change the roles of a person", Handle: api.changePersonPage},
		{Method: "GET", Pattern: AuditPath, Access: route.AccessPage, Media: route.MediaHTML,
			Summary: "The log of actions, for administrators", Handle: api.auditPage},
	}
}

// show answers with a page in the shell. Before the sign-in it has no navigation.
func (api *API) show(c *route.Call, title, name string, data any) error {
	p := &web.Page{Title: title, Nav: "settings", Template: name, Templates: templates(), Data: data}
	if c.Who.Account == nil {
		p.Bare, p.Layout = true, "narrow"
	}
	return api.Web.Reply(c, p)
}

// way is one way to sign in.
type way struct{ Name, Link string }

// ways returns the ways to sign in and come back to a path. With again, a provider that can asks for the password.
func (api *API) ways(c *route.Call, to string, again bool) []way {
	q := url.Values{}
	if to != "/" {
		q.Set(route.BackParameter, to)
	}
	if again {
		q.Set("again", "1")
	}
	query := ""
	if len(q) > 0 {
		query = "?" + q.Encode()
	}
	var list []way
	if api.GitHub != nil {
		list = append(list, way{"GitHub", c.Prefix() + githubPath + query})
	}
	if api.People != nil && api.People.OIDC != nil {
		list = append(list, way{api.People.OIDC.title(), c.Prefix() + oidcPath + query})
	}
	return list
}

// choose shows the ways to sign in. A person who is signed in already is sent on, except to authenticate again.
func (api *API) choose(c *route.Call) error {
	if api.People == nil {
		return errNobody()
	}
	q := c.R.URL.Query()
	to, again := route.OwnPath(q.Get(route.BackParameter)), q.Get("again") != ""
	who, err := api.People.Account(c)
	if err != nil {
		return err
	}
	if !who.Nobody() && !again {
		http.Redirect(c.W, c.R, c.Prefix()+api.home(to), http.StatusSeeOther)
		return nil
	}
	c.W.Header().Set("Cache-Control", "no-store")
	return api.show(c, "Sign in", "choose", struct {
		Ways       []way
		Again, Out bool
	}{api.ways(c, to, again), again, q.Get("out") != ""})
}

// home returns the path that a browser comes to after it signed in.
func (api *API) home(to string) string {
	switch {
	case to != "/":
		return to
	case api.People.Home != "":
		return api.People.Home
	}
	return SessionsPath
}

func (api *API) signOut(c *route.Call) error {
	if err := api.endOne(c, c.Who.Account.Session, c.Who.Account.ID); err != nil {
		return err
	}
	return api.showOut(c)
}

func (api *API) signOutEverywhere(c *route.Call) error {
	if _, err := api.endAll(c, c.Who.Account.ID, ""); err != nil {
		return err
	}
	if err := c.Audit("session.end_all", c.Who.Account.ID); err != nil {
		return err
	}
	return api.showOut(c)
}

// showOut removes the cookie and the data of this server in the browser, and shows the page where people sign in.
func (api *API) showOut(c *route.Call) error {
	http.SetCookie(c.W, api.People.sessionCookie(c, ""))
	c.W.Header().Set("Clear-Site-Data", `"cache", "storage"`)
	page.MarkPrivate(c.W.Header())
	http.Redirect(c.W, c.R, c.Prefix()+route.SignInPath+"?out=1", http.StatusSeeOther)
	return nil
}

// sessionRow is a session on a page.
type sessionRow struct {
	session.Session
	Own bool
}

func (api *API) sessionsPage(c *route.Call) error {
	var rows []sessionRow
	for _, s := range api.People.Sessions.List(c.Who.Account.ID) {
		rows = append(rows, sessionRow{s, s.ID == c.Who.Account.Session})
	}
	return api.show(c, "Browsers", "sessions", rows)
}

func (api *API) endOwn(c *route.Call) error {
	id := c.R.PathValue("session")
	if err := api.endOne(c, id, c.Who.Account.ID); err != nil {
		return err
	}
	if id == c.Who.Account.Session {
		return api.showOut(c)
	}
	http.Redirect(c.W, c.R, c.Prefix()+SessionsPath, http.StatusSeeOther)
	return nil
}

// checkAdmin returns a problem if the person of a call may not administer people now.
func checkAdmin(c *route.Call) error {
	if !c.Who.Admin() {
		return route.NewProblem(route.KindDenied,
			"this page is for administrators").WithHint("an administrator gives roles at /admin/people, or with `ramus people role`")
	}
	return c.CheckRecent()
}

// personRow is a person on a page.
type personRow struct {
	Person
	Own, Owner bool
}

// roleOptions are the roles that the form of a person offers.
var roleOptions = []struct{ Value, Text string }{{"rules", "By the rules of the configuration"}, {"viewer", "Viewer"},
	{"member", "Member"},
	{"admin", "Administrator"}, {"none", "None, keeps the person out"}}

func (api *API) peoplePage(c *route.Call) error {
	if err := checkAdmin(c); err != nil {
		return err
	}
	return api.showPeople(c, http.StatusOK, "")
}

func (api *API) showPeople(c *route.Call, status int, fault string) error {
	var rows []personRow
	for _, p := range api.Accounts.List() {
		rows = append(rows, personRow{api.describe(p), p.ID == c.Who.Account.ID, p.Provider == account.ProviderOwner})
	}
	return api.Web.Reply(c, &web.Page{Title: "People", Nav: "settings", Template: "people", Templates: templates(),
		Status: status, Data: struct {
			People []personRow
			Roles  any
			Fault  string
		}{rows, roleOptions, fault}})
}

// changePersonPage changes a person by a form.
func (api *API) changePersonPage(c *route.Call) error {
	if err := checkAdmin(c); err != nil {
		return err
	}
	defer c.LimitReading()()
	if err := c.R.ParseForm(); err != nil {
		return route.BadJSON(err)
	}
	id, form := c.R.PathValue("person"), c.R.PostForm
	var err error
	switch form.Get("do") {
	case "role":
		n := NewRoles{Role: form.Get("role")}
		if repo := strings.TrimSpace(form.Get("repo")); repo != "" {
			n = NewRoles{Repos: map[string]string{repo: form.Get("role")}}
		}
		_, err = api.applyRoles(c, id, n)
	case "remove":
		_, err = api.dropPerson(c, id)
	case "sessions":
		if _, err = api.endAll(c, id, ""); err == nil {
			err = c.Audit("session.end_all", id)
		}
	default:
		err = route.NewProblem(route.KindInvalid, "this form asks for nothing that is known")
	}
	if err != nil {
		if p := route.AsProblem(err, c.Who); p.Status < 500 {
			return api.showPeople(c, p.Status, p.Detail)
		}
		return err
	}
	http.Redirect(c.W, c.R, c.Prefix()+PeoplePath, http.StatusSeeOther)
	return nil
}

// shownActions is how many actions the page shows.
const shownActions = 200

func (api *API) auditPage(c *route.Call) error {
	if err := checkAdmin(c); err != nil {
		return err
	}
	list := []audit.Record{}
	if api.People.Actions != nil {
		var err error
		if list, err = api.People.Actions.Read(c.R.Context(), shownActions); err != nil {
			return err
		}
	}
	return api.show(c, "Actions", "audit", struct {
		Actions []audit.Record
		Fetch   string
	}{list, "git clone " + c.CloneURL(gitd.PeopleRepo) + "\ncd " + gitd.PeopleRepo +
		"\ngit fetch origin 'refs/ramus/audit/*:refs/remotes/audit/*'"})
}
