package gitd

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/pack/packtest"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

const zeroHash = "0000000000000000000000000000000000000000"

// pushBody returns a push of one new branch, as a client sends it.
func pushBody(ref, id string, pack []byte) []byte {
	return pushBodyFrom(zeroHash, ref, id, pack)
}

// pushBodyFrom is pushBody for a ref that is at old.
func pushBodyFrom(old, ref, id string, pack []byte) []byte {
	body := protocol.AppendLine(nil, old, " ", id, " ", ref, "\x00report-status side-band-64k agent=test")
	return append(append(body, protocol.FlushLine...), pack...)
}

// post sends a request that git would not send, and returns the status and the body.
func (w *wire) post(service, repo string, body io.Reader, header ...string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "POST", w.http.URL+"/"+repo+".git/"+service, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.SetBasicAuth("x", w.token(full))
	req.Header.Set("Content-Type", "application/x-"+service+"-request")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func blobID(data []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
	return hex.EncodeToString(sum[:])
}

// TestHostilePushes sends hostile packs. Each is refused in the report that git shows, and leaves
// nothing.
func TestHostilePushes(t *testing.T) {
	w := newWire(t, func(s *Server) { s.Limits = Limits{PackBytes: 8 << 20, Objects: 1000, ObjectBytes: 64 << 20} })
	dir := w.repo("a")
	hello := &packtest.Builder{}
	hello.Object(3, 5, []byte("hello"))
	good := hello.Pack()
	id := blobID([]byte("hello"))
	bomb := &packtest.Builder{}
	bomb.Object(3, 1<<20, make([]byte, 1<<20))
	for range 60 {
		bomb.Delta(bomb.At()-12, packtest.Growing(1<<20, 60))
	}
	small := &packtest.Builder{}
	small.Object(3, 10, make([]byte, 4<<20))
	garbage := make([]byte, 9<<20)
	if _, err := rand.Read(garbage); err != nil {
		t.Fatal(err)
	}
	big := &packtest.Builder{}
	big.Object(3, uint64(len(garbage)), garbage)
	for _, tt := range []struct {
		name, ref string
		pack      []byte
		why       string
	}{
		{"delta bomb", "refs/heads/x", bomb.Pack(), "copy their bases too often"},
		{"zlib bomb", "refs/heads/x", small.Pack(), "longer than it declares"},
		{"object count", "refs/heads/x", hello.Declaring(1 << 30), "declares 1073741824 objects"},
		{"object count, within limits", "refs/heads/x", hello.Declaring(900), "unpack"},
		{"too large", "refs/heads/x", big.Pack(), "larger than the limit of 8 MiB"},
		{"truncated", "refs/heads/x", good[:len(good)-21], "ends early"},
		{"trailing garbage", "refs/heads/x", append(bytes.Clone(good), "more"...), "after the end of the pack"},
		{"no pack", "refs/heads/x", nil, "ends early"},
		{"wrong checksum", "refs/heads/x", append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1), "unpack"},
		{"a blob for a branch", "refs/heads/x", good, "ng refs/heads/x"},
		{"bad name", "refs/heads/a..b", good, "not a valid ref name"},
		{"bad name", "refs/heads/../../config", good, "not a valid ref name"},
		{"bad name", "HEAD", good, "not a valid ref name"},
		{"bad name", "refs/heads/x.lock", good, "not a valid ref name"},
		{"bad name", "refs/heads/-x", good, "not a valid ref name"},
		{"bad name", "refs/heads/a\x1bb", good, "not a valid ref name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := gittest.ObjectFiles(t, dir)
			status, text := w.post("git-receive-pack", "a", bytes.NewReader(pushBody(tt.ref, id, tt.pack)))
			if status != 200 || !strings.Contains(text, tt.why) || !strings.Contains(text, "ng "+tt.ref) {
				t.Errorf("%d %.300q, want %q", status, text, tt.why)
			}
			if after := gittest.ObjectFiles(t, dir); after != before && tt.name != "a blob for a branch" {
				t.Errorf("something was left:\n%s", after)
			}
			if refs := stock(t, dir, "for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
				t.Errorf("refs are now %s", refs)
			}
		})
	}
	fsck(t, dir)
}

