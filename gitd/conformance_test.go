package gitd

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// conformance is one repository on one server for one check of the table below. It has
// main with three commits, a branch topic, and an annotated tag.
type conformance struct {
	*wire
	t      *testing.T // of the check
	native bool
	name   string
	dir    string // on the server
	url    string // with a token for everything
	work   string // a clone that all other commits are made in
	heads  []string
}

func (c *conformance) clone(args ...string) string {
	c.t.Helper()
	dir := filepath.Join(c.t.TempDir(), "clone")
	stock(c.t, "", append(append([]string{"clone", "-q"}, args...), c.url, dir)...)
	return dir
}

// ask sends a request of protocol v2 and returns the answer.
func (c *conformance) ask(body []byte, header ...string) string {
	c.t.Helper()
	status, text := c.post("git-upload-pack", c.name, bytes.NewReader(body), append(header, "Git-Protocol", "version=2")...)
	if status != 200 {
		c.t.Fatalf("%d %s", status, text)
	}
	return text
}

// get sends a GET request and returns the status and the body.
func (c *conformance) get(path, protocol string) (int, string) {
	c.t.Helper()
	req, err := http.NewRequest("GET", c.http.URL+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.SetBasicAuth("x", c.token(full))
	if protocol != "" {
		req.Header.Set("Git-Protocol", protocol)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// count returns the number of commits in a clone.
func (c *conformance) count(dir string) string {
	return stock(c.t, dir, "rev-list", "--count", "--all")
}

// empty returns the folder of an empty repository.
func (c *conformance) empty() string {
	dir := c.t.TempDir()
	stock(c.t, dir, "init", "-q", "-b", "main")
	return dir
}

// packOf returns a pack of the objects that revisions reach.
func (c *conformance) packOf(revisions ...string) []byte {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "p")
	stock(c.t, c.work, "-c", "alias.po=!git rev-list --objects "+strings.Join(revisions, " ")+
		" | git pack-objects --stdout -q > "+file, "po")
	b, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func equal(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %q in %.2000q", p, text)
		}
	}
}

// conformanceChecks are the duties of a Git server. Each check uses stock git or git's
// bytes.
var conformanceChecks = []struct {
	name  string
	check func(*conformance)
}{
	{"protocol v2 is spoken to who asks for it", func(c *conformance) {
		status, text := c.get("/"+c.name+".git/info/refs?service=git-upload-pack", "version=2")
		equal(c.t, fmt.Sprint(status), "200")
		contains(c.t, text, "000eversion 2\n", "ls-refs", "fetch=", "shallow", "filter", "object-format=sha1")
		equal(c.t, text[:8], "000evers")
	}},
	{"protocol v0 is spoken to who does not", func(c *conformance) {
		_, text := c.get("/"+c.name+".git/info/refs?service=git-upload-pack", "")
		contains(c.t, text, "001e# service=git-upload-pack\n0000", c.heads[2]+" HEAD\x00", "symref=HEAD:refs/heads/main")
	}},
	{"protocol v1 is spoken to who asks for it", func(c *conformance) {
		_, text := c.get("/"+c.name+".git/info/refs?service=git-upload-pack", "version=1")
		contains(c.t, text, "000eversion 1\n", " refs/heads/main")
	}},
	{"a header that is no protocol is passed over", func(c *conformance) {
		_, text := c.get("/"+c.name+".git/info/refs?service=git-upload-pack", "version=2:key=value")
		contains(c.t, text, "# service=")
	}},
	{"a push begins with what git says", func(c *conformance) {
		for _, g := range []Grant{full, {Read: []string{"refs/heads/main"}, Write: []string{"refs/heads/ramus/a"},
			Repo: "*"}, {Read: []string{"refs/heads/none"}, Write: []string{"refs/heads/ramus/a"}, Repo: "*"}} {
			a := access{dir: c.dir, grant: g}
			out, err := c.git.Output(c.t.Context(), gitcmd.Command{Args: []string{"receive-pack", "--stateless-rpc",
				"--advertise-refs", c.dir}, Config: a.config(c.limits)})
			if err != nil {
				c.t.Fatal(err)
			}
			if a.repo, err = c.Server.Repo(c.name); err != nil {
				c.t.Fatal(err)
			}
			a.client = "test"
			var b bytes.Buffer
			if err := c.advertisePush(c.t.Context(), a, &b); err != nil {
				c.t.Fatal(err)
			}
			equal(c.t, b.String(), string(out))
		}
	}},
	{"ls-refs is what git says", func(c *conformance) {
		for _, args := range [][]string{{"peel", "symrefs", "unborn"}, {}, {"ref-prefix refs/tags/", "peel"},
			{"symrefs", "ref-prefix HEAD"}} {
			equal(c.t, c.ask(lsRefs(args...)), nativeV2(c.t, c.Server, c.dir, lsRefs(args...)))
		}
	}},
	{"HEAD of an empty repository names the branch", func(c *conformance) {
		c.name = "empty-" + c.name
		stock(c.t, "", "init", "-q", "--bare", "-b", "trunk", filepath.Join(c.Root, c.name+".git"))
		c.url = c.wire.url(c.name, c.token(full))
		equal(c.t, stock(c.t, c.clone(), "symbolic-ref", "HEAD"), "refs/heads/trunk")
	}},
	{"a clone is whole", func(c *conformance) {
		for range 2 {
			d := c.clone("-c", "fetch.fsckObjects=true")
			equal(c.t, stock(c.t, d, "rev-parse", "HEAD"), c.heads[2])
			equal(c.t, stock(c.t, d, "rev-parse", "origin/topic"), c.heads[3])
			equal(c.t, stock(c.t, d, "status", "--porcelain"), "")
			fsck(c.t, d)
		}
	}},
	{"a clone with protocol v0 is the same", func(c *conformance) {
		d := c.clone("-c", "protocol.version=0")
		equal(c.t, stock(c.t, d, "for-each-ref"), stock(c.t, c.clone(), "for-each-ref"))
		fsck(c.t, d)
	}},
	{"depth 1", func(c *conformance) {
		for range 2 {
			d := c.clone("--depth=1", "--no-single-branch", "--no-tags")
			equal(c.t, c.count(d), "2")
			fsck(c.t, d)
		}
	}},
	{"a shallow clone is deepened, and made whole", func(c *conformance) {
		d := c.clone("--depth=1")
		stock(c.t, d, "fetch", "-q", "--deepen=1")
		equal(c.t, c.count(d), "2")
		stock(c.t, d, "fetch", "-q", "--unshallow")
		equal(c.t, c.count(d), "3")
		fsck(c.t, d)
	}},
	{"shallow since a time", func(c *conformance) {
		d := c.clone("--shallow-since=1700000050")
		equal(c.t, c.count(d), "2")
		fsck(c.t, d)
	}},
	{"shallow up to a tag", func(c *conformance) {
		d := c.clone("--shallow-exclude=v1", "--no-tags", "-b", "main")
		equal(c.t, c.count(d), "2")
	}},
	{"a clone without blobs fetches them when it needs them", func(c *conformance) {
		d := c.clone("--filter=blob:none", "--no-checkout")
		contains(c.t, stock(c.t, d, "rev-list", "--objects", "--missing=print", "HEAD"), "\n?")
		stock(c.t, d, "checkout", "-q", "main")
		equal(c.t, stock(c.t, d, "show", "HEAD~1:f1"), "content 1")
	}},
	{"a clone without trees fetches them when it needs them", func(c *conformance) {
		d := c.clone("--filter=tree:0", "--no-checkout")
		equal(c.t, stock(c.t, d, "show", "HEAD:f2"), "content 2")
	}},
	{"a clone without large blobs", func(c *conformance) {
		d := c.clone("--filter=blob:limit=5", "--no-checkout")
		contains(c.t, stock(c.t, d, "rev-list", "--objects", "--missing=print", "HEAD"), "\n?")
	}},
	{"what is new is fetched, and no more", func(c *conformance) {
		d := c.clone()
		head := addFile(c.t, c.work, "new", "new")
		stock(c.t, c.work, "push", "-q", "origin", "HEAD:main")
		out := stock(c.t, d, "fetch", "--progress")
		contains(c.t, out, "remote: Total 3")
		equal(c.t, stock(c.t, d, "rev-parse", "origin/main"), head)
		fsck(c.t, d)
	}},
	{"haves are acknowledged", func(c *conformance) {
		text := c.ask(v2Fetch("want "+c.heads[2], "have "+c.heads[0], "have "+strings.Repeat("1", 40)))
		contains(c.t, text, "acknowledgments\n", "ACK "+c.heads[0], "ready\n", "packfile\n")
		text = c.ask(v2Fetch("want "+c.heads[2], "have "+strings.Repeat("1", 40)))
		contains(c.t, text, "acknowledgments\n", "NAK\n")
		text = c.ask(v2Fetch("want "+c.heads[2], "have "+c.heads[0], "wait-for-done"))
		contains(c.t, text, "ACK "+c.heads[0])
		if strings.Contains(text, "packfile") {
			c.t.Error("it did not wait")
		}
	}},
	{"tags come along", func(c *conformance) {
		d := c.clone("--single-branch", "-b", "main")
		equal(c.t, stock(c.t, d, "tag"), "v1")
		// A later tag is sent along with the same commits.
		stock(c.t, c.dir, "tag", "-a", "-m", "Late", "late", c.heads[1])
		contains(c.t, stock(c.t, c.clone("--single-branch", "-b", "main"), "tag"), "late")
	}},
	{"one branch alone", func(c *conformance) {
		d := c.clone("--single-branch", "-b", "topic")
		equal(c.t, stock(c.t, d, "rev-parse", "HEAD"), c.heads[3])
		if out, err := stockTry(d, "rev-parse", "-q", "--verify", "origin/main"); err == nil {
			c.t.Error(out)
		}
	}},
	{"a commit is fetched by its name", func(c *conformance) {
		for range 2 {
			d := c.empty()
			stock(c.t, d, "fetch", "-q", c.url, c.heads[1])
			equal(c.t, stock(c.t, d, "rev-parse", "FETCH_HEAD"), c.heads[1])
		}
	}},
	{"what is not there is refused in git's words", func(c *conformance) {
		none := strings.Repeat("1", 40)
		out, err := stockTry(c.empty(), "fetch", c.url, none)
		refused(c.t, out, err, "fatal: remote error: upload-pack: not our ref "+none)
	}},
	{"the commit of a deleted branch is refused", func(c *conformance) {
		stock(c.t, c.empty(), "fetch", "-q", c.url, c.heads[3])
		stock(c.t, c.work, "push", "-q", "origin", ":topic")
		out, err := stockTry(c.empty(), "fetch", c.url, c.heads[3])
		if c.native {
			// With protocol v2 git serves every object that it has.
			if err != nil {
				c.t.Error(err)
			}
			return
		}
		refused(c.t, out, err, "fatal: remote error: upload-pack: not our ref "+c.heads[3])
	}},
	{"what a grant hides is not there", func(c *conformance) {
		door := httptest.NewServer(c.GrantHandler(Grant{Subject: "run:a", Repo: c.name, Scopes: []string{ScopeWrite},
			Read: []string{"refs/heads/main"}, Write: []string{"refs/heads/ramus/a"}}))
		defer door.Close()
		url := door.URL + "/" + c.name + ".git"
		for _, v := range []string{"0", "2"} {
			v = "protocol.version=" + v
			if out := stock(c.t, "", "-c", v, "ls-remote", url); strings.Contains(out, "topic") ||
				strings.Contains(out, c.heads[3]) || strings.Contains(out, "v1") {
				c.t.Error(out)
			}
			out, err := stockTry(c.empty(), "-c", v, "fetch", url, c.heads[3])
			refused(c.t, out, err, c.heads[3])
			blob := stock(c.t, c.work, "rev-parse", c.heads[3]+":only-topic")
			out, err = stockTry(c.empty(), "-c", v, "fetch", url, blob)
			refused(c.t, out, err, blob)
			d := c.empty()
			stock(c.t, d, "-c", v, "fetch", "-q", url, "main")
			equal(c.t, stock(c.t, d, "rev-parse", "FETCH_HEAD"), c.heads[2])
		}
	}},
	{"a push makes a branch, and is seen at once", func(c *conformance) {
		contains(c.t, stock(c.t, "", "ls-remote", c.url), "refs/heads/topic")
		head := addFile(c.t, c.work, "pushed", "x")
		stock(c.t, c.work, "push", "-q", "origin", "HEAD:refs/heads/pushed")
		contains(c.t, stock(c.t, "", "ls-remote", c.url), head+"\trefs/heads/pushed")
	}},
	{"refs that others change are seen at once", func(c *conformance) {
		for i := range 5 {
			stock(c.t, c.dir, "update-ref", "refs/heads/foreign", c.heads[i%3])
			contains(c.t, stock(c.t, "", "ls-remote", c.url), c.heads[i%3]+"\trefs/heads/foreign")
		}
		stock(c.t, c.dir, "pack-refs", "--all")
		contains(c.t, stock(c.t, "", "ls-remote", c.url), "refs/heads/foreign")
		stock(c.t, c.dir, "update-ref", "-d", "refs/heads/foreign")
		if out := stock(c.t, "", "ls-remote", c.url); strings.Contains(out, "foreign") {
			c.t.Error(out)
		}
	}},
	{"a stale old value is refused", func(c *conformance) {
		body := pushBodyFrom(c.heads[0], "refs/heads/main", c.heads[3], c.packOf(c.heads[3]))
		_, text := c.post("git-receive-pack", c.name, bytes.NewReader(body))
		contains(c.t, text, "ng refs/heads/main")
		equal(c.t, stock(c.t, c.dir, "rev-parse", "main"), c.heads[2])
	}},
	{"all refs of an atomic push, or none", func(c *conformance) {
		head := addFile(c.t, c.work, "atomic", "x")
		stock(c.t, c.dir, "update-ref", "refs/heads/topic", c.heads[0])
		_, err := stockTry(c.work, "push", "--atomic", "origin", "HEAD:refs/heads/atomic", c.heads[3]+":refs/heads/main")
		if err == nil {
			c.t.Error("it was taken")
		}
		if out := stock(c.t, "", "ls-remote", c.url); strings.Contains(out, "refs/heads/atomic") {
			c.t.Error(out)
		}
		stock(c.t, c.work, "push", "-q", "--atomic", "origin", "HEAD:refs/heads/atomic", "HEAD:refs/heads/atomic2")
		contains(c.t, stock(c.t, "", "ls-remote", c.url), head+"\trefs/heads/atomic2")
	}},
	{"of many pushes to one branch one wins", func(c *conformance) {
		var mu sync.Mutex
		won := 0
		var wg sync.WaitGroup
		var racers []string
		for i := range 5 {
			racers = append(racers, c.clone())
			addFile(c.t, racers[i], fmt.Sprint("racer", i), "x")
		}
		for _, d := range racers {
			wg.Go(func() {
				if _, err := stockTry(d, "push", "-q", "origin", "HEAD:main"); err == nil {
					mu.Lock()
					won++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		equal(c.t, fmt.Sprint(won), "1")
		fsck(c.t, c.dir)
	}},
	{"pushes to many branches all win", func(c *conformance) {
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if _, err := stockTry(c.work, "push", "-q", c.url, fmt.Sprintf("HEAD:refs/heads/side%d", i)); err != nil {
					c.t.Error(err)
				}
			})
		}
		wg.Wait()
		equal(c.t, fmt.Sprint(strings.Count(stock(c.t, "", "ls-remote", c.url), "refs/heads/side")), "6")
	}},
	{"a branch is deleted", func(c *conformance) {
		stock(c.t, c.work, "push", "-q", "origin", ":topic")
		if out := stock(c.t, "", "ls-remote", c.url); strings.Contains(out, "topic") {
			c.t.Error(out)
		}
	}},
	{"a push that lacks objects is refused", func(c *conformance) {
		tree := stock(c.t, c.work, "rev-parse", "HEAD^{tree}")
		pack := c.packOf("HEAD", "^HEAD^") // the commit's own tree, not those before it
		commit := stock(c.t, c.work, "commit-tree", "-m", "x", "-p", addFile(c.t, c.work, "never-sent", "x"), tree)
		_, text := c.post("git-receive-pack", c.name, bytes.NewReader(pushBody("refs/heads/lacks", commit, pack)))
		contains(c.t, text, "ng refs/heads/lacks")
	}},
	{"bad names of refs are refused", func(c *conformance) {
		for _, ref := range []string{"refs/heads/a..b", "refs/heads/x.lock", "refs/heads/sp ace", "refs/heads/@{u}",
			"refs/../HEAD", "HEAD"} {
			_, text := c.post("git-receive-pack", c.name, bytes.NewReader(pushBody(ref, c.heads[2], c.packOf(c.heads[2]))))
			contains(c.t, text, "ng "+ref)
		}
	}},
	{"a chunked request", func(c *conformance) {
		status, text := c.post("git-upload-pack", c.name,
			struct{ io.Reader }{bytes.NewReader(v2Fetch("want "+c.heads[2], "done"))}, "Git-Protocol", "version=2")
		equal(c.t, fmt.Sprint(status), "200")
		contains(c.t, text, "packfile\n", "PACK")
	}},
	{"a request in gzip", func(c *conformance) {
		var z bytes.Buffer
		zw := gzip.NewWriter(&z)
		zw.Write(v2Fetch("want "+c.heads[2], "done"))
		zw.Close()
		contains(c.t, c.ask(z.Bytes(), "Content-Encoding", "gzip"), "packfile\n", "PACK")
	}},
	{"a client that waits for 100 Continue", func(c *conformance) {
		contains(c.t, c.ask(v2Fetch("want "+c.heads[2], "done"), "Expect", "100-continue"), "packfile\n", "PACK")
	}},
	{"requests that are none", func(c *conformance) {
		for _, body := range []string{"rubbish", "0011command=push00010000", "0012command=fetch0001000awant",
			"0012command=fetch0001000dxxxxxxxx\n0000"} {
			if status, text := c.post("git-upload-pack", c.name, strings.NewReader(body), "Git-Protocol", "version=2"); status < 400 {
				c.t.Errorf("%q: %d %q", body, status, text)
			}
		}
	}},
	{"other content types", func(c *conformance) {
		status, _ := c.post("git-upload-pack", c.name, bytes.NewReader(lsRefs()), "Content-Type", "text/plain",
			"Git-Protocol", "version=2")
		equal(c.t, fmt.Sprint(status), "415")
	}},
	{"paths that lead elsewhere", func(c *conformance) {
		for _, path := range []string{"/../" + c.name + ".git", "/x/../" + c.name + ".git",
			"/%2e%2e/root/" + c.name + ".git", "/" + c.name + ".git/../" + c.name + ".git", "/-x.git"} {
			if status, _ := c.get(path+"/info/refs?service=git-upload-pack", "version=2"); status < 400 {
				c.t.Errorf("%s: %d", path, status)
			}
		}
	}},
	{"the dumb protocol is not spoken", func(c *conformance) {
		for _, path := range []string{"/info/refs", "/HEAD", "/objects/info/packs", "/config"} {
			if status, text := c.get("/"+c.name+".git"+path, "version=2"); status < 400 || strings.Contains(text, c.heads[2]) {
				c.t.Errorf("%s: %d %q", path, status, text)
			}
		}
	}},
	{"progress is shown to who wants it", func(c *conformance) {
		for range 2 {
			dir := filepath.Join(c.t.TempDir(), "p")
			contains(c.t, stock(c.t, "", "clone", "--progress", c.url, dir), "remote: Enumerating objects", "remote: Total")
		}
		for range 2 {
			text := c.ask(v2Fetch("want "+c.heads[2], "no-progress", "done"))
			if strings.Contains(text, "Enumerating") {
				c.t.Error("progress, although the client wanted none")
			}
		}
	}},
	{"the sizes of objects", func(c *conformance) {
		b := append(protocol.AppendLine(protocol.AppendLine(nil, "command=object-info"), "object-format=sha1"), "0001"...)
		blob := stock(c.t, c.work, "rev-parse", "HEAD:f1")
		b = append(protocol.AppendLine(protocol.AppendLine(b, "size"), "oid "+blob), protocol.FlushLine...)
		contains(c.t, c.ask(b), blob+" 9")
	}},
}

// TestConformance runs every check against git itself and against the server's own
// answers. A client sees no difference.
func TestConformance(t *testing.T) {
	for _, way := range []string{"native", "in process"} {
		t.Run(way, func(t *testing.T) {
			w := newWire(t, func(s *Server) { s.native = way == "native" })
			template, heads := conformanceRepo(t)
			for i, check := range conformanceChecks {
				t.Run(check.name, func(t *testing.T) {
					name := fmt.Sprint("r", i)
					c := &conformance{wire: &wire{Server: w.Server, t: t, http: w.http}, t: t,
						native: way == "native", name: name,
						dir: filepath.Join(w.Root, name+".git"), url: w.url(name, w.token(full)), heads: heads}
					c.work = filepath.Join(t.TempDir(), "work")
					for _, dir := range []string{c.dir, c.work} {
						from := filepath.Join(template, map[bool]string{true: "bare", false: "work"}[dir == c.dir])
						if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
							t.Fatal(err)
						}
					}
					stock(t, c.work, "remote", "add", "origin", c.url)
					check.check(c)
				})
			}
			if n := w.Stats().Lists; (n == 0) != w.native {
				t.Errorf("%d lists of refs were answered in process", n)
			}
		})
	}
}

// conformanceRepo makes the start of every check, a bare repository and a work tree.
func conformanceRepo(t *testing.T) (above string, heads []string) {
	above = t.TempDir()
	dir := filepath.Join(above, "work")
	stock(t, "", "init", "-q", "-b", "main", dir)
	add := func(file, content string, n int) {
		write(t, filepath.Join(dir, file), content)
		stock(t, dir, "add", "-A")
		date := fmt.Sprintf("GIT_COMMITTER_DATE=%d +0000", 1700000000+100*n)
		if _, err := stockEnvTry([]string{date}, dir, "commit", "-q", "-m", "add "+file); err != nil {
			t.Fatal(err)
		}
		heads = append(heads, stock(t, dir, "rev-parse", "HEAD"))
	}
	for i := range 3 {
		add(fmt.Sprint("f", i), fmt.Sprint("content ", i), i)
	}
	stock(t, dir, "tag", "-a", "-m", "One", "v1", heads[0])
	stock(t, dir, "checkout", "-q", "-b", "topic", heads[1])
	add("only-topic", "topic", 3)
	stock(t, dir, "checkout", "-q", "main")
	stock(t, "", "clone", "-q", "--bare", "--no-local", dir, filepath.Join(above, "bare"))
	return above, heads
}
