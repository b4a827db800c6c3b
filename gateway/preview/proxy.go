package preview

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/domain"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/route"
)

// stage is the way in which an application is shown. It decides which parts of a request reach the application, and
// which parts of its answer reach the browser.
type stage interface {
	// ask changes the request. The application gets http://localhost:PORT as its own address.
	ask(pr *httputil.ProxyRequest, local string)
	// answer changes the headers of the answer.
	answer(h http.Header, local string)
}

// proxy passes one request to the application and its answer to the browser. A long exchange, such as an open
// websocket, ends when the link that opened it expires, and when the server shuts down.
func (api *API) proxy(c *route.Call, p previewed, as stage) error {
	label := previewLabel(p.caller, p.port)
	done, err := api.connections.Acquire(route.Who{Subject: label})
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithDeadlineCause(c.R.Context(), api.clock(c, p.until), links.ErrExpired)
	defer cancel()
	defer context.AfterFunc(c.Draining(), cancel)()
	// The answer is not searched for secrets. The container has no secrets of the server, and a compressed answer or
	// half a stream cannot be searched.
	c.SendAsIs()
	for _, name := range []string{"X-Content-Type-Options", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"} {
		c.W.Header().Del(name) // only the headers of the application count
	}
	// The application may answer before it has read the whole request. Without full duplex the server reads the rest
	// and closes the body at the answer's first byte. The proxy's transport, which may be reading the body still,
	// then closes its connection to the application, and the answer is cut off.
	rc := http.NewResponseController(c.W)
	if err := rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	local := "localhost:" + strconv.Itoa(p.port)
	var failed error
	proxy := &httputil.ReverseProxy{
		Transport: api.Transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(api.Log.Handler(), slog.LevelDebug),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", p.caller.Slug()+":"+strconv.Itoa(p.port), local
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // unchanged, even if net/url cannot parse it
			if token := route.ReadToken(pr.In); token != "" {
				if _, err := api.Verify(token); err == nil {
					pr.Out.Header.Del("Authorization") // a token of ramus has more rights than this preview
				}
			}
			// The application does not know its public origin, so it gets its local one as the origin of its own
			// pages.
			if from := pr.Out.Header.Get("Origin"); from != "" {
				pr.Out.Header.Set("Origin", "http://"+local)
			}
			domain.RemoveOwn(pr.Out.Header)
			pr.Out.Header.Set(domain.WorkspaceHeader, p.caller.Slug())
			pr.Out.Header.Set(domain.NodeHeader, domain.ThisNode)
			as.ask(pr, local)
		},
		ModifyResponse: func(r *http.Response) error {
			h := r.Header
			maps.DeleteFunc(h, func(name string, _ []string) bool {
				return slices.Contains(foreign, name) || strings.HasPrefix(name, "X-Accel-") ||
					strings.HasPrefix(name, "X-Sendfile")
			})
			h.Set("X-Robots-Tag", "noindex, nofollow")
			h.Set("X-Accel-Buffering", "no") // a proxy that buffers a stream would delay it
			h.Set("Cache-Control", privately(h.Values("Cache-Control")))
			as.answer(h, local)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	proxy.ServeHTTP(finalOnly{c.W}, c.R.WithContext(ctx))
	if failed == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), links.ErrExpired) {
		return previewClosed(links.ErrExpired)
	}
	return api.unseen(c, p, failed)
}

// finalOnly drops informational answers, such as 103 with early headers, because their headers are not filtered.
type finalOnly struct{ http.ResponseWriter }

func (w finalOnly) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w finalOnly) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// clock converts a time of the server's clock to the clock of the machine, which contexts use.
func (api *API) clock(c *route.Call, t time.Time) time.Time {
	return time.Now().Add(t.Sub(api.Now()))
}

// foreign has the headers by which an application could affect more than its own pages, such as other hosts, other
// ports or the proxies before ramus. The names are in canonical form.
var foreign = []string{
	"Alt-Svc", "Cdn-Cache-Control", "Clear-Site-Data", "Nel", "Origin-Agent-Cluster", "Public-Key-Pins", "Report-To",
	"Reporting-Endpoints", "Strict-Transport-Security", "Surrogate-Control", "X-Lighttpd-Send-File", "X-Reproxy-Url",
	"X-Request-Id",
}

// privately returns a Cache-Control that lets the browser cache the answer but no shared cache.
func privately(given []string) string {
	kept := []string{"private"}
	for _, part := range strings.Split(strings.Join(given, ","), ",") {
		part = strings.TrimSpace(part)
		name, _, _ := strings.Cut(strings.ToLower(part), "=")
		if name != "" && name != "public" && name != "private" && name != "s-maxage" && name != "proxy-revalidate" {
			kept = append(kept, part)
		}
	}
	if len(kept) == 1 {
		kept = append(kept, "no-cache")
	}
	return strings.Join(kept, ", ")
}