// TestMalformedPushes sends malformed requests. They are refused before a report is possible.
func TestMalformedPushes(t *testing.T) {
	w := newWire(t, nil)
	w.repo("a")
	for _, body := range []string{
		"xxxx", "0003", "00", "ffff", "0005a0000", "0009shall0000", "0001", "0002",
		string(protocol.AppendLine(nil, "shallow zz")) + "0000",
		string(protocol.AppendLine(nil, "push-cert\x00 caps")) + "0000",
		string(protocol.AppendLine(nil, zeroHash, " ", zeroHash[1:], " refs/heads/a\x00report-status")) + "0000",
	} {
		if status, text := w.post("git-receive-pack", "a", strings.NewReader(body)); status != 400 {
			t.Errorf("%q: %d %q", body, status, text)
		}
	}
	// Clients send this to try their credentials.
	if status, text := w.post("git-receive-pack", "a", strings.NewReader("0000")); status != 200 || text != "" {
		t.Errorf("%d %q", status, text)
	}
	if status, _ := w.post("git-receive-pack", "a", strings.NewReader("0000"), "Content-Type", "text/plain"); status != 415 {
		t.Errorf("a form of another type: %d", status)
	}
	if status, _ := w.post("git-upload-pack", "a", strings.NewReader("x"), "Content-Encoding", "br"); status != 415 {
		t.Errorf("an unknown encoding: %d", status)
	}
	if status, _ := w.post("git-upload-pack", "a", strings.NewReader("x"), "Content-Encoding", "gzip"); status != 400 {
		t.Errorf("no gzip: %d", status)
	}
}

// TestFsck refuses objects that would harm a client that checks them out.
func TestFsck(t *testing.T) {
	w := newWire(t, nil)
	dir := w.repo("a")
	c := w.clone(w.url("a", w.token(full)))
	blob, err := hex.DecodeString(stock(t, c, "rev-parse", "HEAD:README"))
	if err != nil {
		t.Fatal(err)
	}
	for name, entry := range map[string]string{
		".git":                  "100644 .git\x00" + string(blob),
		"a symlink .git":        "120000 .git\x00" + string(blob),
		".GIT":                  "100644 .GIT\x00" + string(blob),
		"..":                    "100644 ..\x00" + string(blob),
		"a/b":                   "100644 a/b\x00" + string(blob),
		"a symlink .gitmodules": "120000 .gitmodules\x00" + string(blob),
	} {
		write(t, filepath.Join(c, "tree"), entry)
		tree := stock(t, c, "hash-object", "-w", "-t", "tree", "--literally", "tree")
		commit := stock(t, c, "commit-tree", "-m", "bad", tree)
		out, err := stockTry(c, "push", "origin", commit+":refs/heads/bad")
		if err == nil {
			t.Errorf("%s: accepted\n%s", name, out)
		} else if !strings.Contains(out, "fsck error") {
			t.Errorf("%s: the user was not told:\n%s", name, out)
		}
	}
	fsck(t, dir)
}

// TestRacingPushers has eight clients push different commits to one branch. One of them wins.
func TestRacingPushers(t *testing.T) {
	w := newWire(t, nil)
	dir := w.repo("a")
	url := w.url("a", w.token(full))
	var clones, heads []string
	for i := range 8 {
		c := w.clone(url)
		heads = append(heads, addFile(t, c, fmt.Sprint("f", i), "x"))
		clones = append(clones, c)
	}
	errs := make([]error, len(clones))
	var wg sync.WaitGroup
	for i, c := range clones {
		wg.Go(func() { _, errs[i] = stockTry(c, "push", "-q", "origin", "HEAD:main") })
	}
	wg.Wait()
	var winners []string
	for i, err := range errs {
		if err == nil {
			winners = append(winners, heads[i])
		}
	}
	if len(winners) != 1 || stock(t, dir, "rev-parse", "main") != winners[0] {
		t.Fatalf("%d were told that they won", len(winners))
	}
	fsck(t, dir)
}

