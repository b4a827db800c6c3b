package gateway

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
)

// An application in a container is hostile, and the person who looks at it is not. So
// it never shares an origin with ramus:
//
//   - With a [PreviewOrigin] each port of each caller has a host of its own, all of
//     which is the application's. The signed link on ramus's own host leads there with
//     a code that is good once and for a minute, and becomes a cookie of that host alone.
//   - Without one the application is shown below a path of ramus's host, in a sandbox
//     of the browser's that gives it an opaque origin: no cookies, no storage.

// PreviewOrigin is where each preview has an origin of its own: a URL such as
// https://{label}.preview.example.org or http://{label}.localhost:8080.
type PreviewOrigin struct {
	scheme string
	domain string // ".preview.example.org"
	port   string // ":8080", or nothing
}

// labelPart stands in the URL of a [PreviewOrigin] for the name of a preview.
const labelPart = "{label}"

// ParsePreviewOrigin reads a URL whose host begins with {label}. own is where people
// reach the server itself, which must not be one of the hosts that the URL means.
func ParsePreviewOrigin(s, own string) (*PreviewOrigin, error) {
	scheme, host, ok := strings.Cut(s, "://"+labelPart+".")
	u, err := url.Parse(scheme + "://" + host)
	if !ok || err != nil || scheme != "http" && scheme != "https" || host == "" || u.Host != host || u.Hostname() == "" || strings.ContainsAny(u.Hostname(), "{}:") {
		return nil, fmt.Errorf("%q is no origin of previews; want https://{label}.preview.example.org, or http://{label}.localhost:8080", s)
	}
	o := &PreviewOrigin{scheme: scheme, domain: "." + strings.ToLower(u.Hostname())}
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
func (o *PreviewOrigin) label(host string) (string, bool) {
	if o == nil {
		return "", false
	}
	label, ok := strings.CutSuffix(strings.TrimSuffix(strings.ToLower(hostName(host)), "."), o.domain)
	return label, ok && label != "" && !strings.Contains(label, ".")
}

// origin is the origin of a preview.
func (o *PreviewOrigin) origin(label string) string {
	return o.scheme + "://" + label + o.domain + o.port
}

// cookie is what lets a browser in. No other host can set one of that name where
// there is https.
func (o *PreviewOrigin) cookie() string {
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
func (c *call) openPreview() error {
	p, err := c.previewed()
	if err != nil {
		return err
	}
	if c.Links == nil {
		return problem(KindConflict, "this server signs no links")
	}
	if p.until = c.Until; p.until.IsZero() {
		p.until = c.Links.Expiry()
	}
	st, err := c.Executor.Caller(c.R.Context(), p.caller.String())
	if errors.Is(err, record.ErrNotFound) || err == nil && c.Until.IsZero() && !c.Who.seesBranch(st.Repo, st.Branch) {
		return notFound("caller", p.caller.String())
	}
	if err != nil {
		return err
	}
	to := c.link(previewPath(p.caller, p.port))
	if c.Preview != nil {
		code, err := c.codes.give(p, c.Now())
		if err != nil {
			return problem(KindUnavailable, "cannot open the preview: %v", err).withHint("try again in a minute")
		}
		to = c.Preview.origin(previewLabel(p.caller, p.port)) + openPath + "?code=" + code
	} else {
		to, _, _ = strings.Cut(to, "?")
		to += c.Links.Pass(previewPath(p.caller, p.port), p.until) + "/"
	}
	c.private()
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, to, http.StatusSeeOther)
	return nil
}

// previewed is what the path names.
func (c *call) previewed() (p previewed, err error) {
	if p.caller, err = record.ParseCaller(c.R.PathValue("caller")); err != nil {
		return p, notFound("caller", c.R.PathValue("caller"))
	}
	p.port, err = portNumber(c.R.PathValue("port"))
	return p, err
}

// pathPreview shows what listens at a port below a path of this host, sandboxed.
func (c *call) pathPreview() error {
	p, err := c.previewed()
	if err != nil {
		return err
	}
	if c.Links == nil {
		return notFound("preview", c.R.URL.Path)
	}
	if p.until, err = c.Links.CheckPass(previewPath(p.caller, p.port), c.R.PathValue("pass")); err != nil {
		return previewClosed(err)
	}
	// /preview/CALLER/PORT/PASS/REST
	parts := strings.SplitN(c.R.URL.EscapedPath(), "/", 6)
	if len(parts) < 6 {
		return notFound("preview", c.R.URL.Path)
	}
	base := c.link(previewPath(p.caller, p.port) + c.R.PathValue("pass"))
	if base, _, _ = strings.Cut(base, "?"); c.R.Method == http.MethodOptions && c.R.Header.Get("Access-Control-Request-Method") != "" {
		c.preflight()
		return nil
	}
	return c.proxy(p, sandboxed{base: base, rest: "/" + parts[5]})
}

// preflight lets a page of an opaque origin, such as the application's own here, ask what it is
// made of: who knows the path may read it, and there is nothing else that lets anybody in.
func (c *call) preflight() {
	h := c.W.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "*")
	if asked := c.R.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	c.W.WriteHeader(http.StatusNoContent)
}

