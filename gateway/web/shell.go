package web

import (
	"cmp"
	"crypto/rand"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/redact"
)

//go:embed pages
var pageFiles embed.FS

// parsed returns the templates of this package, which are never executed, because others could not copy them then. They are
// parsed at the first call, because most commands need none. pages returns those that are executed.
var (
	parsed = sync.OnceValue(func() *template.Template {
		return template.Must(template.New("").Funcs(functions).ParseFS(pageFiles, "pages/*.html"))
	})
	pages = sync.OnceValue(NewTemplates)
)

// Page is the present content of a path. A builder sets the exported fields.
type Page struct {
	Title string
	// Nav is the entry of the navigation that the page belongs to, such as "workspaces".
	Nav string
	// Template is the name of the template of the content, whose data is the Page. Data is for the template.
	Template string
	Data     any
	// Topics wake the page in open tabs. A page without topics does not change while people look at it.
	Topics []string
	// Beat is how often the page is made again without a change. Zero means never.
	Beat time.Duration
	// Status is the HTTP status. Zero means 200.
	Status int
	// Layout is "full", "narrow" or, for a page without navigation that is no form, [layoutWide]. Empty is the usual width.
	Layout string
	// Bare leaves out the navigation. It is for pages before the sign-in.
	Bare bool
	// Refresh is after how many seconds a browser without scripts loads the page again. Zero means never.
	Refresh int
	// Templates has the template of the content. Nil means the templates of this package.
	Templates *template.Template
	// Sheets are the style sheets that the page needs and others do not ("term.css"). Those that were not built are left out.
	Sheets []string
	// Follow is the path and query that open tabs follow, if they are not those of the request.
	Follow string
	// Missing names the servers of the installation whose items the page lacks. It is set by this package.
	Missing []string
	// Needs is the number of things that wait for the person, and NeedsTitle whether the title shows it.
	Needs int

	shell     *shell
	call      *route.Call
	nonce     string
	wrong     *uploadProblem // of the form of files, or nil
	misnamed  *nameProblem   // of the form of a session's name, or nil
	fragments []live.Fragment
	body      template.HTML
	lack      template.HTML // the notice of Missing
}

// Who returns the person that looks at the page.
func (p *Page) Who() route.Who { return p.call.Who }

// Person returns the name of the person, for people.
func (p *Page) Person() string {
	who := p.call.Who
	switch {
	case who.Name != "":
		return who.Name
	case who.Local:
		return "you"
	}
	return who.Subject
}

// Owner returns a mark of the person, for the data that browsers keep. Returns "" if nobody is signed in.
func (p *Page) Owner() string {
	if p.call.Who.Nobody() || p.call.Who.Stranger() {
		return ""
	}
	return live.Hash("person " + p.call.Who.Subject)
}

// FullTitle returns the title of the document.
func (p *Page) FullTitle() string {
	title := p.Title + " · ramus"
	if p.Needs > 0 {
		title = fmt.Sprintf("(%d) %s", p.Needs, title)
	}
	return title
}

// At returns the path and query of the page if open tabs follow it, and "" otherwise.
func (p *Page) At() string {
	if len(p.Topics) == 0 || !p.shell.follow {
		return ""
	}
	if p.Follow != "" {
		return p.Href(p.Follow)
	}
	return p.call.R.URL.RequestURI()
}

// Href returns a link to a path of this server.
func (p *Page) Href(path string) string { return p.shell.address + path }

// Asset returns the path of a file that pages load, and "" if the build has none.
func (p *Page) Asset(name string) string {
	if p.shell.noScript && strings.HasSuffix(name, ".js") {
		return ""
	}
	return p.shell.assets.path(p.shell.address, name)
}

// Nonce returns what admits style elements on this page alone, for a script that makes them. A page whose template does not ask for it admits
// none.
func (p *Page) Nonce() string {
	if p.nonce == "" {
		p.nonce = rand.Text()
	}
	return p.nonce
}

// Incomplete returns how to build the parts that this build lacks, and "" if it lacks none.
func (p *Page) Incomplete() string {
	if p.shell.noScript {
		return ""
	}
	return p.shell.assets.incomplete
}

// endsSoon is how long before the end of a session its pages say so.
const endsSoon = 15 * time.Minute

