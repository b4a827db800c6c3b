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
	"github.com/ramus-dev/ramus/gateway/domain"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/route"
)

// An application in a container is hostile. The person who looks at it is not. Therefore an application never shares
// an origin with ramus.
//
//   - With an [Origin] each port of each caller has a host of its own, and the whole host belongs to the application.
//     It may be below the domain of the server, see [OfDomain]. The signed link on ramus's own host redirects there
//     with a code. The code is valid once and for a minute. It is exchanged for a cookie of that host.
//   - Without one the application is shown below a path of ramus's host, in a sandbox of the browser. The sandbox has
//     an opaque origin, without cookies and storage.

// Origin gives each preview an origin of its own. A nil Origin gives none.
type Origin struct {
	scheme string
	hosts  hosts
}

// hosts are the hosts of previews.
type hosts interface {
	// label returns the first part of the host of a preview. Returns false if host is none.
	label(host string) (string, bool)
	// isBelow reports whether a host is one below the host of a preview, at which nothing is served.
	isBelow(host string) bool
	// name returns the label of the host of a port of a caller.
	name(caller record.Caller, port int) string
	// origin returns the origin of the preview with a label.
	origin(label string) string
}

// OfDomain returns the origins of previews below the domain of the server: ws-WORKSPACE--PORT.DOMAIN.
func OfDomain(d *domain.Domain) *Origin {
	scheme := "http"
	if d.Secure() {
		scheme = "https"
	}
	return &Origin{scheme, sharedHosts{d}}
}

// sharedHosts are hosts of the server's own domain, which has others too.
type sharedHosts struct{ domain *domain.Domain }

func (s sharedHosts) label(host string) (string, bool) {
	place := s.domain.Find(host)
	return place.Label, place.Part == domain.Port
}

func (s sharedHosts) isBelow(string) bool { return false } // the domain has checked the host

func (s sharedHosts) name(caller record.Caller, port int) string {
	return s.domain.PortLabel(caller, port)
}

func (s sharedHosts) origin(label string) string { return s.domain.PortURL(label) }

// labelPart is the part of the URL of [ParseOrigin] that the label of a preview replaces.
const labelPart = "{label}"

// ParseOrigin parses a pattern of URLs such as https://{label}.preview.example.org or http://{label}.localhost:8080.
// own is the URL at which people reach the server itself. Returns an error if own is one of the hosts that the pattern
// matches.
func ParseOrigin(s, own string) (*Origin, error) {
	scheme, host, ok := strings.Cut(s, "://"+labelPart+".")
	u, err := url.Parse(scheme + "://" + host)
	if !ok || err != nil || scheme != "http" && scheme != "https" || host == "" || u.Host != host ||
		u.Hostname() == "" || strings.ContainsAny(u.Hostname(), "{}:") {
		return nil, fmt.Errorf("%q is no origin of previews; want https://{label}.preview.example.org, or http://{label}.localhost:8080", s)
	}
	o := separateHosts{scheme: scheme, domain: "." + strings.ToLower(u.Hostname())}
	if u.Port() != "" {
		o.port = ":" + u.Port()
	}
	if u, err := url.Parse(own); err == nil && own != "" {
		if _, taken := o.label(u.Host); taken {
			return nil, fmt.Errorf("%q would take %s, which is the server itself; give previews a domain of their own, such as {label}.preview.example.org", s, u.Host)
		}
	}
	return &Origin{scheme, o}, nil
}

// separateHosts are all hosts below a domain that only previews have.
type separateHosts struct {
	scheme string
	domain string // ".preview.example.org"
	port   string // ":8080", or ""
}

func (s separateHosts) label(host string) (string, bool) {
	label, ok := s.cut(host)
	return label, ok && label != "" && !strings.Contains(label, ".")
}

func (s separateHosts) isBelow(host string) bool {
	label, ok := s.cut(host)
	return ok && strings.Contains(label, ".")
}

