package preview

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/route"
)

// An application in a container is hostile, and the person who looks at it is not. So
// it never shares an origin with ramus:
//
//   - With a [Origin] each port of each caller has a host of its own, all of
//     which is the application's. The signed link on ramus's own host leads there with
//     a code that is good once and for a minute, and becomes a cookie of that host alone.
//   - Without one the application is shown below a path of ramus's host, in a sandbox
//     of the browser's that gives it an opaque origin: no cookies, no storage.

// Origin is where each preview has an origin of its own: a URL such as
// https://{label}.preview.example.org or http://{label}.localhost:8080.
type Origin struct {
	scheme string
	domain string // ".preview.example.org"
	port   string // ":8080", or nothing
}

// labelPart stands in the URL of a [Origin] for the name of a preview.
const labelPart = "{label}"

// ParseOrigin reads a URL whose host begins with {label}. own is where people
// reach the server itself, which must not be one of the hosts that the URL means.
func ParseOrigin(s, own string) (*Origin, error) {
	scheme, host, ok := strings.Cut(s, "://"+labelPart+".")
	u, err := url.Parse(scheme + "://" + host)
	if !ok || err != nil || scheme != "http" && scheme != "https" || host == "" || u.Host != host || u.Hostname() == "" || strings.ContainsAny(u.Hostname(), "{}:") {
		return nil, fmt.Errorf("%q is no origin of previews; want https://{label}.preview.example.org, or http://{label}.localhost:8080", s)
	}
	o := &Origin{scheme: scheme, domain: "." + strings.ToLower(u.Hostname())}
	if u.Port() != "" {
		o.port = ":" + u.Port()
	}
	if u, err := url.Parse(own); err == nil && own != "" {
		if _, taken := o.label(u.Host); taken {
			return nil, fmt.Errorf("%q would take %s, which is the server itself; give previews a domain of their own, such as {label}.preview.example.org", s, u.Host)
		}
	}
	return o, nil
}

// label is what stands for {label} in a Host; false when it is no host of previews.
func (o *Origin) label(host string) (string, bool) {
	if o == nil {
		return "", false
	}
	label, ok := strings.CutSuffix(strings.TrimSuffix(strings.ToLower(route.HostName(host)), "."), o.domain)
	return label, ok && label != "" && !strings.Contains(label, ".")
}

// origin is the origin of a preview.
func (o *Origin) origin(label string) string {
	return o.scheme + "://" + label + o.domain + o.port
}

// cookie is what lets a browser in. No other host can set one of that name where
// there is https.
func (o *Origin) cookie() string {
	if o.scheme == "https" {
		return "__Host-ramus-preview"
	}
	return "ramus-preview"
}

// previewLabel is a preview's name in DNS, which allows 63 characters.
func previewLabel(caller record.Caller, port int) string {
	label := fmt.Sprintf("p%d-%s", port, caller.Slug())
	if len(label) <= 63 {
		return label
	}
	sum := sha256.Sum256([]byte(label))
	tail := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
	return strings.TrimSuffix(label[:63-1-len(tail)], "-") + "-" + tail
}

// previewed is a port of a caller, and until when somebody may see it.
type previewed struct {
	caller record.Caller
	port   int
	until  time.Time
}

// codes are what leads from a link to the preview's own origin. They are in memory
// alone: one that a restart loses is made anew by its link.
type codes struct {
	mu   sync.Mutex // guards all below
	open map[string]code
}

type code struct {
	previewed
	expires time.Time
}

// Bounds of codes.
const (
	codeLife = time.Minute
	maxCodes = 4096
)

var errCodes = errors.New("too many links are being opened")

// give makes a code.
func (k *codes) give(p previewed, now time.Time) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, c := range k.open {
		if !now.Before(c.expires) {
			delete(k.open, name)
		}
	}
	if len(k.open) >= maxCodes {
		return "", errCodes
	}
	if k.open == nil {
		k.open = map[string]code{}
	}
	name := rand.Text()
	k.open[name] = code{p, now.Add(codeLife)}
	return name, nil
}