// TestManyBranches lists 10,000 branches.
func TestManyBranches(t *testing.T) {
	w := newWire(t, nil)
	dir := w.repo("a")
	head := stock(t, dir, "rev-parse", "main")
	var b strings.Builder
	b.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "%s refs/heads/b%05d\n", head, i)
	}
	write(t, filepath.Join(dir, "packed-refs"), b.String())
	for _, v := range []string{"0", "2"} {
		out := stock(t, "", "-c", "protocol.version="+v, "ls-remote", "--heads", w.url("a", w.token(full)))
		if n := strings.Count(out, "refs/heads/b"); n != 10_000 {
			t.Errorf("v%s: %d branches", v, n)
		}
	}
}

// TestLargePush pushes 100 MB and clones them again. The server's memory does not grow with them.
func TestLargePush(t *testing.T) {
	w := newWire(t, nil)
	dir := w.repo("a")
	c := w.clone(w.url("a", w.token(full)), "-c", "core.compression=0", "-c", "core.bigFileThreshold=1m")
	f, err := os.Create(filepath.Join(c, "large"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, rand.Reader, 100<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	stock(t, c, "add", ".")
	stock(t, c, "commit", "-q", "-m", "large")
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, peak := m.HeapAlloc, uint64(0)
	stop := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
	})
	stock(t, c, "push", "-q", "origin", "HEAD:main")
	clone := w.clone(w.url("a", w.token(full)))
	close(stop)
	sampling.Wait()
	if peak > before+32<<20 {
		t.Errorf("the heap grew from %d to %d MiB", before>>20, peak>>20)
	}
	if stock(t, clone, "rev-parse", "HEAD") != stock(t, c, "rev-parse", "HEAD") {
		t.Error("the clone is another")
	}
	fsck(t, dir)
}