// cut returns the part of a host before the domain. Returns false if the host is not below it.
func (s separateHosts) cut(host string) (string, bool) {
	return strings.CutSuffix(strings.TrimSuffix(strings.ToLower(route.HostName(host)), "."), s.domain)
}

func (s separateHosts) name(caller record.Caller, port int) string { return previewLabel(caller, port) }

func (s separateHosts) origin(label string) string {
	return s.scheme + "://" + label + s.domain + s.port
}

// WithTLS returns the origin of the preview that has a host. Returns "" if the host is none of previews, or previews
// have no TLS.
func (o *Origin) WithTLS(host string) string {
	if o == nil || o.scheme != "https" {
		return ""
	}
	label, ok := o.hosts.label(host)
	if !ok || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return ""
	}
	return o.hosts.origin(label)
}

// isHostOf reports whether a URL has the host.
func isHostOf(address, host string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.EqualFold(u.Hostname(), route.HostName(host))
}

// cookie returns the name of the cookie that admits a browser. With https, no other host can set a cookie of that
// name.
func (o *Origin) cookie() string {
	if o.scheme == "https" {
		return "__Host-ramus-preview"
	}
	return "ramus-preview"
}

// previewLabel returns the name of a preview in DNS, which allows 63 characters.
func previewLabel(caller record.Caller, port int) string {
	label := fmt.Sprintf("p%d-%s", port, caller.Slug())
	if len(label) <= 63 {
		return label
	}
	sum := sha256.Sum256([]byte(label))
	tail := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
	return strings.TrimSuffix(label[:63-1-len(tail)], "-") + "-" + tail
}

// previewed is a port of a caller, and the time until which the viewer may see it.
type previewed struct {
	caller record.Caller
	port   int
	until  time.Time
}

// codes are the codes with which a link redirects to the preview's own origin. They are only in memory. After a
// restart, following the link again creates a new code.
type codes struct {
	mu   sync.Mutex // guards all fields below
	open map[string]code
}

type code struct {
	previewed
	expires time.Time
}

// Limits of codes.
const (
	codeLife = time.Minute
	maxCodes = 4096
)

var errCodes = errors.New("too many links are being opened")

// give returns a new code. Returns errCodes if too many codes are open.
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

// redeemCode redeems a code. A code can be redeemed once.
func (k *codes) redeemCode(name string, now time.Time) (previewed, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.open[name]
	delete(k.open, name)
	return c.previewed, ok && now.Before(c.expires)
}

// openPath is the only path on the host of a preview that does not belong to the application.
const openPath = "/.ramus/open"

// openPreview redirects from a signed link to the preview.
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
	if errors.Is(err, record.ErrNotFound) || err == nil && c.Until.IsZero() && !c.Who.SeesCaller(st) {
		return route.NotFound("caller", p.caller.String())
	}
	if err != nil {
		return err
	}
	to := c.Link(links.PreviewPath(p.caller, p.port))
	if api.Origin != nil {
		code, err := api.codes.give(p, api.Now())
		if err != nil {
			return route.NewProblem(route.KindUnavailable, "cannot open the preview: %v",
				err).WithHint("try again in a minute")
		}
		to = api.Origin.hosts.origin(api.Origin.hosts.name(p.caller, p.port)) + openPath + "?code=" + code
	} else {
		to, _, _ = strings.Cut(to, "?")
		to += api.Links.Pass(links.PreviewPath(p.caller, p.port), p.until) + "/"
	}
	page.MarkPrivate(c.W.Header())
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, to, http.StatusSeeOther)
	return nil
}

// previewed returns the port of a caller that the path names.
func (api *API) previewed(c *route.Call) (p previewed, err error) {
	if p.caller, err = record.ParseCaller(c.R.PathValue("caller")); err != nil {
		return p, route.NotFound("caller", c.R.PathValue("caller"))
	}
	p.port, err = portNumber(c.R.PathValue("port"))
	return p, err
}

