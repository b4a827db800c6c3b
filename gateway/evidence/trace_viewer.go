package evidence

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// Playwright's trace viewer is a page that reads a trace.zip in the browser of a person, and a service worker that
// answers the requests of its frames from that zip. A trace is hostile. It contains pages, and the viewer inserts
// names of elements and attributes into HTML without escaping them. Three measures protect this server from such a page.
//
//   - traceGuard runs before the code of the worker. It drops malformed parts of a
//     snapshot and gives each snapshot a policy that allows only the scripts of the viewer.
//   - viewerPolicy allows the viewer to load from and send to this server only. Its frames
//     cannot navigate to other sites.
//   - There is nothing to steal. The viewer has an origin of its own (API.Content), where nothing is but the viewer and
//     files of evidence by their signed links. No cookie goes there. The worker has no access outside of /trace/.

// workerName is the file of the viewer's service worker.
const workerName = "sw.bundle.js"

//go:embed pages/trace_guard.js
var traceGuard []byte

// traceLink returns the link that opens a trace in the viewer. The link of the trace is a query parameter.
func (api *API) traceLink(c *route.Call, link string) string {
	return c.Prefix() + links.TracePath + "index.html?trace=" + url.QueryEscape(link)
}

// trace sends a browser to the viewer at the origin of content. Without such an origin the viewer is here, unless
// people have sessions.
func (api *API) trace(c *route.Call) error {
	switch {
	case api.Content == "" && api.Sessions:
		return route.NewProblem(route.KindUnavailable, "the trace viewer needs an address of its own").
			WithHint("set web.content_url, such as https://content.example.org; or download the trace and open it with `npx playwright show-trace`")
	case api.Content == "":
		return api.traceFile(c)
	}
	to := strings.TrimSuffix(api.Content, "/") + (&url.URL{Path: links.TracePath + c.R.PathValue("file")}).EscapedPath()
	if trace := c.R.URL.Query().Get("trace"); trace != "" {
		link, ok := ownLink(c, trace)
		if !ok {
			return route.NewProblem(route.KindInvalid, "the viewer opens traces of this server only")
		}
		to += "?trace=" + url.QueryEscape(link)
	}
	c.W.Header().Set("Referrer-Policy", "no-referrer")
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, to, http.StatusFound)
	return nil
}

// ownLink returns a link to a file of evidence of this server as a path of the origin of content.
func ownLink(c *route.Call, link string) (string, bool) {
	u, err := url.Parse(link)
	if err != nil || u.User != nil || u.Host != "" && !strings.EqualFold(u.Scheme+"://"+u.Host, c.Origin()) {
		return "", false
	}
	path, below := strings.CutPrefix(u.EscapedPath(), c.Prefix()+"/evidence/")
	if !below {
		return "", false
	}
	return "/evidence/" + path + "?" + u.RawQuery, true
}

// ByHost returns a handler that serves the origin of content, and passes requests for other hosts to own. There is
// only the viewer, and files of evidence by signed links.
func (api *API) ByHost(mux *route.Mux, own http.Handler) http.Handler {
	origin, err := url.Parse(api.Content)
	if err != nil || origin.Host == "" {
		return own
	}
	content := mux.Handler([]route.Route{
		{Method: "GET", Pattern: links.TracePath + "{file...}", Access: route.AccessPublic, Media: route.MediaBytes,
			Handle: api.traceFile},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/files/{name...}", Access: route.AccessSigned,
			Media: route.MediaBytes, Handle: api.contentFile},
	}, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(strings.TrimSuffix(r.Host, "."), origin.Host) {
			own.ServeHTTP(w, r)
			return
		}
		content.ServeHTTP(w, r)
	})
}

// contentFile serves a file of evidence at the origin of content, by its link alone.
func (api *API) contentFile(c *route.Call) error {
	if c.Until.IsZero() {
		return route.NewProblem(route.KindDenied, "this address has files by their links alone")
	}
	return api.evidenceFile(c)
}

// traceFile serves one file of the viewer. The files are the same for everybody and contain no data of runs.
func (api *API) traceFile(c *route.Call) error {
	name := c.R.PathValue("file")
	if name == "" {
		name = "index.html"
	}
	files, err := api.Executor.TraceViewer(c.R.Context())
	if err != nil {
		if errors.Is(err, executor.ErrUnavailable) {
			return route.NewProblem(route.KindUnavailable, "the trace viewer is not there: this server has no browser").
				WithHint("download the trace and open it with `npx playwright show-trace`")
		}
		return err
	}
	text, err := readViewer(files, name)
	if err != nil {
		return err
	}
	h := c.W.Header()
	h.Set("Content-Security-Policy", viewerPolicy(name, text))
	h.Set("Content-Type", route.MediaType(name))
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-DNS-Prefetch-Control", "off")
	h.Set("Cache-Control", "no-cache") // revalidated by its hash, because the driver may be updated at any time
	sum := sha256.Sum256(text)
	h.Set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:])+`"`)
	http.ServeContent(c.W, c.R, "", time.Time{}, bytes.NewReader(text))
	return nil
}

// viewerFileMax limits the size of a served file of the viewer. The largest file of the viewer has 1 MiB.
const viewerFileMax = 16 << 20

func readViewer(files fs.FS, name string) ([]byte, error) {
	missing := route.NewProblem(route.KindNotFound, "the trace viewer has no file %.100q", name)
	if !fs.ValidPath(name) {
		return nil, missing
	}
	info, err := fs.Stat(files, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() > viewerFileMax) {
		return nil, missing
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the trace viewer: %w", err)
	}
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the trace viewer: %w", err)
	}
	if name == workerName {
		text = append(bytes.Clone(traceGuard), text...)
	}
	return text, nil
}

var inlineScript = pattern.New(`(?s)<script>(.*?)</script>`)

// viewerPolicy returns the Content-Security-Policy of a file of the viewer, as a page or as a worker.
func viewerPolicy(name string, text []byte) string {
	scripts := "'self'"
	if path.Ext(name) == ".html" {
		for _, m := range inlineScript.FindAllSubmatch(text, -1) {
			sum := sha256.Sum256(m[1])
			scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
	}
	return strings.Join([]string{
		"default-src 'none'",
		"script-src " + scripts,
		"style-src 'self' 'unsafe-inline'", // the editor that shows sources creates styles
		"img-src 'self' data: blob:",
		"font-src 'self' data:",
		"media-src 'self' blob:",
		"connect-src 'self' blob:", // a trace that is dropped on the page is a blob
		"worker-src 'self'",
		"manifest-src 'self'",
		// Frames show snapshots. A snapshot cannot navigate its frame to another site.
		"frame-src 'self' data: blob:",
		"object-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}, "; ")
}