// TestPackLimitStockClient checks the error that stock git shows if a push is too large.
func TestPackLimitStockClient(t *testing.T) {
	_, key, file := sshKey(t)
	w := newWire(t, func(s *Server) {
		s.Limits.PackBytes = 1 << 20
		s.AuthorizedKeys = filepath.Join(t.TempDir(), "keys")
		write(t, s.AuthorizedKeys, key+" ada\n")
	})
	dir := w.repo("a")
	c := w.clone(w.url("a", w.token(full)))
	noise := make([]byte, 6<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	addFile(t, c, "noise", string(noise))
	out, err := stockTry(c, "push", "origin", "HEAD:main")
	refused(t, out, err, "remote: error: larger than the limit of 1 MiB", "[remote rejected] HEAD -> main")
	out, err = stockEnvTry(sshGit(t, file), c, "push", "ssh://git@"+w.serveSSH("127.0.0.1")+"/a.git", "HEAD:main")
	refused(t, out, err, "remote: error: larger than the limit of 1 MiB", "[remote rejected] HEAD -> main")
	fsck(t, dir)
}

// TestBodies sends the encodings and framings that clients use.
func TestBodies(t *testing.T) {
	w := newWire(t, nil)
	dir := w.repo("a")
	c := w.clone(dir)
	for i, header := range [][]string{nil, {"Content-Encoding", "gzip"}, {"Expect", "100-continue"}} {
		for _, chunked := range []bool{false, true} {
			head := addFile(t, c, fmt.Sprint("f", i, chunked), "x")
			ref := fmt.Sprintf("refs/heads/b%d%v", i, chunked)
			list := filepath.Join(t.TempDir(), "p")
			stock(t, c, "-c", "alias.po=!git rev-list --objects HEAD | git pack-objects --stdout -q > "+list, "po")
			pack, err := os.ReadFile(list)
			if err != nil {
				t.Fatal(err)
			}
			body := pushBody(ref, head, pack)
			if len(header) > 0 && header[1] == "gzip" {
				var z bytes.Buffer
				zw := gzip.NewWriter(&z)
				zw.Write(body)
				zw.Close()
				body = z.Bytes()
			}
			var r io.Reader = bytes.NewReader(body)
			if chunked {
				r = struct{ io.Reader }{r}
			}
			status, text := w.post("git-receive-pack", "a", r, header...)
			if status != 200 || !strings.Contains(text, "ok "+ref) {
				t.Errorf("%v, chunked %v: %d %q", header, chunked, status, text)
			}
			if got := stock(t, dir, "rev-parse", ref); got != head {
				t.Errorf("%s is at %s", ref, got)
			}
		}
	}
	fsck(t, dir)
}

// TestGzipBomb sends 64 MiB of zeros as 64 KiB of gzip. The server does not inflate them to their
// end. If net/http leaves a part of a larger request unread, the connection can be reset before the
// answer is read.
func TestGzipBomb(t *testing.T) {
	w := newWire(t, nil)
	w.repo("a")
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	block := bytes.Repeat([]byte("0"), 1<<20)
	for range 64 {
		zw.Write(block)
	}
	zw.Close()
	if z.Len() > 128<<10 {
		t.Fatalf("%d bytes of gzip", z.Len())
	}
	status, text := w.post("git-upload-pack", "a", bytes.NewReader(z.Bytes()), "Content-Encoding", "gzip")
	if status != 413 || !strings.Contains(text, "larger than the limit") {
		t.Errorf("%d %q", status, text)
	}
	status, text = w.post("git-receive-pack", "a", bytes.NewReader(z.Bytes()), "Content-Encoding", "gzip")
	if status == 200 && text != "" {
		t.Errorf("%d %q", status, text)
	}
}

// gitChildren lists the processes that this process has started.
func gitChildren(t testing.TB) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// pid (comm) state ppid
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) && strings.Contains(string(stat), "(git") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually waits for an event that comes soon on an idle machine.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !within(time.Minute, ok) {
		t.Fatalf("it never came to this: %s", what)
	}
}

// within reports whether ok returns true within d. d is long enough for everything but a hang.
func within(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// dial opens a connection and sends the head of a request for repository a.
func (w *wire) dial(service string, length int) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.http.URL, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /a.git/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/x-%s-request\r\nContent-Length: %d\r\n\r\n",
		service, w.token(full), service, length)
	return c
}

// bigRepo makes a repository whose clone is larger than all buffers on the way.
func (w *wire) bigRepo(size int) (dir string, request []byte) {
	w.t.Helper()
	dir = w.repo("a")
	c := w.clone(dir, "-c", "core.compression=0")
	noise := make([]byte, size)
	if _, err := rand.Read(noise); err != nil {
		w.t.Fatal(err)
	}
	head := addFile(w.t, c, "noise", string(noise))
	stock(w.t, c, "push", "-q", "origin", "HEAD:main")
	request = protocol.AppendLine(nil, "want ", head, " ofs-delta no-progress\n")
	return dir, append(append(request, protocol.FlushLine...), "0009done\n"...)
}