// previewClosed says why a preview does not open.
func previewClosed(err error) *Problem {
	p := problem(KindDenied, "this preview does not open: %v", err)
	p.cause = err
	return p.withHint("follow its link again; a new one is on the run's page, or comes from `ramus preview CALLER`")
}

// errNoPass: the browser has followed no link.
var errNoPass = errors.New("it opens by its link alone")

// byHost gives requests for hosts of previews to these, and all others to own. No
// route of ramus's is on such a host, and nothing of a preview on another.
func (s *Server) byHost(own http.Handler) http.Handler {
	if s.Preview == nil {
		return own
	}
	route := Route{Pattern: labelPart, Access: AccessPreview, Summary: "What listens at a port of a caller's container", Media: mediaHTML, Body: -1, Handle: (*call).hostPreview}
	preview := s.serve(route, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.Preview.label(r.Host); ok {
			preview.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// hostPreview shows what listens at a port on a host of its own.
func (c *call) hostPreview() error {
	label, _ := c.Preview.label(c.R.Host)
	origin := c.Preview.origin(label)
	switch {
	case c.Links == nil:
		return problem(KindConflict, "this server signs no links")
	case c.R.URL.Path == openPath:
		return c.enterPreview(label)
	case strings.HasPrefix(c.R.URL.Path, "/.ramus/"):
		return problem(KindNotFound, "there is nothing at %s", c.R.URL.Path)
	}
	p, err := c.admitted(label)
	if err != nil {
		return previewClosed(err)
	}
	if err := sameOrigin(c.R, origin); err != nil {
		return err
	}
	return c.proxy(p, ownHosted{origin: origin, cookie: c.Preview.cookie()})
}

// enterPreview makes a code a cookie.
func (c *call) enterPreview(label string) error {
	p, ok := c.codes.take(c.R.URL.Query().Get("code"), c.Now())
	if !ok || previewLabel(p.caller, p.port) != label {
		if _, err := c.admitted(label); err != nil { // else it is the way back to where somebody is let in already
			return previewClosed(errors.New("the way to it was used before, or is older than a minute"))
		}
	} else {
		http.SetCookie(c.W, &http.Cookie{Name: c.Preview.cookie(), Value: p.caller.String() + "/" + strconv.Itoa(p.port) + "/" + c.Links.Pass(previewPath(p.caller, p.port), p.until),
			Path: "/", MaxAge: max(1, int(p.until.Sub(c.Now())/time.Second)), HttpOnly: true, Secure: c.Preview.scheme == "https", SameSite: http.SameSiteLaxMode})
	}
	c.private()
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, "/", http.StatusSeeOther)
	return nil
}

// admitted is what the request's cookie opens. A hostile application on a sibling host may
// have put other cookies of the name beside it, which open nothing.
func (c *call) admitted(label string) (previewed, error) {
	err := errNoPass
	for _, cookie := range c.R.CookiesNamed(c.Preview.cookie()) {
		parts := strings.Split(cookie.Value, "/")
		if len(parts) != 3 {
			continue
		}
		caller, cerr := record.ParseCaller(parts[0])
		port, perr := portNumber(parts[1])
		if cerr != nil || perr != nil || previewLabel(caller, port) != label {
			continue
		}
		until, uerr := c.Links.CheckPass(previewPath(caller, port), parts[2])
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
	return problem(KindDenied, "pages elsewhere may not use this preview")
}
