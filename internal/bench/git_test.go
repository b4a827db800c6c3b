package main

import (
	"bytes"
	"context"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testRepository makes a small repository of the bench's kind.
func testRepository(t *testing.T, branches int) *repository {
	t.Helper()
	s := shape{name: "test", files: 40, commits: 5, branches: branches}
	dir := filepath.Join(t.TempDir(), "test.git")
	if err := makeRepository(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
	tip, err := gitIn(t.Context(), dir, "rev-parse", "main")
	if err != nil {
		t.Fatal(err)
	}
	return &repository{s, dir, tip}
}

// TestRepository: the same shape is the same bytes on every machine, and what it says.
func TestRepository(t *testing.T) {
	r := testRepository(t, 3)
	const want = "bab7d34acc25b9ceac247fca1e43f996052888c9" // as of shapeVersion
	if r.tip != want {
		t.Errorf("main is %s, want %s: a new shape needs a new shapeVersion", r.tip, want)
	}
	for _, c := range []struct{ args, want string }{
		{"ls-tree -r --name-only main", "40"},
		{"rev-list main", "6"},
		{"for-each-ref refs/heads", "4"},
		{"diff --name-only main task-2", "2"},
	} {
		out, err := gitIn(t.Context(), r.dir, strings.Fields(c.args)...)
		if n := len(strings.Split(out, "\n")); err != nil || c.want != itoa(n) {
			t.Errorf("git %s tells %d lines, %v; want %s", c.args, n, err, c.want)
		}
	}
	text, err := gitIn(t.Context(), r.dir, "cat-file", "blob", "main:"+markPath)
	if err != nil || text+"\n" != markText {
		t.Errorf("the mark says %q, %v", text, err)
	}
	if _, err := gitIn(t.Context(), r.dir, "fsck", "--strict"); err != nil {
		t.Error(err)
	}
}

func itoa(n int) string { return string(digits(float64(n))) }

// TestWire has the client that is measured with speak to stock git: what it draws is
// what git would have got, what it pushes git takes.
func TestWire(t *testing.T) {
	r := testRepository(t, 2)
	if _, err := gitIn(t.Context(), r.dir, "config", "uploadpack.allowFilter", "true"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(spawn(filepath.Dir(r.dir)))
	defer server.Close()
	c := newGitClient(server.URL+"/test.git", "")
	defer c.close()

	for name, f := range map[string]clone{
		"full": {ref: "HEAD"}, "depth 1": {ref: "refs/heads/task-1", depth: 1},
		"no blobs": {ref: "HEAD", filter: "blob:none"}, "all": {ref: "HEAD", all: true},
	} {
		var pack bytes.Buffer
		f.pack = &pack
		got, err := c.clone(t.Context(), f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if int64(pack.Len()) != got.bytes {
			t.Errorf("%s: %d bytes told, %d came", name, got.bytes, pack.Len())
		}
		if err := checkPack(t.Context(), r.dir, pack.Bytes(), got.tip, f.depth == 0 && f.filter == ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		list := []string{"rev-list", "--objects", f.ref}
		if f.all {
			list = []string{"rev-list", "--objects", "--all"}
		}
		if f.depth == 0 && f.filter == "" {
			out, err := gitIn(t.Context(), r.dir, list...)
			if n := len(strings.Split(out, "\n")); err != nil || uint32(n) != got.objects {
				t.Errorf("%s: %d objects came, git counts %d (%v)", name, got.objects, n, err)
			}
		}
	}

	on, err := parentIn(t.Context(), r.dir, "main")
	if err != nil {
		t.Fatal(err)
	}
	p := prepare(on, "refs/heads/pushed", 1)
	if err := c.push(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if tip, err := gitIn(t.Context(), r.dir, "rev-parse", "pushed"); err != nil || tip != p.new {
		t.Errorf("the branch is at %s, %v; want %s", tip, err, p.new)
	}
	if out, err := gitIn(t.Context(), r.dir, "diff", "--name-only", "main", "pushed"); err != nil || len(strings.Fields(out)) != 10 {
		t.Errorf("the push changed %q, %v", out, err)
	}
	if _, err := gitIn(t.Context(), r.dir, "fsck", "--strict"); err != nil {
		t.Error(err)
	}
	if err := c.push(t.Context(), p); err == nil {
		t.Error("a push of objects that the server has was taken")
	}
}

// TestWireRefuses: half an answer, or one of the old protocol, is no measurement.
func TestWireRefuses(t *testing.T) {
	for name, answer := range map[string]string{
		"empty":         "",
		"cut":           "000dpackfile\n0015\x01PACK",
		"no pack":       "000dpackfile\n0009\x01PACX0000",
		"an error":      "000dpackfile\n0009\x03oops0000",
		"odd length":    "zzzz",
		"no section":    "0000",
		"a tail":        "000dpackfile\n0025\x01PACK\x00\x00\x00\x02\x00\x00\x00\x0012345678901234567890" + "0000" + "x",
		"too long head": "0003",
	} {
		if got, err := readPack(newPackets(strings.NewReader(answer)), io.Discard); err == nil {
			t.Errorf("%s: taken as %+v", name, got)
		}
	}
}

func FuzzReadPack(f *testing.F) {
	f.Add([]byte("0010shallow-info000dpackfile\n0025\x01PACK\x00\x00\x00\x02\x00\x00\x00\x00123456789012345678900000"))
	f.Add([]byte("000dpackfile\n0000"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		var out bytes.Buffer
		got, err := readPack(newPackets(bytes.NewReader(answer)), &out)
		if err == nil && (int64(out.Len()) != got.bytes || out.Len() < 32) {
			t.Errorf("%d bytes told, %d came", got.bytes, out.Len())
		}
	})
}

// TestServer: CPU and memory of a process tree are found, and nothing of it is left.
func TestServer(t *testing.T) {
	b := &bench{dir: t.TempDir(), said: io.Discard}
	s, err := b.start(t.Context(), "a shell", nil, serving, "sh", "-c",
		"(i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 100) & echo serving http://here; sleep 100")
	if err != nil {
		t.Fatal(err)
	}
	if mb, own := s.rss(); s.url != "http://here" || len(s.pids()) < 2 || own <= 0 || mb < own {
		t.Errorf("url %q, processes %v, %v MB, %v of them no file's", s.url, s.pids(), mb, own)
	}
	if s.cpu() <= 0 && s.group != "" { // ticks are too long to be seen here
		t.Error("no CPU time was seen")
	}
	pids := s.pids()
	if err := b.exit(context.Background()); err != nil {
		t.Error(err)
	}
	if s.group == "" {
		t.Skip("cannot run here: no control group can be made, so children that were left are not found")
	}
	for _, pid := range pids {
		alive := func() bool { f := statFields(pid); return f != nil && f[2] != "Z" }
		for range 3000 { // it leaves its group a moment before it has ended
			if !alive() {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if alive() {
			t.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(s.group); err == nil {
		t.Errorf("%s is left", s.group)
	}
}

func TestMain(m *testing.M) {
	if _, err := exec.LookPath("git"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
