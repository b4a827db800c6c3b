package gitd

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/gitd/protocol"
)

// noisy is a repository whose clones are larger than all buffers between; the answer to
// the request is one that is kept.
func (w *wire) noisy(name string, size int) (dir, head string, request []byte) {
	w.t.Helper()
	dir = w.repo(name)
	c := w.clone(dir, "-c", "core.compression=0")
	noise := make([]byte, size)
	if _, err := rand.Read(noise); err != nil {
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

// TestStorm: many who clone the same at once cost one run of git, and those who come
// later none at all; all get the same.
func TestStorm(t *testing.T) {
	w := newWire(t, nil)
	_, head, body := w.noisy("a", 3<<20)
	c := &conformance{wire: w, t: t}
	c.get("/a.git/info/refs?service=git-upload-pack", "version=2") // what is only done once
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
	// With the agent of another client, or in another order, it is the same request.
	w.fetched(t, "a", bytes.Replace(v2Fetch("want "+head, "done", "no-progress", "ofs-delta"), []byte("git/test"), []byte("jgit/6.5"), 1))
	if n := w.Stats().Packs - before.Packs; n != 0 {
		t.Error("made anew")
	}
	// And a stock client is given it in one piece that it can be told the length of.
	resp, err := w.fetch(t.Context(), "a", body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ContentLength != int64(len(got[0])) {
		t.Errorf("length %d", resp.ContentLength)
	}
}

// TestStalled: clients that read nothing hold no process, whether what they asked for is
// there or grows.
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
			"Content-Type: application/x-git-upload-pack-request\r\nContent-Length: %d\r\n\r\n%s", w.token(full), len(body), body)
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
	// They keep nobody out.
	if len(w.fetched(t, "a", body)) < 8<<20 {
		t.Error("not all")
	}
}

// TestReplyBound: answers that were not used for longest go first, and one that is too large
// to be kept is sent whole all the same, from a file that does not grow to its size.
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
	files, err := filepath.Glob(filepath.Join(w.Root, replyFolder, "*", "*"))
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

// TestReplyDropped: what a deleted branch alone was at is no longer kept.
func TestReplyDropped(t *testing.T) {
	w := newWire(t, nil)
	dir, head, body := w.noisy("a", 1<<10)
	stock(t, dir, "branch", "twin", "main")
	w.fetched(t, "a", body)
	files := func() int {
		list, err := filepath.Glob(filepath.Join(w.Root, replyFolder, "*", "*"))
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
	if text := w.fetched(t, "a", body); text != string((&wantError{Hash(head)}).packet()) {
		t.Errorf("%.200q", text)
	}
}

// TestReplyAbandoned: when nobody reads an answer any more nobody makes it, and who comes after
// gets a whole one.
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

// TestReplyCleanup: what an earlier server kept is removed.
func TestReplyCleanup(t *testing.T) {
	var w *wire
	t.Cleanup(func() { // when the server is closed
		if _, err := os.Stat(filepath.Join(w.Root, replyFolder)); !os.IsNotExist(err) {
			t.Error(err)
		}
	})
	w = newWire(t, nil)
	_, _, body := w.noisy("a", 1<<10)
	w.fetched(t, "a", body)
	root := t.TempDir()
	write(t, filepath.Join(root, replyFolder, "x", "1"), "old")
	s := &Server{Root: root}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, replyFolder)); !os.IsNotExist(err) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFollow: whoever reads along gets whole packets in order, with progress between them
// if it is wanted, and nothing behind the end.
func TestFollow(t *testing.T) {
	s := &Server{}
	c := &s.replies
	c.root, c.max = t.TempDir(), 4<<20
	defer c.close()
	rd, err := c.join(replyKey{1}, fileID{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rd.file, err = os.Create(rd.path); err != nil {
		t.Fatal(err)
	}
	var git, quiet bytes.Buffer
	git.Write(protocol.AppendLine(nil, "packfile\n"))
	quiet.Write(git.Bytes())
	for i := range 400 {
		git.Write(protocol.AppendBand(nil, protocol.BandProgress, fmt.Appendf(nil, "Counting %d\r", i), protocol.MaxLine))
		data := protocol.AppendBand(nil, protocol.BandData, bytes.Repeat([]byte{byte(i)}, i*7+1), protocol.MaxLine)
		git.Write(data)
		quiet.Write(data)
	}
	git.Write(protocol.AppendBand(nil, protocol.BandProgress, []byte("Counting 400, done.\n"), protocol.MaxLine))
	git.WriteString(protocol.FlushLine)
	quiet.WriteString(protocol.FlushLine)

	const followers = 6
	got := make([]bytes.Buffer, followers)
	var wg sync.WaitGroup
	for i := range followers {
		rd, err := c.join(replyKey{1}, fileID{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer c.leave(rd)
			if err := rd.send(t.Context(), i%2 == 0, unsized{&got[i]}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := s.keep(t.Context(), rd.keptReply, &git); err != nil {
		t.Fatal(err)
	}
	rd.mu.Lock()
	rd.whole, rd.told = true, lastSaid(rd.said)
	rd.moved.Broadcast()
	rd.mu.Unlock()
	wg.Wait()
	late, err := c.join(replyKey{1}, fileID{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var last bytes.Buffer
	if err := late.send(t.Context(), true, unsized{&last}); err != nil {
		t.Fatal(err)
	}
	c.leave(late)
	c.leave(rd)
	for i, b := range append(got, last) {
		data, said := split(t, b.Bytes())
		if !bytes.Equal(data, quiet.Bytes()) {
			t.Errorf("reader %d got other %d bytes", i, len(data))
		}
		switch {
		case i%2 == 1 && said != "":
			t.Errorf("reader %d was told %q", i, said)
		case i == followers && said != "Counting 400, done.\n":
			t.Errorf("who came late was told %q", said)
		case i%2 == 0 && !strings.HasSuffix(said, "done.\n"):
			t.Errorf("reader %d was told %q", i, said)
		}
	}
}

type unsized struct{ io.Writer }

func (unsized) length(int64) {}

// split takes progress out of an answer, which must end with its flush.
func split(t testing.TB, b []byte) (data []byte, said string) {
	t.Helper()
	r := bytes.NewReader(b)
	lines := protocol.NewReader(r)
	for {
		raw, kind, err := lines.NextRaw()
		if err != nil {
			t.Fatalf("%v after %d bytes", err, len(data))
		}
		switch {
		case kind == protocol.Data && raw[4] == protocol.BandProgress:
			said += string(raw[5:])
		case kind == protocol.Data && len(raw) == 5:
		default:
			data = append(data, raw...)
		}
		if kind == protocol.Flush {
			if r.Len() > 0 {
				t.Errorf("%d bytes behind the end", r.Len())
			}
			return data, said
		}
	}
}