// pathPreview shows the application at a port below a path of this host, sandboxed.
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

// preflight answers a CORS preflight. The page of an application has an opaque origin here and must be allowed to load
// its own parts. Everybody who knows the path may read the page, and there are no other credentials.
func (api *API) preflight(c *route.Call) {
	h := c.W.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "*")
	if asked := c.R.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	c.W.WriteHeader(http.StatusNoContent)
}

// previewClosed returns the problem of a preview that cannot be opened.
func previewClosed(err error) *route.Problem {
	p := route.NewProblem(route.KindDenied, "this preview does not open: %v", err)
	p.Cause = err
	return p.WithHint("follow its link again; a new one is on the run's page, or comes from `ramus preview CALLER`")
}

// errNoPass is the error of a browser that has followed no link.
var errNoPass = errors.New("it opens by its link alone")

// ByHost returns a handler that serves requests for hosts of previews and passes all other requests to own. No route
// of ramus is on the host of a preview, and no preview is on another host.
func (api *API) ByHost(mux *route.Mux, own http.Handler) http.Handler {
	if api.Origin == nil {
		return own
	}
	way := route.Route{Pattern: labelPart, Access: route.AccessPreview,
		Summary: "The program at a port of a caller's container", Media: route.MediaHTML, Body: -1, Handle: api.hostPreview}
	preview := mux.Serve(way, nil)
	way.Handle = func(c *route.Call) error {
		return route.NewProblem(route.KindNotFound, "there is nothing at %s", c.R.Host)
	}
	nothing := mux.Serve(way, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := api.Origin.hosts.label(r.Host); ok {
			preview.ServeHTTP(w, r)
			return
		}
		if api.Origin.hosts.isBelow(r.Host) && !isHostOf(mux.URL, r.Host) {
			nothing.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// hostPreview shows the application at a port on a host of its own.
func (api *API) hostPreview(c *route.Call) error {
	label, _ := api.Origin.hosts.label(c.R.Host)
	origin := api.Origin.hosts.origin(label)
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

// enterPreview exchanges a code for a cookie.
func (api *API) enterPreview(c *route.Call, label string) error {
	p, ok := api.codes.redeemCode(c.R.URL.Query().Get("code"), api.Now())
	if !ok || api.Origin.hosts.name(p.caller, p.port) != label {
		if _, err := api.admitted(c, label); err != nil { // a browser with a valid cookie may open an old link again
			return previewClosed(errors.New("the way to it was used before, or is older than a minute"))
		}
	} else {
		http.SetCookie(c.W, &http.Cookie{Name: api.Origin.cookie(), Value: p.caller.String() + "/" +
			strconv.Itoa(p.port) + "/" + api.Links.Pass(links.PreviewPath(p.caller, p.port), p.until),
			Path: "/", MaxAge: max(1, int(p.until.Sub(api.Now())/time.Second)), HttpOnly: true,
			Secure: api.Origin.scheme == "https", SameSite: http.SameSiteLaxMode})
	}
	page.MarkPrivate(c.W.Header())
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, "/", http.StatusSeeOther)
	return nil
}

// admitted returns the preview that a cookie of the request opens. A hostile application on a sibling host may have
// set further cookies of the same name. Such cookies open nothing.
func (api *API) admitted(c *route.Call, label string) (previewed, error) {
	err := errNoPass
	for _, cookie := range c.R.CookiesNamed(api.Origin.cookie()) {
		parts := strings.Split(cookie.Value, "/")
		if len(parts) != 3 {
			continue
		}
		caller, cerr := record.ParseCaller(parts[0])
		port, perr := portNumber(parts[1])
		if cerr != nil || perr != nil || api.Origin.hosts.name(caller, port) != label {
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

// sameOrigin refuses requests that pages of other origins make through an admitted browser. Other previews belong to
// the same site, so their requests carry the cookie. A navigation of a person who follows a link is allowed. See
// https://www.w3.org/TR/fetch-metadata/.
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