// unseen returns the problem for a failed request, with the reason.
func (api *API) unseen(c *route.Call, p previewed, err error) error {
	var said *route.Problem
	switch {
	case c.R.Context().Err() != nil:
		return err // the client has gone
	case c.Draining().Err() != nil:
		return record.ErrClosed
	case errors.Is(err, executor.ErrNoPort):
		said = route.NewProblem(route.KindUnavailable, "nothing listens at port %d of %s", p.port, p.caller)
		said.Hint = api.openPorts(c, p.caller)
	case errors.Is(err, executor.ErrGone), errors.Is(err, record.ErrNotFound):
		said = route.NewProblem(route.KindUnavailable, "%s has no container at the moment", p.caller).
			WithHint("it sleeps when nothing is done in it; the next command for it makes a new one, in which the application has to be started again")
	case errors.Is(err, executor.ErrUnavailable), errors.Is(err, record.ErrClosed), errors.Is(err, record.ErrInvalid):
		return err
	default:
		said = route.NewProblem(route.KindUnavailable,
			"the program at port %d of %s gave no answer that can be shown", p.port, p.caller).
			WithHint("it may have ended, or speak no HTTP")
	}
	said.Cause = err
	return said
}

// newTransport returns a transport to the ports of containers. A connection keeps its container awake, so idle
// connections are closed after a few seconds.
func newTransport(programs Programs) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			kind, id, _ := strings.Cut(host, "-")
			caller, err := record.ParseCaller(kind + ":" + id)
			if err != nil {
				return nil, err
			}
			n, err := strconv.Atoi(port)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, dialInside)
			defer cancel()
			return programs.DialPort(ctx, caller, n)
		},
		DisableCompression: true, MaxIdleConnsPerHost: 8, MaxIdleConns: 64, IdleConnTimeout: 5 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// dialInside limits the time to connect to an application.
const dialInside = 30 * time.Second

// ownHosted is the stage of an application with a host of its own.
type ownHosted struct{ origin, cookie string }

// keeps reports whether a cookie is one of ramus, which the application neither sees nor sets. Cookies ignore ports, so
// those of ramus's own pages may come along.
func (o ownHosted) keeps(name string) bool {
	name = strings.TrimSpace(name)
	return name == o.cookie || slices.Contains(route.OwnCookies(), name)
}

func (o ownHosted) ask(pr *httputil.ProxyRequest, local string) {
	h := pr.Out.Header
	u, _ := url.Parse(o.origin) // origin was made from a parsed URL
	h.Set("X-Forwarded-Host", u.Host)
	h.Set("X-Forwarded-Proto", u.Scheme) // X-Forwarded-For is not set, because it would reveal the address of the viewer
	if path, ok := strings.CutPrefix(h.Get("Referer"), o.origin+"/"); ok {
		h.Set("Referer", "http://"+local+"/"+path)
	} else {
		h.Del("Referer")
	}
	// The cookies are filtered as text, because a script can set a cookie that net/http does not parse.
	var kept []string
	for _, line := range h.Values("Cookie") {
		for _, pair := range strings.Split(line, ";") {
			if name, _, _ := strings.Cut(pair, "="); !o.keeps(name) {
				kept = append(kept, strings.TrimSpace(pair))
			}
		}
	}
	h.Del("Cookie")
	if len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
}

func (o ownHosted) answer(h http.Header, local string) {
	relocate(h, local, "")
	// The cookies of the application are restricted to its host. It must not set the cookie of ramus.
	cookies := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range cookies {
		parts := strings.Split(line, ";")
		name, _, _ := strings.Cut(parts[0], "=")
		if o.keeps(name) {
			continue
		}
		parts = slices.DeleteFunc(parts, func(part string) bool {
			name, _, _ := strings.Cut(part, "=")
			return strings.EqualFold(strings.TrimSpace(name), "domain")
		})
		h.Add("Set-Cookie", strings.Join(parts, ";"))
	}
	// With this header, pages of sibling hosts cannot relax their origins to a common one.
	h.Set("Origin-Agent-Cluster", "?1")
}

// sandboxed is the stage of an application below a path of ramus's own host.
type sandboxed struct{ base, rest string }

// sandbox is a policy that gives a page an opaque origin, so the page has no access to this host.
const sandbox = "sandbox allow-scripts allow-forms allow-popups allow-modals"

func (s sandboxed) ask(pr *httputil.ProxyRequest, _ string) {
	u := pr.Out.URL
	u.Path, u.RawPath = s.rest, ""
	if path, err := url.PathUnescape(s.rest); err == nil {
		u.Path, u.RawPath = path, s.rest
	}
	// These headers belong to ramus.
	for _, name := range []string{"Authorization", "Cookie", "Referer"} {
		pr.Out.Header.Del(name)
	}
	pr.Out.Header.Set("X-Forwarded-Prefix", s.base)
}

func (s sandboxed) answer(h http.Header, local string) {
	relocate(h, local, s.base)
	// A password prompt of the application would look like one of this host.
	for _, name := range []string{"Set-Cookie", "Www-Authenticate", "Service-Worker-Allowed", "Access-Control-Allow-Credentials"} {
		h.Del(name)
	}
	h.Add("Content-Security-Policy", sandbox)
	// A page of an opaque origin needs permission for its own scripts and fonts. See preflight.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Referrer-Policy", "no-referrer") // the path contains the pass
}

// relocate changes a redirect to the address at which the browser sees the application.
func relocate(h http.Header, local, base string) {
	to := h.Get("Location")
	if strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		h.Set("Location", base+to)
		return
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" {
		return
	}
	_, port, _ := net.SplitHostPort(local)
	switch u.Host {
	case local, "127.0.0.1:" + port, "[::1]:" + port:
		u.Scheme, u.Host, u.User = "", "", nil
		h.Set("Location", base+"/"+strings.TrimLeft(u.String(), "/"))
	}
}