// TestHangUp has a client close its connection early. No process and no file remains.
func TestHangUp(t *testing.T) {
	w := newWire(t, nil)
	dir, request := w.bigRepo(16 << 20)
	before := gittest.ObjectFiles(t, dir)
	t.Run("in the middle of a push", func(t *testing.T) {
		c := w.dial("git-receive-pack", 1<<20)
		hello := &packtest.Builder{}
		hello.Object(3, 5, []byte("hello"))
		c.Write(pushBody("refs/heads/x", blobID([]byte("hello")), hello.Declaring(2)))
		c.Close()
	})
	t.Run("in the middle of a clone", func(t *testing.T) {
		c := w.dial("git-upload-pack", len(request))
		c.Write(request)
		if _, err := io.ReadFull(c, make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		if len(gitChildren(t)) == 0 {
			t.Fatal("no git is at work: the test tests nothing")
		}
		c.Close()
	})
	eventually(t, "no git process is left", func() bool { return len(gitChildren(t)) == 0 })
	eventually(t, "nothing is left of a push", func() bool { return gittest.ObjectFiles(t, dir) == before })
	w.clone(w.url("a", w.token(full)))
}

// TestIdleClients disconnects clients that neither send nor receive.
func TestIdleClients(t *testing.T) {
	w := newWire(t, func(s *Server) { s.Limits.Idle = 300 * time.Millisecond })
	_, request := w.bigRepo(16 << 20)
	sender := w.dial("git-receive-pack", 1000)
	defer sender.Close()
	io.WriteString(sender, "00")
	taker := w.dial("git-upload-pack", len(request))
	defer taker.Close()
	taker.Write(request)
	if _, err := io.ReadFull(taker, make([]byte, 100)); err != nil { // git is at work
		t.Fatal(err)
	}
	eventually(t, "no git process is left", func() bool { return len(gitChildren(t)) == 0 })
	sender.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := io.ReadAll(sender)
	if err != nil || !strings.Contains(string(answer), " 408 ") {
		t.Errorf("%q, %v", answer, err)
	}
}

// TestChildKilled kills a git process. Only its own client fails.
func TestChildKilled(t *testing.T) {
	w := newWire(t, nil)
	_, request := w.bigRepo(16 << 20)
	c := w.dial("git-upload-pack", len(request))
	defer c.Close()
	c.Write(request)
	if _, err := io.ReadFull(c, make([]byte, 100<<10)); err != nil {
		t.Fatal(err)
	}
	for _, pid := range gitChildren(t) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	rest, _ := io.ReadAll(c)
	if strings.HasSuffix(string(rest), "0\r\n\r\n") {
		t.Error("a broken answer looks like a whole one")
	}
	w.clone(w.url("a", w.token(full)))
}

// TestChildLimits checks the limits of CPU, memory and time of git children.
func TestChildLimits(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		w := newWire(t, func(s *Server) { s.Limits.Memory = 64 << 20 })
		dir := w.repo("a")
		c := w.clone(dir, "-c", "core.compression=0", "-c", "core.bigFileThreshold=1g")
		addFile(t, c, "zeros", strings.Repeat("0", 100<<20))
		out, err := stockTry(c, "push", w.url("a", w.token(full)), "HEAD:main")
		refused(t, out, err)
		fsck(t, dir)
	})
	t.Run("time", func(t *testing.T) {
		w := newWire(t, func(s *Server) { s.Limits.Time = 200 * time.Millisecond })
		_, request := w.bigRepo(16 << 20)
		c := w.dial("git-upload-pack", len(request))
		defer c.Close()
		c.Write(request)
		io.ReadFull(c, make([]byte, 1)) // then receive nothing
		eventually(t, "no git process is left", func() bool { return len(gitChildren(t)) == 0 })
		rest, _ := io.ReadAll(c)
		if len(rest) > 1000 && strings.HasSuffix(string(rest), "0\r\n\r\n") {
			t.Error("a broken answer looks like a whole one")
		}
	})
	t.Run("number", func(t *testing.T) {
		w := newWire(t, func(s *Server) { s.Limits.Processes = 2 })
		w.repo("a")
		url := w.url("a", w.token(full))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if out, err := stockTry("", "ls-remote", url); err != nil {
					t.Error(out)
				}
				if n := len(gitChildren(t)); n > 2+10 { // the clients are children, too
					t.Errorf("%d processes", n)
				}
			})
		}
		wg.Wait()
	})
}

