package signin

import (
	"embed"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/audit"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
)

//go:embed pages
var pageFiles embed.FS

var pages = page.Parse(pageFiles)

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
		{Method: "GET", Pattern: route.SignInPath, Access: route.AccessPublic, Media: route.MediaHTML, Summary: "The page where people sign in", Handle: api.choose},
		{Method: "POST", Pattern: OutPath, Access: route.AccessPage, Media: route.MediaHTML, Summary: "Sign out", Handle: api.signOut},
		{Method: "POST", Pattern: allOutPath, Access: route.AccessPage, Media: route.MediaHTML, Summary: "Sign out everywhere", Handle: api.signOutEverywhere},
		{Method: "GET", Pattern: SessionsPath, Access: route.AccessPage, Media: route.MediaHTML, Summary: "The browsers in which a person is signed in", Handle: api.sessionsPage},
		{Method: "POST", Pattern: SessionsPath + "/{session}/end", Access: route.AccessPage, Media: route.MediaHTML, Summary: "End one of them", Handle: api.endOwn},
		{Method: "GET", Pattern: PeoplePath, Access: route.AccessPage, Media: route.MediaHTML, Summary: "The people, for administrators", Handle: api.peoplePage},
		{Method: "POST", Pattern: PeoplePath + "/{person}", Access: route.AccessPage, Media: route.MediaHTML, Summary: "Change the roles of a person", Handle: api.changePersonPage},
		{Method: "GET", Pattern: AuditPath, Access: route.AccessPage, Media: route.MediaHTML, Summary: "The log of actions, for administrators", Handle: api.auditPage},
	}
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

// choose shows the ways to sign in. Who is signed in already is sent on, except to authenticate again.
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
	return page.Write(c.W, http.StatusOK, page.FormPolicy, pages, "choose.html", struct {
		Ways       []way
		Again, Out bool
		To         string
	}{api.ways(c, to, again), again, q.Get("out") != "", to})
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

// showOut removes the cookie and what the browser keeps of this server, and shows the page where people sign in.
func (api *API) showOut(c *route.Call) error {
	http.SetCookie(c.W, api.People.sessionCookie(c, ""))
	c.W.Header().Set("Clear-Site-Data", `"cache", "storage"`)
	page.MarkPrivate(c.W.Header())
	http.Redirect(c.W, c.R, c.Prefix()+route.SignInPath+"?out=1", http.StatusSeeOther)
	return nil
}

// shown is the head of a page of a person.
type shown struct {
	Who    *route.Account
	Prefix string
	Admin  bool
}

func show(c *route.Call) shown { return shown{c.Who.Account, c.Prefix(), c.Who.Admin()} }

// sessionRow is a session on a page.
type sessionRow struct {
	session.Session
	Own               bool
	Began, Used, Ends string
}

func (api *API) sessionsPage(c *route.Call) error {
	var rows []sessionRow
	for _, s := range api.People.Sessions.List(c.Who.Account.ID) {
		rows = append(rows, sessionRow{s, s.ID == c.Who.Account.Session, ago(api.Now(), s.Began), ago(api.Now(), s.Used), render.Time(s.Ends)})
	}
	return page.Write(c.W, http.StatusOK, page.FormPolicy, pages, "sessions.html", struct {
		shown
		Sessions []sessionRow
	}{show(c), rows})
}

// ago returns a time in the past for people.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	if d < time.Minute {
		return "just now"
	}
	return render.Duration(d) + " ago"
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
		return route.NewProblem(route.KindDenied, "this page is for administrators").WithHint("an administrator gives roles at /admin/people, or with `ramus people role`")
	}
	return c.CheckRecent()
}

// personRow is a person on a page.
type personRow struct {
	Person
	Own, Owner bool
	First      string
}

func (api *API) peoplePage(c *route.Call) error {
	if err := checkAdmin(c); err != nil {
		return err
	}
	return api.showPeople(c, http.StatusOK, "")
}

func (api *API) showPeople(c *route.Call, status int, fault string) error {
	var rows []personRow
	for _, p := range api.Accounts.List() {
		rows = append(rows, personRow{api.describe(p), p.ID == c.Who.Account.ID, p.Provider == "owner", render.Time(p.First)})
	}
	return page.Write(c.W, status, page.FormPolicy, pages, "people.html", struct {
		shown
		People []personRow
		Roles  []string
		Fault  string
	}{show(c), rows, []string{"rules", "none", "viewer", "member", "admin"}, fault})
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
	return page.Write(c.W, http.StatusOK, page.FormPolicy, pages, "audit.html", struct {
		shown
		Actions []audit.Record
		Fetch   string
	}{show(c), list, "git clone " + c.CloneURL("ramus-people") + " && cd ramus-people && git fetch origin 'refs/ramus/audit/*:refs/remotes/audit/*'"})
}
