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
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/route"
)

// stage is how an application is shown: what of a request reaches it, and what of its answer
// reaches the browser.
type stage interface {
	// ask changes what is asked of the application, which believes to be at http://localhost:PORT.
	ask(pr *httputil.ProxyRequest, local string)
	// answer changes what it says.
	answer(h http.Header, local string)
}

// proxy shows one request's answer of the application. What goes on, an open
// websocket say, ends with the link by which it was opened, and with the server.
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
	// What the container says is its own: there are no secrets of the server's in it, and
	// what was compressed or is half a stream cannot be searched.
	c.SendAsIs()
	for _, name := range []string{"X-Content-Type-Options", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"} {
		c.W.Header().Del(name) // the application's are what counts
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
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // also one that net/url cannot read
			if token := route.ReadToken(pr.In); token != "" {
				if _, err := api.Verify(token); err == nil {
					pr.Out.Header.Del("Authorization") // a token of ramus's opens more than this
				}
			}
			// Its own pages may be told apart from others, which it may not know of.
			if from := pr.Out.Header.Get("Origin"); from != "" {
				pr.Out.Header.Set("Origin", "http://"+local)
			}
			as.ask(pr, local)
		},
		ModifyResponse: func(r *http.Response) error {
			h := r.Header
			maps.DeleteFunc(h, func(name string, _ []string) bool {
				return slices.Contains(foreign, name) || strings.HasPrefix(name, "X-Accel-") || strings.HasPrefix(name, "X-Sendfile")
			})
			h.Set("X-Robots-Tag", "noindex, nofollow")
			h.Set("X-Accel-Buffering", "no") // a proxy that collects a stream hides it
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

// finalOnly leaves out informational answers, such as 103 with headers for what comes: none of
// those headers are looked through.
type finalOnly struct{ http.ResponseWriter }

func (w finalOnly) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w finalOnly) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// clock is a time of the server's clock on the machine's, which contexts go by.
func (api *API) clock(c *route.Call, t time.Time) time.Time {
	return time.Now().Add(t.Sub(api.Now()))
}

// foreign are headers by which an application would speak for more than its pages:
// for other hosts and other ports, or to the proxies before ramus. In their canonical form.
var foreign = []string{
	"Alt-Svc", "Cdn-Cache-Control", "Clear-Site-Data", "Nel", "Origin-Agent-Cluster", "Public-Key-Pins", "Report-To",
	"Reporting-Endpoints", "Strict-Transport-Security", "Surrogate-Control", "X-Lighttpd-Send-File", "X-Reproxy-Url", "X-Request-Id",
}

// privately lets the browser keep what it may keep, and nobody between.
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

// unseen says why there is nothing to see.
func (api *API) unseen(c *route.Call, p previewed, err error) error {
	var said *route.Problem
	switch {
	case c.R.Context().Err() != nil:
		return err // nobody waits for it
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
		said = route.NewProblem(route.KindUnavailable, "what listens at port %d of %s gave no answer that could be shown", p.port, p.caller).
			WithHint("it may have ended, or speak no HTTP")
	}
	said.Cause = err
	return said
}

// newTransport returns a transport to the ports of containers. A connection keeps its container awake, so that none is
// kept for long.
func newTransport(x Executor) *http.Transport {
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
			return x.DialPort(ctx, caller, n)
		},
		DisableCompression: true, MaxIdleConnsPerHost: 8, MaxIdleConns: 64, IdleConnTimeout: 5 * time.Second, MaxResponseHeaderBytes: 256 << 10,
	}
}

// dialInside bounds a connection to an application.
const dialInside = 30 * time.Second

// ownHosted is an application with a host of its own.
type ownHosted struct{ origin, cookie string }

func (o ownHosted) ask(pr *httputil.ProxyRequest, local string) {
	h := pr.Out.Header
	u, _ := url.Parse(o.origin) // it was made from what was parsed
	h.Set("X-Forwarded-Host", u.Host)
	h.Set("X-Forwarded-Proto", u.Scheme) // X-Forwarded-For would tell where the viewer is
	if path, ok := strings.CutPrefix(h.Get("Referer"), o.origin+"/"); ok {
		h.Set("Referer", "http://"+local+"/"+path)
	} else {
		h.Del("Referer")
	}
	// As text: what a page's own script made a cookie need not be what net/http takes for one.
	var kept []string
	for _, line := range h.Values("Cookie") {
		for _, pair := range strings.Split(line, ";") {
			if name, _, _ := strings.Cut(pair, "="); strings.TrimSpace(name) != o.cookie {
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
	// Its cookies are of its host alone, and ours is not for it to set.
	cookies := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range cookies {
		parts := strings.Split(line, ";")
		name, _, _ := strings.Cut(parts[0], "=")
		if strings.TrimSpace(name) == o.cookie {
			continue
		}
		parts = slices.DeleteFunc(parts, func(part string) bool {
			name, _, _ := strings.Cut(part, "=")
			return strings.EqualFold(strings.TrimSpace(name), "domain")
		})
		h.Add("Set-Cookie", strings.Join(parts, ";"))
	}
	// So that pages of sibling hosts cannot agree to be of one origin.
	h.Set("Origin-Agent-Cluster", "?1")
}

// sandboxed is an application below a path of ramus's own host.
type sandboxed struct{ base, rest string }

// sandbox gives a page an opaque origin: nothing of this host's is its own.
const sandbox = "sandbox allow-scripts allow-forms allow-popups allow-modals"

func (s sandboxed) ask(pr *httputil.ProxyRequest, _ string) {
	u := pr.Out.URL
	u.Path, u.RawPath = s.rest, ""
	if path, err := url.PathUnescape(s.rest); err == nil {
		u.Path, u.RawPath = path, s.rest
	}
	// They would be ramus's.
	for _, name := range []string{"Authorization", "Cookie", "Referer"} {
		pr.Out.Header.Del(name)
	}
	pr.Out.Header.Set("X-Forwarded-Prefix", s.base)
}

func (s sandboxed) answer(h http.Header, local string) {
	relocate(h, local, s.base)
	// A question for a password would be one of this host's.
	for _, name := range []string{"Set-Cookie", "Www-Authenticate", "Service-Worker-Allowed", "Access-Control-Allow-Credentials"} {
		h.Del(name)
	}
	h.Add("Content-Security-Policy", sandbox)
	// An opaque origin has to be let in to its own scripts and fonts; see preflight.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Referrer-Policy", "no-referrer") // the path opens it
}

// relocate leads redirects to where the browser sees the application.
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
