package gitd

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/gitd/refview"

	"github.com/ramus-dev/ramus/gitd/clone"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// cloneKinds are the kinds of clones whose answers are composed.
var cloneKinds = []struct {
	kind clone.Kind
	args []string
}{
	{clone.Full, nil},
	{clone.Blobless, []string{"--filter=blob:none", "--no-checkout"}},
	{clone.Shallow, []string{"--depth=1"}},
	{clone.Full, []string{"--no-tags"}},
	{clone.Shallow, []string{"--depth=1", "--no-tags"}},
}

// TestCompose clones random branches from composed answers and from git itself, and compares
// the clones.
func TestCompose(t *testing.T) {
	seeds, each, kinds := 2, 3, cloneKinds[:3]
	if os.Getenv("RAMUS_TEST") == "full" {
		seeds, each, kinds = 40, 20, cloneKinds
	}
	w := newWire(t, func(s *Server) { s.Anonymous = true })
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ctx := t.Context()
			rnd := rand.New(rand.NewPCG(seed, 11))
			r, err := w.Create(ctx, fmt.Sprint("r", seed))
			if err != nil {
				t.Fatal(err)
			}
			commits := randomHistory(t, r, rnd, 40)
			if rnd.IntN(2) == 0 {
				if err := r.Maintain(ctx); err != nil {
					t.Fatal(err)
				}
			}
			// The base has moved since some branches were made.
			older, base := commits[rnd.IntN(4)], commits[4+rnd.IntN(6)]
			for _, k := range kinds {
				for _, b := range []Hash{older, base} {
					if err := r.server.clones.Prepare(ctx, cloneRepo{r}, b, k.kind); err != nil {
						t.Fatal(err)
					}
				}
			}
			branches := strings.Fields(git(t, r.dir, "for-each-ref", "--format=%(refname:short)", "refs/heads"))
			rnd.Shuffle(len(branches), func(i, j int) { branches[i], branches[j] = branches[j], branches[i] })
			// The branch same is at the base, without further commits.
			git(t, r.dir, "branch", "same", string(base))
			branches = append([]string{"same"}, branches...)
			stock(t, "", "ls-remote", "-q", w.url(r.name, "")) // so that its refs are known
			for _, branch := range branches[:min(len(branches), each)] {
				fits := false
				for _, b := range []Hash{older, base} {
					_, err := gittest.Try(r.dir, "merge-base", "--is-ancestor", string(b), branch)
					fits = fits || err == nil
				}
				for _, k := range kinds {
					composed, children := compareClone(t, w, r, branch, k.kind, k.args)
					if fits && (composed != 1 || children != 0) || !fits && composed != 0 {
						t.Errorf("%s %v: descends from a base: %v, composed %d by %d processes", branch, k.args, fits,
							composed, children)
					}
				}
			}
		})
	}
}

// compareClone clones a branch from the server and from git itself, and compares the two. It
// returns the number of composed answers, and the number of processes that the server
// started.
func compareClone(t *testing.T, w *wire, r *Repo, branch string, kind clone.Kind, more []string) (composed, children uint64) {
	t.Helper()
	dir := t.TempDir()
	ours, theirs := filepath.Join(dir, "ours"), filepath.Join(dir, "theirs")
	args := append([]string{"-c", "transfer.fsckObjects=true", "-c", "advice.detachedHead=false", "clone", "-q",
		"--single-branch", "-b", branch}, more...)
	before := w.Stats()
	stock(t, "", append(slices.Clone(args), w.url(r.name, ""), ours)...)
	after := w.Stats()
	stock(t, "", append(slices.Clone(args), "--no-local", "-u", "git -c uploadpack.allowFilter=true upload-pack",
		"file://"+r.dir, theirs)...)
	compareClones(t, fmt.Sprint(branch, more), ours, theirs, kind == clone.Shallow)
	return after.Composed - before.Composed, after.Children - before.Children
}

