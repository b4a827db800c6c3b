package gateway_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gitd"
	"golang.org/x/net/html"
)

// get follows a link like a browser.
func (r *rooms) get(t *testing.T, link string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", r.web.URL+link, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html,*/*")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return resp, string(b)
}

// allowedTags are the only elements that a page may have.
var allowedTags = strings.Fields("html head meta title style body main div p h1 h2 small span b a img video dl dt dd ul li pre code br details summary footer")

// soundPage checks that a page has no scripts, forms and frames, loads nothing from other hosts, has only the style
// that its policy names, and has only signed links. It returns the links.
func soundPage(t *testing.T, resp *http.Response, text string) (links []string) {
	t.Helper()
	policy := resp.Header.Get("Content-Security-Policy")
	kept := "private, no-cache"
	if resp.StatusCode >= 400 {
		kept = "no-store" // a refused request may be allowed later
	}
	for name, want := range map[string]string{"Content-Type": "text/html; charset=utf-8",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cache-Control": kept, "X-Robots-Tag": "noindex, nofollow"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "script") {
		t.Errorf("policy %q", policy)
	}
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			if n.Type == html.CommentNode {
				t.Errorf("a comment: %q", n.Data)
			}
			continue
		}
		if !slices.Contains(allowedTags, n.Data) {
			t.Errorf("an element <%s>", n.Data)
		}
		if n.Data == "style" {
			sum := sha256.Sum256([]byte(n.FirstChild.Data))
			if hash := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, hash) {
				t.Errorf("the policy %q does not name the style %s", policy, hash)
			}
		}
		for _, a := range n.Attr {
			switch a.Key {
			case "href", "src":
				// The trace viewer is public. The trace that it shows is signed.
				link, viewer := strings.CutPrefix(a.Val, "/trace/index.html?trace=")
				if viewer {
					link, err = url.QueryUnescape(link)
				}
				if err != nil || !strings.HasPrefix(link, "/evidence/") || !strings.Contains(link, "signature=") ||
					viewer && n.Data != "a" {
					t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
				}
				links = append(links, a.Val)
			case "class", "lang", "charset", "name", "content", "open", "alt", "loading", "width", "height", "controls",
				"download", "http-equiv":
			default:
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			}
		}
	}
	return links
}

const hostile = `</pre></span><script>alert(1)</script>"'><img src=x onerror=alert(2)>`