// TestHooks checks that hooks in a repository never run.
func TestHooks(t *testing.T) {
	for _, own := range []bool{false, true} {
		w := newWire(t, func(s *Server) { s.OwnConfig = own })
		dir := w.repo("a")
		ran := filepath.Join(t.TempDir(), "ran")
		for _, hook := range []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction",
			"proc-receive", "push-to-checkout"} {
			path := filepath.Join(dir, "hooks", hook)
			write(t, path, "#!/bin/sh\ntouch "+ran+"\n")
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		stock(t, dir, "config", "core.hooksPath", filepath.Join(dir, "hooks"))
		stock(t, dir, "config", "core.alternateRefsCommand", "touch "+ran+";")
		stock(t, dir, "config", "uploadpack.packObjectsHook", "touch "+ran+";")
		c := w.clone(w.url("a", w.token(full)))
		addFile(t, c, "f", "f")
		stock(t, c, "push", "-q", "origin", "HEAD:main")
		w.clone(w.url("a", w.token(full)))
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("OwnConfig %v: a hook was run", own)
		}
	}
}

// TestOwnConfig serves folders as they are, as `ramus gitd` does.
func TestOwnConfig(t *testing.T) {
	w := newWire(t, func(s *Server) { s.OwnConfig, s.Anonymous = true, true })
	dir := w.repo("a")
	plain := w.url("a", "")
	c := w.clone(plain)
	addFile(t, c, "f", "f")
	stock(t, c, "push", "-q", "origin", "HEAD:main", "HEAD:refs/notes/x", "HEAD:refs/ramus/x")
	stock(t, c, "push", "-q", "origin", "+HEAD~1:refs/notes/x", "+HEAD~1:main", ":refs/ramus/x")

	stock(t, dir, "config", "receive.denyNonFastForwards", "true")
	stock(t, dir, "config", "receive.denyDeletes", "true")
	stock(t, c, "push", "-q", "origin", "HEAD:main", "HEAD:topic")
	out, err := stockTry(c, "push", "origin", "+HEAD~1:main")
	refused(t, out, err, "non-fast-forward")
	out, err = stockTry(c, "push", "origin", ":topic")
	refused(t, out, err, "deletion prohibited")

	stock(t, dir, "config", "http.receivepack", "false")
	out, err = stockTry(c, "push", "origin", "HEAD:again")
	refused(t, out, err, "switched off")
	stock(t, dir, "config", "http.receivepack", "true")
	stock(t, c, "push", "-q", "origin", "HEAD:again")

	stock(t, dir, "config", "uploadpack.allowFilter", "false")
	out, err = stockTry("", "clone", "--filter=blob:none", plain, filepath.Join(t.TempDir(), "c"))
	if err != nil || !strings.Contains(out, "filtering not recognized by server") {
		t.Errorf("a filter although the repository wants none: %s %v", out, err)
	}
	stock(t, dir, "config", "http.uploadpack", "false")
	out, err = stockTry(c, "fetch")
	refused(t, out, err, "switched off")

	// These repositories are made while the server runs. Their names are unusual, with and
	// without ".git".
	for _, name := range []string{"later.git", "plain", "some folder/ünï code.git"} {
		stock(t, "", "init", "-q", "--bare", filepath.Join(w.Root, name))
		stock(t, c, "push", "-q", w.http.URL+(&url.URL{Path: "/" + name}).EscapedPath(), "HEAD:main")
		fsck(t, filepath.Join(w.Root, name))
	}
	if err := os.RemoveAll(filepath.Join(w.Root, "later.git")); err != nil {
		t.Fatal(err)
	}
	out, err = stockTry("", "ls-remote", w.http.URL+"/later.git")
	refused(t, out, err, "not found")
	for _, bad := range []string{"/.git", "/a.git/objects", "/../root/a.git", "/./a.git", "/a.git/.", "/some folder"} {
		resp, err := http.Get(w.http.URL + strings.ReplaceAll(bad, " ", "%20") + "/info/refs?service=git-upload-pack")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 404 {
			t.Errorf("%s: %d", bad, resp.StatusCode)
		}
	}
	// The URL may end in ".git", with any name of the folder. Work trees are served, too.
	stock(t, "", "init", "-q", "-b", "main", filepath.Join(w.Root, "tree"))
	stock(t, c, "push", "-q", w.http.URL+"/tree.git", "HEAD:refs/heads/pushed")
	fsck(t, filepath.Join(w.Root, "tree", ".git"))
	stock(t, dir, "config", "http.uploadpack", "true")
	for _, name := range []string{"/a", "/a.git", "/plain", "/plain.git", "/tree", "/tree.git"} {
		if out := stock(t, "", "ls-remote", w.http.URL+name); !strings.Contains(out, "refs/heads/") {
			t.Errorf("%s has %q", name, out)
		}
	}
	// Bearer tokens are accepted, too.
	closed := newWire(t, func(s *Server) { s.OwnConfig = true })
	closed.repo("b")
	out, err = stockTry("", "ls-remote", closed.url("b", ""))
	refused(t, out, err)
	header := "http.extraHeader=Authorization: Bearer " + closed.token(Grant{Repo: "b"})
	stock(t, "", "-c", header, "ls-remote", closed.url("b", ""))
}