// take redeems a code, once.
func (k *codes) take(name string, now time.Time) (previewed, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.open[name]
	delete(k.open, name)
	return c.previewed, ok && now.Before(c.expires)
}

// openPath is the one path on a preview's host that is not the application's.
const openPath = "/.ramus/open"

// openPreview leads from a signed link to the preview.
func (api *API) openPreview(c *route.Call) error {
	p, err := api.previewed(c)
	if err != nil {
		return err
	}
	if api.Links == nil {
		return route.NewProblem(route.KindConflict, "this server signs no links")
	}
	if p.until = c.Until; p.until.IsZero() {
		p.until = api.Links.Expiry()
	}
	st, err := api.Executor.Caller(c.R.Context(), p.caller.String())
	if errors.Is(err, record.ErrNotFound) || err == nil && c.Until.IsZero() && !c.Who.SeesBranch(st.Repo, st.Branch) {
		return route.NotFound("caller", p.caller.String())
	}
	if err != nil {
		return err
	}
	to := c.Link(links.PreviewPath(p.caller, p.port))
	if api.Origin != nil {
		code, err := api.codes.give(p, api.Now())
		if err != nil {
			return route.NewProblem(route.KindUnavailable, "cannot open the preview: %v", err).WithHint("try again in a minute")
		}
		to = api.Origin.origin(previewLabel(p.caller, p.port)) + openPath + "?code=" + code
	} else {
		to, _, _ = strings.Cut(to, "?")
		to += api.Links.Pass(links.PreviewPath(p.caller, p.port), p.until) + "/"
	}
	page.MarkPrivate(c.W.Header())
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, to, http.StatusSeeOther)
	return nil
}

// previewed is what the path names.
func (api *API) previewed(c *route.Call) (p previewed, err error) {
	if p.caller, err = record.ParseCaller(c.R.PathValue("caller")); err != nil {
		return p, route.NotFound("caller", c.R.PathValue("caller"))
	}
	p.port, err = portNumber(c.R.PathValue("port"))
	return p, err
}

// pathPreview shows what listens at a port below a path of this host, sandboxed.
func (api *API) pathPreview(c *route.Call) error {
	p, err := api.previewed(c)
	if err != nil {
		return err
	}
	if api.Links == nil {
		return route.NotFound("preview", c.R.URL.Path)
	}
	if p.until, err = api.Links.CheckPass(links.PreviewPath(p.caller, p.port), c.R.PathValue("pass")); err != nil {
		return previewClosed(err)
	}
	// /preview/CALLER/PORT/PASS/REST
	parts := strings.SplitN(c.R.URL.EscapedPath(), "/", 6)
	if len(parts) < 6 {
		return route.NotFound("preview", c.R.URL.Path)
	}
	base := c.Link(links.PreviewPath(p.caller, p.port) + c.R.PathValue("pass"))
	if base, _, _ = strings.Cut(base, "?"); c.R.Method == http.MethodOptions && c.R.Header.Get("Access-Control-Request-Method") != "" {
		api.preflight(c)
		return nil
	}
	return api.proxy(c, p, sandboxed{base: base, rest: "/" + parts[5]})
}

// preflight lets a page of an opaque origin, such as the application's own here, ask what it is
// made of: who knows the path may read it, and there is nothing else that lets anybody in.
func (api *API) preflight(c *route.Call) {
	h := c.W.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "*")
	if asked := c.R.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	c.W.WriteHeader(http.StatusNoContent)
}

// previewClosed says why a preview does not open.
func previewClosed(err error) *route.Problem {
	p := route.NewProblem(route.KindDenied, "this preview does not open: %v", err)
	p.Cause = err
	return p.WithHint("follow its link again; a new one is on the run's page, or comes from `ramus preview CALLER`")
}

// errNoPass: the browser has followed no link.
var errNoPass = errors.New("it opens by its link alone")