// TestEvidencePages shows a run in which every text is hostile.
func TestEvidencePages(t *testing.T) {
	t.Parallel()
	r := open(t, true, func(s *gateway.Server) { s.URL = "" })
	r.repo(t, "app")
	c, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	script := `cat >'<b>name.txt' <<'X'
` + hostile + `
X
mkdir '"quoted' && printf 'a\n\0b' >'"quoted/bi\nary'
git mv README READYOU
H=$(cat '<b>name.txt')
printf 'colour \033[31mred\033[0m \342\200\256turned\n%s\n' "$H"
printf '%s' "$H" >&2
mkdir -p /artifacts/.git '/artifacts/<i>'
printf '\211PNG\r\n\032\n' >'/artifacts/<i>/shot.png'
printf '%s' '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>' >/artifacts/x.svg
printf '<html>%s' "$H" >'/artifacts/"onload=1.html'
echo program >/artifacts/.git/config
head -c 9000000 /dev/zero >/artifacts/large.bin
exit 3
`
	run, err := r.local.Submit(t.Context(),
		record.Request{Caller: c, Repo: "app", Key: "k", Command: &record.Command{Shell: script},
			Asker: gitd.Person{Name: "<u>Mallory</u>", Email: "m@example.org"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range r.local.Events(t.Context(), run.Name(), 0) {
		if err != nil {
			t.Fatal(err)
		}
	}
	m := r.sealed(t, run.Name())

	resp, text := r.get(t, r.Links.Run(run))
	if resp.StatusCode != 200 {
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	links := soundPage(t, resp, text)
	for _, want := range []string{"Failed", "&lt;u&gt;Mallory&lt;/u&gt;", "exit 3", "colour red \uFFFDturned",
		"&lt;script&gt;alert(1)", "READYOU", "no check ran",
		"git clone -b ramus/run-otter http://127.0.0.1:", "&lt;i&gt;/shot.png"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "http-equiv") {
		t.Error("the page of a run that has ended reloads itself")
	}
	// Every link of the page can be opened, and its content is harmless.
	for _, link := range links {
		resp, text := r.get(t, link)
		if resp.StatusCode != 200 {
			t.Errorf("%s: status %d: %.200s", link, resp.StatusCode, text)
		}
		policy := resp.Header.Get("Content-Security-Policy")
		if strings.Contains(link, "view=1") {
			soundPage(t, resp, text)
			if !strings.Contains(policy, "sandbox") {
				t.Errorf("%s: policy %q", link, policy)
			}
			continue
		}
		if d := resp.Header.Get("Content-Disposition"); !strings.HasPrefix(d, "attachment; filename*=UTF-8''") ||
			strings.ContainsAny(d, "\"<>\n") {
			t.Errorf("%s: disposition %q", link, d)
		}
		if !strings.Contains(policy, "sandbox") || resp.Header.Get("X-Content-Type-Options") != "nosniff" ||
			resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", link, resp.Header)
		}
		if media := resp.Header.Get("Content-Type"); strings.Contains(media, "html") ||
			strings.Contains(media, "svg") || strings.Contains(media, "xml") {
			t.Errorf("%s: served as %s", link, media)
		}
	}
	r.tryFiles(t, run, m)
	r.tryBundle(t, run, m)

	// The status, and the page of an expired link.
	_, text = r.get(t, r.Links.Sign("/evidence/run:otter/k/status.json"))
	var status evidence.EvidenceStatus
	if err := json.Unmarshal([]byte(text), &status); err != nil || status.State != record.StateFailed ||
		status.Verdict != record.VerdictFailed || status.Head != m.Head {
		t.Errorf("status: %v, %s", err, text)
	}
	late := *r.Links
	late.Now = func() time.Time { return time.Now().Add(-8 * 24 * time.Hour) }
	resp, text = r.get(t, late.Run(run))
	soundPage(t, resp, text)
	if resp.StatusCode != 403 || !strings.Contains(text, "expired") || !strings.Contains(text, "ramus evidence RUN --link") {
		t.Errorf("an expired link: status %d: %s", resp.StatusCode, text)
	}
	// A link is signed for one run and not for runs with similar names.
	if resp, _ := r.get(t, r.Links.Sign("/evidence/run:ott/k")); resp.StatusCode != 404 {
		t.Errorf("a part of a name: status %d", resp.StatusCode)
	}
}

// sealed waits for the manifest of a run. The end of the run is reported before the manifest is written.
func (r *rooms) sealed(t *testing.T, run string) record.Manifest {
	t.Helper()
	for {
		m, err := r.Executor.Manifest(t.Context(), run)
		if err == nil {
			return m
		}
		if !errors.Is(err, record.ErrNotFound) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// tryFiles compares every file of the manifest, and parts of one file.
func (r *rooms) tryFiles(t *testing.T, run record.Run, m record.Manifest) {
	t.Helper()
	for _, f := range m.Files {
		resp, text := r.get(t, r.Links.File(run, f.Name))
		sum := sha256.Sum256([]byte(text))
		if got := hex.EncodeToString(sum[:]); got != f.SHA256 || int64(len(text)) != f.Size || resp.Header.Get("ETag") != `"`+f.SHA256+`"` {
			t.Errorf("%q: %d bytes with %s, want %d with %s; ETag %s", f.Name, len(text), got, f.Size, f.SHA256,
				resp.Header.Get("ETag"))
		}
		if resp, _ := r.get(t, r.Links.File(run, f.Name), "If-None-Match", `"`+f.SHA256+`"`); resp.StatusCode != 304 {
			t.Errorf("%q is sent again: status %d", f.Name, resp.StatusCode)
		}
	}
	large := r.Links.File(run, "artifacts/large.bin")
	resp, text := r.get(t, large, "Range", "bytes=8999990-")
	if resp.StatusCode != 206 || resp.Header.Get("Content-Range") != "bytes 8999990-8999999/9000000" || text != strings.Repeat("\x00", 10) {
		t.Errorf("a range: status %d, %s, %q", resp.StatusCode, resp.Header.Get("Content-Range"), text)
	}
	if resp, _ := r.get(t, large, "Range", "bytes=9000000-"); resp.StatusCode != 416 {
		t.Errorf("a range after the end: status %d", resp.StatusCode)
	}
	if resp, _ := r.get(t, r.Links.File(run, "artifacts/nothing")); resp.StatusCode != 404 {
		t.Errorf("a file that is not there: status %d", resp.StatusCode)
	}
	for _, name := range []string{"run.json", "workflow.yaml", "../k2/journal.jsonl"} {
		if resp, _ := r.get(t, r.Links.File(run, name)); resp.StatusCode == 200 {
			t.Errorf("%s is served, and not in the manifest", name)
		}
	}

	// A damaged file is never served as complete.
	for _, f := range m.Files {
		if f.Name != "artifacts/large.bin" {
			continue
		}
		path := filepath.Join(r.Executor.Data, "artifacts", "sha256", f.SHA256[:2], f.SHA256)
		if err := os.Truncate(path, 100); err != nil {
			t.Fatal(err)
		}
		if resp, text := r.get(t, large); resp.StatusCode != 500 || !strings.Contains(text, "damaged") &&
			!strings.Contains(text, "Damaged") {
			t.Errorf("a damaged file: status %d, %.300s", resp.StatusCode, text)
		}
		if err := os.Truncate(path, 9_000_000); err != nil { // fills the file with zeros again
			t.Fatal(err)
		}
	}
}

// tryBundle unpacks the bundle and compares it with the manifest.
func (r *rooms) tryBundle(t *testing.T, run record.Run, m record.Manifest) {
	t.Helper()
	_, text := r.get(t, r.Links.Sign("/evidence/"+run.Name()+"/bundle.tar.gz"))
	z, err := gzip.NewReader(bytes.NewReader([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.New()
		if _, err := io.Copy(hash, in); err != nil {
			t.Fatal(err)
		}
		if !filepath.IsLocal(h.Name) || h.Typeflag != tar.TypeReg || regexp.MustCompile(`(^|/)\.git`).MatchString(h.Name) {
			t.Errorf("%q of type %c", h.Name, h.Typeflag)
		}
		got[h.Name] = hex.EncodeToString(hash.Sum(nil))
	}
	if got["k/evidence/manifest.json"] == "" || len(got) != len(m.Files)+1 {
		t.Errorf("%d files, want %d: %v", len(got), len(m.Files)+1, got)
	}
	for _, f := range m.Files {
		if got["k/"+evidence.FileName(f.Name)] != f.SHA256 {
			t.Errorf("%q is not in the bundle as it was", f.Name)
		}
	}
}

// TestEvidenceOfALiveRun opens the page of a run at work. The page reloads itself and shows the current output of the
// command.
func TestEvidenceOfALiveRun(t *testing.T) {
	t.Parallel()
	r := open(t, true, nil)
	r.repo(t, "app")
	c, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	run, err := r.local.Submit(t.Context(), record.Request{Caller: c, Repo: "app", Key: "k",
		Command: &record.Command{Shell: "echo so far; until test -e go; do sleep 0.05; done"}})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range r.local.Events(t.Context(), run.Name(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == record.EventOutput {
			break
		}
	}
	resp, text := r.get(t, r.Links.Run(run))
	soundPage(t, resp, text)
	for _, want := range []string{`http-equiv="refresh"`, "Running", "so far", "at work"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text[strings.Index(text, "<body>"):])
		}
	}
	if strings.Contains(resp.Header.Get("Content-Security-Policy"), "sandbox") {
		t.Error("a sandboxed page cannot reload itself")
	}
	if resp, text := r.get(t, r.Links.Sign("/evidence/run:otter/k/bundle.tar.gz")); resp.StatusCode != 404 ||
		!strings.Contains(text, "when the run ends") {
		t.Errorf("a bundle of what has not ended: status %d, %s", resp.StatusCode, text)
	}
	if err := r.Executor.Stop(t.Context(), run.Name(), gitd.Person{Name: "A"}); err != nil {
		t.Fatal(err)
	}
	resp, text = r.get(t, r.Links.Run(run))
	soundPage(t, resp, text)
	if !strings.Contains(text, "Cancelled") || strings.Contains(text, "http-equiv") {
		t.Errorf("after it was stopped:\n%s", text[strings.Index(text, "<body>"):])
	}
}
