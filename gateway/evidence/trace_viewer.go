package evidence

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"mime"
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

// Playwright's trace viewer is a page that reads a trace.zip in the browser of whoever
// looks at it, and a service worker that answers what its frames ask for out of that
// zip. A trace is hostile: it holds pages, and the viewer puts names of elements
// and attributes into HTML as they stand there. Three locks are between such a page and this
// server's origin:
//
//   - traceGuard runs before the worker's own code: of a snapshot it keeps what is well
//     formed, and it gives each snapshot a policy by which no script runs but the viewer's own.
//   - viewerPolicy lets the viewer load and ask nothing but this server, and its frames
//     go nowhere else.
//   - There is nothing to steal: no page of this server knows who is looking by a cookie,
//     and the worker cannot reach beyond /trace/.

// workerName is the viewer's service worker.
const workerName = "sw.bundle.js"

//go:embed pages/trace_guard.js
var traceGuard []byte

// traceLink is where a page finds the viewer with a trace in it: the file's link is its parameter.
func (api *API) traceLink(c *route.Call, link string) string {
	return c.Prefix() + links.TracePath + "index.html?trace=" + url.QueryEscape(link)
}

// traceFile serves one file of the viewer. They are the same for everybody and
// hold nothing of anybody's.
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
	h.Set("Content-Type", viewerType(name))
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-DNS-Prefetch-Control", "off")
	h.Set("Cache-Control", "no-cache") // and asked for by its hash: the driver may be another one tomorrow
	sum := sha256.Sum256(text)
	h.Set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:])+`"`)
	http.ServeContent(c.W, c.R, "", time.Time{}, bytes.NewReader(text))
	return nil
}

// viewerFileMax is up to which size a file of the viewer is served; its largest has 1 MiB.
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

// viewerType is a media type by a file's name; the sniffing that would guess others is off.
func viewerType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".ttf":
		return "font/ttf"
	case ".webmanifest":
		return "application/manifest+json"
	}
	if media := mime.TypeByExtension(path.Ext(name)); media != "" {
		return media
	}
	return route.MediaBytes
}

var inlineScript = pattern.New(`(?s)<script>(.*?)</script>`)

// viewerPolicy is what a file of the viewer may do: as a page, or as a worker.
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
		"style-src 'self' 'unsafe-inline'", // the editor that shows sources makes styles
		"img-src 'self' data: blob:",
		"font-src 'self' data:",
		"media-src 'self' blob:",
		"connect-src 'self' blob:", // a trace that was dropped on the page is a blob
		"worker-src 'self'",
		"manifest-src 'self'",
		// Frames show snapshots. A snapshot that would lead its frame elsewhere does not get there.
		"frame-src 'self' data: blob:",
		"object-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}, "; ")
}