// SessionEnd is the end of the session of a page.
type SessionEnd struct {
	At   time.Time
	Left int    // seconds
	Soon int    // seconds before the end from which on the page says so
	Now  bool   // say so from the beginning
	Path string // where the person signs in again, and comes back
}

// SessionEnd returns the end of the person's session, or nil if there is none.
func (p *Page) SessionEnd() *SessionEnd {
	a := p.call.Who.Account
	if a == nil || a.Ends.IsZero() {
		return nil
	}
	left := a.Ends.Sub(p.shell.now())
	back := url.Values{"again": {"1"}, route.BackParameter: {p.call.R.URL.RequestURI()}}
	return &SessionEnd{At: a.Ends, Left: max(0, int(left/time.Second)), Soon: int(endsSoon / time.Second), Now: left <= endsSoon,
		Path: p.Href("/auth?" + back.Encode())}
}

// SignIn returns the path where a stranger signs in and comes back.
func (p *Page) SignIn() string { return p.Href(route.SignInLink(p.call.R.URL.RequestURI(), false)) }

// SignOut returns the path of the form that signs out, and "" if nobody can.
func (p *Page) SignOut() string { return p.shell.signOut }

// Theme returns the theme that the person chose, and "" for that of the system.
func (p *Page) Theme() string { return chosen(p.call.R, themeCookie, "light", "dark") }

// Density returns the density that the person chose, and "" for the usual one.
func (p *Page) Density() string { return chosen(p.call.R, densityCookie, "compact") }

// Keys returns "off" if the person switched single keys off.
func (p *Page) Keys() string { return chosen(p.call.R, keysCookie, "off") }

// chosen returns the value of a cookie if it is one of the values.
func chosen(r *http.Request, name string, values ...string) string {
	k, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	for _, v := range values {
		if k.Value == v {
			return v
		}
	}
	return ""
}

// NavEntry is an entry of the navigation.
type NavEntry struct {
	Text, Path, Icon string
	Current, Apart   bool
}

// Rail returns the entries of the navigation on wide screens.
func (p *Page) Rail() []NavEntry {
	list := []NavEntry{
		{Text: "Dashboard", Path: "/dashboard", Icon: "inbox"},
		{Text: "Workspaces", Path: "/workspaces", Icon: "branch"},
		{Text: "Tasks", Path: "/tasks", Icon: "task"},
		{Text: "Repositories", Path: "/repos", Icon: "repo"},
		{Text: "Machines", Path: "/nodes", Icon: "node"},
		{Text: "Settings", Path: "/settings", Icon: "settings", Apart: true},
	}
	for i := range list {
		list[i].Current = "/"+p.Nav == list[i].Path
	}
	return list
}

// Bar returns the entries of the navigation on phones.
func (p *Page) Bar() []NavEntry {
	return []NavEntry{
		{Text: "Inbox", Path: "/dashboard", Icon: "inbox", Current: p.Nav == "dashboard"},
		{Text: "Work", Path: "/workspaces", Icon: "branch", Current: p.Nav == "workspaces"},
		{Text: "New", Path: "/workspaces/new", Icon: "plus", Current: p.Nav == "new", Apart: true},
		{Text: "Search", Path: "/search#q", Icon: "search", Current: p.Nav == "search"},
		{Text: "Me", Path: "/settings", Icon: "person", Current: p.Nav == "settings"},
	}
}

// Lack returns the notice of the servers that the page lacks.
func (p *Page) Lack() template.HTML { return p.lack }

// Several reports whether the installation has several servers.
func (p *Page) Several() bool { return p.shell.several }

// Body returns the content of the page.
func (p *Page) Body() template.HTML { return p.body }

// Live returns the element that a template makes of data, as a fragment of the list in. The template makes one element. Fragments are not
// nested.
func (p *Page) Live(in, name, key string, data any) (template.HTML, error) {
	var b strings.Builder
	if err := p.templates().ExecuteTemplate(&b, name, fragmentData{p, data}); err != nil {
		return "", err
	}
	html := strings.TrimSpace(p.shell.secrets.String(b.String()))
	tag, rest, ok := cutTag(html)
	if !ok {
		return "", fmt.Errorf("the fragment %s is not an element", name)
	}
	hash := live.Hash(html)
	html = tag + ` data-key="` + template.HTMLEscapeString(key) + `" data-hash="` + hash + `"` + rest
	p.fragments = append(p.fragments, live.Fragment{Key: key, In: in, Hash: hash, HTML: html})
	return template.HTML(html), nil
}