// ByHost gives requests for hosts of previews to these, and all others to own. No
// route of ramus's is on such a host, and nothing of a preview on another.
func (api *API) ByHost(mux *route.Mux, own http.Handler) http.Handler {
	if api.Origin == nil {
		return own
	}
	route := route.Route{Pattern: labelPart, Access: route.AccessPreview, Summary: "What listens at a port of a caller's container", Media: route.MediaHTML, Body: -1, Handle: api.hostPreview}
	preview := mux.Serve(route, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := api.Origin.label(r.Host); ok {
			preview.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// hostPreview shows what listens at a port on a host of its own.
func (api *API) hostPreview(c *route.Call) error {
	label, _ := api.Origin.label(c.R.Host)
	origin := api.Origin.origin(label)
	switch {
	case api.Links == nil:
		return route.NewProblem(route.KindConflict, "this server signs no links")
	case c.R.URL.Path == openPath:
		return api.enterPreview(c, label)
	case strings.HasPrefix(c.R.URL.Path, "/.ramus/"):
		return route.NewProblem(route.KindNotFound, "there is nothing at %s", c.R.URL.Path)
	}
	p, err := api.admitted(c, label)
	if err != nil {
		return previewClosed(err)
	}
	if err := sameOrigin(c.R, origin); err != nil {
		return err
	}
	return api.proxy(c, p, ownHosted{origin: origin, cookie: api.Origin.cookie()})
}

// enterPreview makes a code a cookie.
func (api *API) enterPreview(c *route.Call, label string) error {
	p, ok := api.codes.take(c.R.URL.Query().Get("code"), api.Now())
	if !ok || previewLabel(p.caller, p.port) != label {
		if _, err := api.admitted(c, label); err != nil { // else it is the way back to where somebody is let in already
			return previewClosed(errors.New("the way to it was used before, or is older than a minute"))
		}
	} else {
		http.SetCookie(c.W, &http.Cookie{Name: api.Origin.cookie(), Value: p.caller.String() + "/" + strconv.Itoa(p.port) + "/" + api.Links.Pass(links.PreviewPath(p.caller, p.port), p.until),
			Path: "/", MaxAge: max(1, int(p.until.Sub(api.Now())/time.Second)), HttpOnly: true, Secure: api.Origin.scheme == "https", SameSite: http.SameSiteLaxMode})
	}
	page.MarkPrivate(c.W.Header())
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, "/", http.StatusSeeOther)
	return nil
}

// admitted is what the request's cookie opens. A hostile application on a sibling host may
// have put other cookies of the name beside it, which open nothing.
func (api *API) admitted(c *route.Call, label string) (previewed, error) {
	err := errNoPass
	for _, cookie := range c.R.CookiesNamed(api.Origin.cookie()) {
		parts := strings.Split(cookie.Value, "/")
		if len(parts) != 3 {
			continue
		}
		caller, cerr := record.ParseCaller(parts[0])
		port, perr := portNumber(parts[1])
		if cerr != nil || perr != nil || previewLabel(caller, port) != label {
			continue
		}
		until, uerr := api.Links.CheckPass(links.PreviewPath(caller, port), parts[2])
		if uerr == nil {
			return previewed{caller, port, until}, nil
		}
		err = uerr
	}
	return previewed{}, err
}

// sameOrigin refuses what pages elsewhere have a browser do that was let in: other
// previews are of the same site, so that their requests carry the cookie. A person
// who follows a link comes through. See https://www.w3.org/TR/fetch-metadata/.
func sameOrigin(r *http.Request, origin string) error {
	h := r.Header
	site := h.Get("Sec-Fetch-Site")
	own := site == "same-origin" || site == "none" || site == ""
	if from := h.Get("Origin"); from != "" && from != origin && (from != "null" || site != "same-origin") {
		own = false
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if own || read && h.Get("Origin") == "" && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	return route.NewProblem(route.KindDenied, "pages elsewhere may not use this preview")
}