// compareClones checks that two clones have the same content. With more, ours may have
// objects that no ref reaches.
func compareClones(t *testing.T, what, ours, theirs string, more bool) {
	t.Helper()
	fsck(t, ours)
	if a, b := stock(t, ours, "for-each-ref"), stock(t, theirs, "for-each-ref"); a != b {
		t.Errorf("%s: refs:\n%s\ngit has:\n%s", what, a, b)
	}
	if a, b := shallowOf(ours), shallowOf(theirs); a != b {
		t.Errorf("%s: shallow at:\n%s\ngit has:\n%s", what, a, b)
	}
	if a, b := stock(t, ours, "rev-parse", "HEAD"), stock(t, theirs, "rev-parse", "HEAD"); a != b {
		t.Errorf("%s: at %s, git at %s", what, a, b)
	}
	all := []string{"cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)"}
	a, b := strings.Split(stock(t, ours, all...), "\n"), strings.Split(stock(t, theirs, all...), "\n")
	for _, line := range b {
		if !slices.Contains(a, line) {
			t.Errorf("%s: %s is missing", what, line)
		}
	}
	for _, line := range a {
		if !more && !slices.Contains(b, line) {
			t.Errorf("%s: %s is too much", what, line)
		}
	}
	if _, err := os.Stat(filepath.Join(ours, ".git", "index")); err == nil { // it was checked out
		if st := stock(t, ours, "status", "--porcelain"); st != "" {
			t.Errorf("%s: the work tree is not clean:\n%s", what, st)
		}
	}
}

func shallowOf(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, ".git", "shallow"))
	lines := strings.Fields(string(b))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestComposeTags clones tags, and tags of tags.