// layoutWide is the layout of pages for people who are not signed in.
const layoutWide = "wide"

// fragmentData is the data of the template of a fragment.
type fragmentData struct {
	Page *Page
	Data any
}

// cutTag cuts an element after the name of its tag.
func cutTag(html string) (tag, rest string, ok bool) {
	if !strings.HasPrefix(html, "<") {
		return "", "", false
	}
	end := strings.IndexAny(html, " >\n\t")
	if end < 2 {
		return "", "", false
	}
	return html[:end], html[end:], true
}

func (p *Page) templates() *template.Template {
	if p.Templates != nil {
		return p.Templates
	}
	return pages()
}

// shell is the frame of all pages.
type shell struct {
	address string // below which people reach the server
	assets  *Assets
	secrets *redact.Secrets // which are removed from pages
	signOut string          // the path of the form that signs out, or empty
	now     func() time.Time

	noScript bool // leave out all scripts
	follow   bool // open tabs follow their pages
	several  bool // the installation has several servers
	exports  bool // there are pages of exports
	shares   bool // there are links for people who do not sign in
}

func (sh *shell) register(t *table) {
	t.route(route.Route{Method: "GET", Pattern: assetsPath + "{file}", Access: route.AccessPublic, Summary: "Style sheets and scripts of pages",
		Media: route.MediaBytes, Handle: sh.asset})
}

// fill makes the content of a page.
func (sh *shell) fill(c *route.Call, p *Page) (string, error) {
	p.shell, p.call = sh, c
	if c.Who.Stranger() {
		p.Bare, p.Layout = true, cmp.Or(p.Layout, layoutWide)
	}
	var b strings.Builder
	if err := p.templates().ExecuteTemplate(&b, p.Template, p); err != nil {
		return "", fmt.Errorf("cannot make the page: %w", err)
	}
	p.body = template.HTML(b.String())
	if len(p.Missing) > 0 {
		var err error
		if p.lack, err = p.Live("lack", "lack", "lack", strings.Join(p.Missing, ", ")); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// write answers with a page. The page is complete before its first byte is sent.
func (sh *shell) write(c *route.Call, p *Page) error {
	if _, err := sh.fill(c, p); err != nil {
		return err
	}
	var b strings.Builder
	if err := pages().ExecuteTemplate(&b, "shell.html", p); err != nil {
		return fmt.Errorf("cannot make the page: %w", err)
	}
	h := c.W.Header()
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "private, no-cache")
	}
	if p.nonce != "" {
		h.Set("Cache-Control", "private, no-store") // each answer has a nonce of its own
	}
	setHeaders(h, sh.noScript || p.Asset("app.js") == "", p.nonce)
	c.W.WriteHeader(max(p.Status, http.StatusOK))
	_, err := c.W.Write([]byte(b.String()))
	return err
}

// NewTemplates returns a set of templates for the pages of another package. It has the templates and functions of this one.
func NewTemplates() *template.Template { return template.Must(parsed().Clone()) }

// policy returns the Content-Security-Policy of a page. A nonce that is not empty admits the style elements that have it.
func policy(noScript bool, nonce string) string {
	style := "style-src 'self'"
	if nonce != "" {
		style += " 'nonce-" + nonce + "'"
	}
	script := "script-src 'self'; connect-src 'self'; worker-src 'self'"
	if noScript {
		script = "script-src 'none'"
	}
	return "default-src 'none'; " + script +
		"; " + style + "; img-src 'self'; media-src 'self'; form-action 'self'; base-uri 'none'; " +
		"frame-ancestors 'none'; object-src 'none'; manifest-src 'self'; require-trusted-types-for 'script'; trusted-types ramus"
}

// setHeaders sets the headers of a page. The nonce is that of its style elements, or empty.
func setHeaders(h http.Header, noScript bool, nonce string) {
	page.MarkPrivate(h)
	h.Set("Content-Type", route.MediaHTML)
	h.Set("Content-Security-Policy", policy(noScript, nonce))
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}