// TestOwnConfigHolds checks that a repository's own configuration of git has priority over the
// server's defaults.
func TestOwnConfigHolds(t *testing.T) {
	w := newWire(t, func(s *Server) { s.OwnConfig, s.Anonymous = true, true })
	dir := w.repo("a")
	plain := w.url("a", "")
	c := w.clone(plain)
	addFile(t, c, "f", "f")
	stock(t, c, "push", "-q", "origin", "HEAD:main")

	// Push options, which hooks of git read, are refused unless the repository takes them.
	out, err := stockTry(c, "push", "-o", "ci.skip", "origin", "HEAD:with-options")
	refused(t, out, err, "does not support push options")
	stock(t, dir, "config", "receive.advertisePushOptions", "true")
	stock(t, c, "push", "-q", "-o", "ci.skip", "origin", "HEAD:with-options")

	// Over protocol v0 a commit that no ref reaches is served unless the repository restricts that.
	lost := stock(t, dir, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit-tree", "-p", "main", "-m",
		"lost", "main^{tree}")
	reached := stock(t, dir, "rev-parse", "main~1")
	ask := func(hash string) (string, error) {
		return stockTry(w.clone(plain), "-c", "protocol.version=0", "fetch", "-q", "--depth=1", "origin", hash)
	}
	if out, err := ask(lost); err != nil {
		t.Errorf("by default: %v: %s", err, out)
	}
	for _, key := range []string{"allowReachableSHA1InWant", "allowTipSHA1InWant"} {
		stock(t, dir, "config", "uploadpack."+key, "true")
		out, err := ask(lost)
		refused(t, out, err, "not our ref")
		stock(t, dir, "config", "uploadpack."+key, "false")
		out, err = ask(lost)
		refused(t, out, err)
		stock(t, dir, "config", "--unset", "uploadpack."+key)
	}
	stock(t, dir, "config", "uploadpack.allowReachableSHA1InWant", "true")
	if out, err := ask(reached); err != nil {
		t.Errorf("a commit that a ref reaches: %v: %s", err, out)
	}

	// A smaller bound of a push, and objects that are not looked at.
	stock(t, dir, "config", "receive.maxInputSize", "2k")
	noise := make([]byte, 8<<10)
	rand.Read(noise)
	addFile(t, c, "large", string(noise))
	out, err = stockTry(c, "push", "-q", "origin", "HEAD:large")
	refused(t, out, err, "maximum allowed size")
	stock(t, dir, "config", "receive.maxInputSize", "1g")
	stock(t, c, "push", "-q", "origin", "HEAD:large")
	malformed := filepath.Join(t.TempDir(), "commit")
	if err := os.WriteFile(malformed, []byte("tree "+stock(t, c, "rev-parse", "HEAD^{tree}")+
		"\nauthor nobody\ncommitter nobody\n\nbad\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := stock(t, c, "hash-object", "-w", "--literally", "-t", "commit", malformed)
	out, err = stockTry(c, "push", "-q", "origin", bad+":refs/heads/bad")
	refused(t, out, err, "fsck error")
	stock(t, dir, "config", "transfer.fsckObjects", "false")
	stock(t, c, "push", "-q", "origin", bad+":refs/heads/bad")
}
