package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
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

	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// page is an answer to a plain GET of a client that has only the link.
type page struct {
	status int
	header http.Header
	body   []byte
}

func (s *chatServer) fetch(method, link string) page {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, link, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s: %v", link, err)
	}
	return page{resp.StatusCode, resp.Header, body}
}

var (
	slackLink = regexp.MustCompile(`<(https?://[^|>]+)\|([^>]*)>`)
	pageLink  = regexp.MustCompile(`(?:href|src)="(/evidence/[^"]+)"`)
)

// linksOf returns the links of a message's blocks, by their labels.
func linksOf(t testing.TB, m slacktest.Message) map[string]string {
	t.Helper()
	found := map[string]string{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		case string:
			for _, l := range slackLink.FindAllStringSubmatch(v, -1) {
				found[html.UnescapeString(l[2])] = html.UnescapeString(l[1])
			}
		}
	}
	var blocks any
	if err := json.Unmarshal(m.Blocks, &blocks); err != nil {
		t.Fatal(err)
	}
	walk(blocks)
	return found
}

// linked returns the links of a page to other pages of the run, as whole addresses.
func (s *chatServer) linked(p page) (all []string) {
	for _, l := range pageLink.FindAllSubmatch(p.body, -1) {
		all = append(all, "http://"+s.addr+html.UnescapeString(string(l[1])))
	}
	return all
}

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestChatNoop changes nothing and covers the whole way. It has a mention, a container of the task
// image, tools of the image, an artifact, and links in the thread. Anybody with a link can open it, and
// nothing else.
func TestChatNoop(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "engine: docker\nimage: ramus/task:latest\n")
	engine := &docker.Engine{Runner: s.binary}
	err := engine.Check(t.Context())
	if err = errors.Join(err, engine.Close()); err != nil {
		t.Skipf("cannot run here: docker: %v", err)
	}
	s.start()
	ts := s.say("", "run noop")
	s.until("the result", 3*time.Minute, func() bool { return len(s.part(ts, "result")) == 1 })
	s.settle()
	result := s.part(ts, "result")[0]
	if !strings.Contains(result.Text, "Done") {
		t.Errorf("the result: %s", result.Text)
	}
	found := linksOf(t, result)
	label := func(begin string) string {
		for l, link := range found {
			if strings.HasPrefix(l, begin) {
				return link
			}
		}
		t.Fatalf("no link %q in %v", begin, found)
		return ""
	}
	runPage, bundle := label("Run's page"), label("bundle.tar.gz")
	runs := s.runs()
	if len(runs) != 1 || runs[0].State != record.StateComplete || !strings.HasPrefix(runs[0].Image, "ramus/task") {
		t.Fatalf("runs: %+v", runs)
	}
	run := runs[0]

	opened := s.fetch("GET", runPage)
	if opened.status != 200 || opened.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("the page: %d %v", opened.status, opened.header)
	}
	for _, want := range []string{"node --version", "pnpm --version", "artifacts/bundle.tar.gz"} {
		if !strings.Contains(html.UnescapeString(string(opened.body)), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, version := range []string{`v\d+\.\d+\.\d+`, `\b\d+\.\d+\.\d+\b`} {
		if !regexp.MustCompile(version).Match(opened.body) {
			t.Errorf("the page has no version %s:\n%s", version, opened.body)
		}
	}

	var manifest record.Manifest
	p := s.fetch("GET", s.signed(run, "evidence/manifest.json"))
	if err := json.Unmarshal(p.body, &manifest); err != nil || p.status != 200 {
		t.Fatalf("the manifest: %d %v %s", p.status, err, p.body)
	}
	hash := func(name string) string {
		i := slices.IndexFunc(manifest.Files, func(f record.ManifestFile) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("%s is not in the manifest: %+v", name, manifest.Files)
		}
		return manifest.Files[i].SHA256
	}
	saved := s.fetch("GET", bundle)
	if saved.status != 200 || sha(saved.body) != hash("artifacts/bundle.tar.gz") {
		t.Errorf("the bundle: %d, sha256 %s", saved.status, sha(saved.body))
	}
	if got := unpack(t, saved.body); !strings.HasPrefix(string(got["versions.txt"]), "v") {
		t.Errorf("in the bundle: %q", got)
	}

	// Every link of the thread and of the pages opens. Each is a page or a file to save.
	seen := map[string]bool{}
	queue := s.linked(opened)
	for _, l := range found {
		queue = append(queue, l)
	}
	for len(queue) > 0 {
		l := queue[0]
		queue = queue[1:]
		if seen[l] {
			continue
		}
		seen[l] = true
		u, err := url.Parse(l)
		if err != nil || u.Host != s.addr {
			t.Errorf("a link to %s: %v", l, err)
			continue
		}
		p := s.fetch("GET", l)
		kind, saves := p.header.Get("Content-Type"), strings.HasPrefix(p.header.Get("Content-Disposition"), "attachment;")
		csp := p.header.Get("Content-Security-Policy")
		// The run's page is ramus's own. A page with a container's file has an origin of its own, too.
		isPage := kind == "text/html; charset=utf-8" && strings.Contains(csp, "default-src 'none'") &&
			!strings.Contains(csp, "script-src") &&
			(u.Path == "/evidence/"+run.Name() || strings.Contains(csp, "sandbox"))
		if p.status != 200 || p.header.Get("X-Content-Type-Options") != "nosniff" || !isPage && !saves && kind != "application/json" {
			t.Errorf("%s: %d %v", l, p.status, p.header)
		}
		if name, ok := strings.CutPrefix(u.Path, "/evidence/"+run.Name()+"/files/"); ok && saves &&
			name != "evidence/manifest.json" && sha(p.body) != hash(name) {
			t.Errorf("%s is not what the manifest says", l)
		}
		if isPage {
			queue = append(queue, s.linked(p)...)
		}
	}

	// This file has all of the evidence.
	all := s.fetch("GET", s.links().Sign("/evidence/"+run.Name()+"/bundle.tar.gz"))
	if all.status != 200 || all.header.Get("Content-Type") != "application/gzip" {
		t.Errorf("the evidence: %d %v", all.status, all.header)
	}
	files := unpack(t, all.body)
	for _, f := range manifest.Files {
		if sha(files[run.ID+"/"+f.Name]) != f.SHA256 {
			t.Errorf("%s is another one in the bundle of the evidence", f.Name)
		}
	}
	t.Logf("%d links opened, %d files in the evidence", len(seen), len(files))

	// A link without a valid signature does not open.
	for l := range seen {
		for what, altered := range altered(t, l) {
			if p := s.fetch("GET", altered); p.status < 400 || p.status >= 500 {
				t.Errorf("with another %s: %d %s", what, p.status, altered)
			}
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			if p := s.fetch(method, l); p.status < 400 || p.status >= 500 {
				t.Errorf("%s %s: %d", method, l, p.status)
			}
		}
	}
	expired := s.links()
	expired.Now = func() time.Time { return time.Now().Add(-2 * time.Hour) }
	expired.TTL = time.Hour
	for _, l := range []string{expired.Run(run), expired.File(run, "artifacts/bundle.tar.gz")} {
		if p := s.fetch("GET", l); p.status != 403 || !strings.Contains(string(p.body), "expired") {
			t.Errorf("a link that has expired: %d %s", p.status, p.body)
		}
	}
}

// links returns a signer of links with the server's key.
func (s *chatServer) links() *links.Signer {
	s.t.Helper()
	key, err := os.ReadFile(filepath.Join(s.data, "keys", "links.key"))
	if err != nil {
		s.t.Fatal(err)
	}
	return &links.Signer{Key: key, URL: "http://" + s.addr}
}

func (s *chatServer) signed(r record.Run, name string) string { return s.links().File(r, name) }

// altered returns links that differ from a signed one in one part.
func altered(t testing.TB, link string) map[string]string {
	t.Helper()
	change := func(f func(u *url.URL, q url.Values)) string {
		u, err := url.Parse(link)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		f(u, q)
		u.RawQuery = q.Encode()
		return u.String()
	}
	all := map[string]string{
		"expiry": change(func(_ *url.URL, q url.Values) { q.Set("expires", "9"+q.Get("expires")) }),
		"signature": change(func(_ *url.URL,
			q url.Values) {
			q.Set("signature", strings.Repeat("A", len(q.Get("signature"))))
		}),
		"parent":       change(func(u *url.URL, _ url.Values) { u.Path = strings.Replace(u.Path, "/C01-", "/C02-", 1) }),
		"file":         change(func(u *url.URL, _ url.Values) { u.Path += "/files/journal.jsonl" }),
		"escaped path": strings.Replace(link, "/C01-", "%2FC01-", 1),
	}
	return all
}

// unpack reads a tar.gz.
func unpack(t testing.TB, b []byte) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return untar(t, z)
}

func untar(t testing.TB, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if files[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}