func TestComposeTags(t *testing.T) {
	w := newWire(t, func(s *Server) { s.Anonymous = true })
	r, err := w.Create(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	first := commit(t, r, "main", "First", "a", "1\n")
	git(t, r.dir, "tag", "-a", "-m", "x", "inner", string(first))
	git(t, r.dir, "tag", "-a", "-m", "x", "outer", "inner")
	commit(t, r, "main", "Second", "b", "2\n")
	git(t, r.dir, "tag", "light", "main")
	tip := commit(t, r, "work", "Other", "c", "3\n")
	git(t, r.dir, "tag", "-a", "-m", "x", "other", string(tip))
	git(t, r.dir, "tag", "-a", "-m", "x", "tree", "main^{tree}")
	for _, k := range cloneKinds {
		if err := r.server.clones.Prepare(t.Context(), cloneRepo{r}, first, k.kind); err != nil {
			t.Fatal(err)
		}
	}
	for i, branch := range []string{"main", "outer", "light", "main"} {
		if i == 3 { // the kept envelopes do not include all any more
			git(t, r.dir, "tag", "-a", "-m", "x", "later", string(first))
		}
		for _, k := range cloneKinds {
			if composed, _ := compareClone(t, w, r, branch, k.kind, k.args); composed == 0 {
				t.Errorf("%s %v: not composed", branch, k.args)
			}
		}
	}
}

// noisy makes a repository whose clones are larger than all buffers on the way. The answer
// to request is one that is kept.
func (w *wire) noisy(name string, size int) (dir, head string, request []byte) {
	w.t.Helper()
	dir = w.repo(name)
	c := w.clone(dir, "-c", "core.compression=0")
	noise := make([]byte, size)
	if _, err := cryptorand.Read(noise); err != nil {
		w.t.Fatal(err)
	}
	head = addFile(w.t, c, "noise", string(noise))
	stock(w.t, c, "push", "-q", "origin", "HEAD:main")
	return dir, head, v2Fetch("ofs-delta", "no-progress", "want "+head, "done")
}

// fetch sends a request of protocol v2 over a connection of its own.
func (w *wire) fetch(ctx context.Context, repo string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", w.http.URL+"/"+repo+".git/git-upload-pack", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth("x", w.token(full))
	req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	req.Header.Set("Git-Protocol", "version=2")
	return (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
}

func (w *wire) fetched(t *testing.T, repo string, body []byte) string {
	t.Helper()
	resp, err := w.fetch(t.Context(), repo, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d %v %.500q", resp.StatusCode, err, b)
	}
	return string(b)
}

// TestStorm has many clients clone the same at once. All get the same answer. It costs one
// run of git, and later clones cost none.
func TestStorm(t *testing.T) {
	w := newWire(t, nil)
	_, head, body := w.noisy("a", 3<<20)
	c := &conformance{wire: w, t: t}
	c.get("/a.git/info/refs?service=git-upload-pack", "version=2") // do the work that is done only once
	c.get("/a.git/info/refs?service=git-receive-pack", "")
	before := w.Stats()
	const clients = 32
	got := make([]string, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { got[i] = w.fetched(t, "a", body) })
	}
	wg.Wait()
	after := w.Stats()
	if n := after.Packs - before.Packs; n != 1 {
		t.Errorf("%d runs of git for %d clients", n, clients)
	}
	if n := after.Hits - before.Hits; n != clients-1 {
		t.Errorf("%d were served by another's", n)
	}
	for i := range got {
		if got[i] != got[0] || !strings.HasSuffix(got[i], protocol.FlushLine) || len(got[i]) < 3<<20 {
			t.Fatalf("client %d got other %d bytes", i, len(got[i]))
		}
	}
	before = w.Stats()
	for range 5 {
		for _, service := range []string{"git-upload-pack", "git-receive-pack"} {
			if status, text := c.get("/a.git/info/refs?service="+service, "version=2"); status != 200 {
				t.Fatal(status, text)
			}
		}
		w.fetched(t, "a", lsRefs("peel", "symrefs"))
		if w.fetched(t, "a", body) != got[0] {
			t.Fatal("another answer")
		}
	}
	if n := w.Stats().Children - before.Children; n != 0 {
		t.Errorf("%d processes for answers that were there", n)
	}
	// A request with the agent of another client, or in another order, is the same request.
	w.fetched(t, "a", bytes.Replace(v2Fetch("want "+head, "done", "no-progress", "ofs-delta"), []byte("git/test"),
		[]byte("jgit/6.5"), 1))
	if n := w.Stats().Packs - before.Packs; n != 0 {
		t.Error("made again")
	}
	// A stock client gets the answer in one piece, with its length.
	resp, err := w.fetch(t.Context(), "a", body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ContentLength != int64(len(got[0])) {
		t.Errorf("length %d", resp.ContentLength)
	}
}

// TestStalled has clients that read nothing. They hold no process, whether their answer is
// complete or still grows.
func TestStalled(t *testing.T) {
	w := newWire(t, nil)
	_, _, body := w.noisy("a", 8<<20)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	stall := func() {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.http.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		fmt.Fprintf(c, "POST /a.git/git-upload-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nGit-Protocol: version=2\r\n"+
			"Content-Type: application/x-git-upload-pack-request\r\nContent-Length: %d\r\n\r\n%s", w.token(full),
			len(body), body)
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 {
		stall()
	}
	eventually(t, "stalled clients hold no process", func() bool { return len(gitChildren(t)) == 0 })
	if n := w.Stats().Packs; n != 1 {
		t.Errorf("%d runs of git", n)
	}
	// The stalled clients do not block others.
	if len(w.fetched(t, "a", body)) < 8<<20 {
		t.Error("not all")
	}
}

// TestReplyBound checks that the least recently used answers are removed first. An answer
// that is too large to be kept is sent whole nevertheless, from a file that does not grow to
// its size.
func TestReplyBound(t *testing.T) {
	w := newWire(t, func(s *Server) { s.ReplyCache = 4 << 20 })
	var bodies [][]byte
	for i := range 5 {
		_, _, body := w.noisy(fmt.Sprint("r", i), 1<<20)
		bodies = append(bodies, body)
		w.fetched(t, fmt.Sprint("r", i), body)
		w.fetched(t, "r0", bodies[0])
		if kept := w.Stats().Kept; kept > 4<<20 {
			t.Errorf("%d bytes are kept", kept)
		}
	}
	before := w.Stats().Packs
	w.fetched(t, "r0", bodies[0])
	w.fetched(t, "r4", bodies[4])
	if n := w.Stats().Packs - before; n != 0 {
		t.Errorf("%d of the newest were not kept", n)
	}
	w.fetched(t, "r1", bodies[1])
	if n := w.Stats().Packs - before; n != 1 {
		t.Error("the oldest was kept")
	}
	_, _, body := w.noisy("large", 40<<20)
	for range 2 {
		if got := w.fetched(t, "large", body); len(got) < 40<<20 || !strings.HasSuffix(got, protocol.FlushLine) {
			t.Errorf("%d bytes", len(got))
		}
	}
	files, err := filepath.Glob(filepath.Join(w.Root, clone.Folder, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			sum += info.Size()
		}
	}
	if kept := w.Stats().Kept; sum != kept || kept > 4<<20 {
		t.Errorf("%d bytes in %d files, %d counted", sum, len(files), kept)
	}
}

// TestReplyDropped deletes a branch. Answers that only it needed are dropped.
func TestReplyDropped(t *testing.T) {
	w := newWire(t, nil)
	dir, head, body := w.noisy("a", 1<<10)
	stock(t, dir, "branch", "twin", "main")
	w.fetched(t, "a", body)
	files := func() int {
		list, err := filepath.Glob(filepath.Join(w.Root, clone.Folder, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if files() != 1 {
		t.Fatal(files())
	}
	r, err := w.Server.Repo("a")
	if err != nil {
		t.Fatal(err)
	}
	first := stock(t, dir, "rev-parse", "main~1")
	for _, u := range []RefUpdate{{Name: "refs/heads/main", New: Hash(first)}, {Name: "refs/heads/twin"}} {
		if err := r.Update(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if n := files(); n != 0 {
		t.Errorf("%d answers are kept", n)
	}
	if text := w.fetched(t, "a", body); text != string((&refview.WantError{Want: Hash(head)}).Packet()) {
		t.Errorf("%.200q", text)
	}
}

// TestReplyAbandoned has all readers of an answer leave. The answer is not made any further,
// and a later client gets a whole one.
func TestReplyAbandoned(t *testing.T) {
	w := newWire(t, nil)
	_, _, body := w.noisy("a", 24<<20)
	for range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := w.fetch(ctx, "a", body)
		if err == nil {
			io.ReadFull(resp.Body, make([]byte, 100))
			cancel()
			resp.Body.Close()
		}
		cancel()
	}
	if got := w.fetched(t, "a", body); len(got) < 24<<20 || !strings.HasSuffix(got, protocol.FlushLine) {
		t.Errorf("%d bytes", len(got))
	}
	eventually(t, "git does not go on for nobody", func() bool { return len(gitChildren(t)) == 0 })
}

// TestReplyCleanup removes the answers of an earlier server.
func TestReplyCleanup(t *testing.T) {
	var w *wire
	t.Cleanup(func() { // when the server is closed
		if _, err := os.Stat(filepath.Join(w.Root, clone.Folder)); !os.IsNotExist(err) {
			t.Error(err)
		}
	})
	w = newWire(t, nil)
	_, _, body := w.noisy("a", 1<<10)
	w.fetched(t, "a", body)
	root := t.TempDir()
	write(t, filepath.Join(root, clone.Folder, "x", "1"), "old")
	s := &Server{Root: root}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, clone.Folder)); !os.IsNotExist(err) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
