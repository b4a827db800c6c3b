package gitd

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"golang.org/x/sys/unix"
)

// work makes a repository with a work tree and one commit.
func work(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "First")
	return dir
}

// nothingLeft fails the test if a repository, or a part of one, exists.
func nothingLeft(t testing.TB, s *Server) {
	t.Helper()
	if repos, err := s.Repos(context.Background()); len(repos) > 0 || err != nil {
		t.Error("repositories after a failure:", repos, err)
	}
	if left, err := os.ReadDir(filepath.Join(s.Root, newFolder)); len(left) > 0 || err != nil && !os.IsNotExist(err) {
		t.Error("still there:", left, err)
	}
}

func TestSources(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	if err := os.Mkdir(filepath.Join(here, "with:colon"), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, where := range map[string]string{
		here:                               here,
		".":                                here,
		"file://" + here:                   here,
		"./with:colon":                     filepath.Join(here, "with:colon"),
		"with:colon":                       filepath.Join(here, "with:colon"),
		"https://example.com/r.git":        "https://example.com/r.git",
		"https://user:pw@example.com/r":    "https://example.com/r",
		"HTTPS://token@example.com/r":      "https://example.com/r",
		"ssh://git@example.com:22/r":       "ssh://git@example.com:22/r",
		"git@example.com:team/r.git":       "git@example.com:team/r.git",
		"":                                 "",
		"-x":                               "",
		"--upload-pack=touch x":            "",
		"ext::sh -c touch x":               "",
		"fd::3":                            "",
		"git://example.com/r":              "",
		"ftp://example.com/r":              "",
		"ssh://-oProxyCommand=x/r":         "",
		"ssh://git@-oProxyCommand=x/r":     "",
		"ssh://user:pw@example.com/r":      "",
		"ssh://example.com/-x":             "",
		"git@-x:r":                         "",
		"-oProxyCommand=x:r":               "",
		"host:-x":                          "",
		"https:///r":                       "",
		"file://host/r":                    "",
		"a\nb":                             "",
		"/nonexistent/somewhere":           "",
		"https://example.com/\x00":         "",
		"transport::https://example.com/r": "",
	} {
		s, err := parseSource(text)
		if where == "" {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNotFound) {
				t.Errorf("%q: %+v, %v", text, s, err)
			}
			continue
		}
		if err != nil || s.location != where {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	for text, want := range map[string]string{
		"https://user:pw@example.com/r@x": "https://example.com/r@x", "https://token@h": "https://h",
		"ssh://git@h/r": "ssh://git@h/r", "ssh://git:pw@h/r": "ssh://h/r", "/a/b": "/a/b", "git@h:r": "git@h:r",
	} {
		if got := withoutPassword(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func FuzzParseSource(f *testing.F) {
	f.Add("https://user:secret@example.com/r")
	f.Add("ext::sh")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSource(text)
		if err == nil && (s.location == "" || s.location[0] == '-' || strings.Contains(s.location, "\x00")) {
			t.Errorf("%q became %q", text, s.location)
		}
	})
}

func TestImportRefusals(t *testing.T) {
	s := newServer(t)
	for _, source := range []string{"/nonexistent", t.TempDir(), "ext::touch /tmp/x", "http://127.0.0.1:1/r", ""} {
		if _, err := s.Import(t.Context(), "r", source, nil); err == nil {
			t.Errorf("imported %q", source)
		} else {
			t.Log(err)
		}
	}
	if _, err := s.Import(t.Context(), "../r", work(t), nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	src := work(t)
	git(t, src, "config", "remote.origin.promisor", "true")
	if _, err := s.Import(t.Context(), "r", src, nil); !errors.Is(err, ErrInvalid) {
		t.Error("a partial clone:", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Import(ctx, "r", work(t), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	nothingLeft(t, s)
}

// TestImportShapes imports unusual sources.
func TestImportShapes(t *testing.T) {
	s := newServer(t)
	for name, make := range map[string]func(dir string) (base string){
		"empty": func(dir string) string {
			git(t, dir, "init", "-q", "--bare", "-b", "trunk")
			return "main|trunk" // git sends the name of an unborn branch in protocol v2 only
		},
		"detached": func(dir string) string {
			git(t, dir, "clone", "-q", work(t), ".")
			git(t, dir, "branch", "other")
			git(t, dir, "checkout", "-q", "--detach")
			return "main"
		},
		"no-main": func(dir string) string {
			git(t, dir, "clone", "-q", work(t), ".")
			git(t, dir, "branch", "-m", "main", "zeta")
			git(t, dir, "checkout", "-q", "--detach")
			return "zeta"
		},
		"head-elsewhere": func(dir string) string {
			git(t, dir, "clone", "-q", "--bare", work(t), ".")
			git(t, dir, "symbolic-ref", "HEAD", "refs/heads/none")
			return "main"
		},
		"with-notes": func(dir string) string {
			git(t, dir, "clone", "-q", work(t), ".")
			git(t, dir, "notes", "add", "-m", "note")
			git(t, dir, "update-ref", "refs/ramus/runs/x/1", "HEAD")
			return "main"
		},
	} {
		dir := t.TempDir()
		want := make(dir)
		r, err := s.Import(t.Context(), name, dir, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if base, err := r.Base(t.Context()); !strings.Contains("|"+want+"|", "|"+base+"|") || err != nil {
			t.Errorf("%s: base %s, %v", name, base, err)
		}
		if refs, err := r.Refs(t.Context(), ""); err != nil {
			t.Error(err)
		} else {
			for _, ref := range refs {
				if !strings.HasPrefix(ref.Name, "refs/heads/") && !strings.HasPrefix(ref.Name, "refs/tags/") {
					t.Errorf("%s: %s was imported", name, ref.Name)
				}
			}
		}
	}
}

// TestImportCredentials imports with credentials. They reach the host that they are for, and no
// file, log, list or message.
func TestImportCredentials(t *testing.T) {
	const secret = "s3cr3t-w0rd"
	src := t.TempDir()
	git(t, src, "clone", "-q", "--bare", work(t), "r.git")
	git(t, filepath.Join(src, "r.git"), "update-server-info")
	var asked atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, pass, ok := req.BasicAuth(); !ok || user != "me" || pass != secret {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		asked.Add(1)
		http.FileServer(http.Dir(src)).ServeHTTP(w, req)
	}))
	defer web.Close()
	s := newServer(t)
	withSecret := strings.Replace(web.URL, "://", "://me:"+secret+"@", 1) + "/r.git"
	var progress bytes.Buffer
	r, err := s.Import(t.Context(), "r", withSecret, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if asked.Load() == 0 {
		t.Error("nobody asked")
	}
	if up, err := r.Upstream(t.Context()); up != web.URL+"/r.git" || err != nil {
		t.Error(up, err)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("me:" + secret))
	filepath.WalkDir(s.Root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if b, err := os.ReadFile(path); err != nil || bytes.Contains(b, []byte(secret)) || bytes.Contains(b, []byte(encoded)) {
				t.Error("the password is in", path, err)
			}
		}
		return nil
	})
	_, err = s.Import(t.Context(), "other", withSecret+"/nothing", &progress)
	if err == nil || strings.Contains(err.Error()+progress.String(), secret) || strings.Contains(err.Error()+progress.String(), encoded) {
		t.Error(err, progress.String())
	}
	if _, err = s.Import(t.Context(), "other", web.URL+"/r.git", nil); err == nil {
		t.Error("imported without a password")
	}
}

// TestCreateOnce has many callers create one name. One of them wins.
func TestCreateOnce(t *testing.T) {
	s := newServer(t)
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := s.Create(context.Background(), "deep/down/r"); err == nil {
				won.Add(1)
			} else if !errors.Is(err, ErrExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Error(won.Load(), "won")
	}
	if left, err := os.ReadDir(filepath.Join(s.Root, newFolder)); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
}

// TestUnfinished leaves a half-made repository in the nursery, like a crash. The next start
// removes it.
func TestUnfinished(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, newFolder, "half.git", "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &Server{Root: root}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nothingLeft(t, s)
}

// TestFullDisk uses a disk of few megabytes.
func TestFullDisk(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("ramus-test", root, "tmpfs", 0, "size=3m"); err != nil {
		t.Skip("cannot run here: no disk to fill can be mounted:", err)
	}
	t.Cleanup(func() {
		var err error
		within(time.Minute, func() bool { // the child of a failed git keeps the server's lock open until it notices
			err = unix.Unmount(root, 0)
			return !errors.Is(err, unix.EBUSY)
		})
		if err != nil {
			t.Error(err)
		}
	})
	s := &Server{Root: root}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	src := work(t)
	noise := make([]byte, 4<<20)
	x := uint64(time.Now().UnixNano())
	for i := range noise {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		noise[i] = byte(x)
	}
	if err := os.WriteFile(filepath.Join(src, "noise"), noise, 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, src, "add", "-A")
	git(t, src, "commit", "-q", "-m", "Noise")
	_, err := s.Import(t.Context(), "r", src, nil)
	if !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	nothingLeft(t, s)

	r, err := s.Create(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	tip := commit(t, r, "main", "One", "a", "1")
	_, err = r.WriteCommit(t.Context(),
		NewCommit{Author: alice, Parents: []Hash{tip}, Put: []File{{Path: "noise", Content: noise}}})
	if !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(root, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(noise[:4096])
	}
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/x", New: tip}); err == nil {
		t.Error("a ref was written on a full disk")
	} else {
		t.Log(err)
	}
	if _, err := s.Create(t.Context(), "other"); err == nil {
		t.Error("a repository was made on a full disk")
	} else {
		t.Log(err)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	if err := filler.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/x", New: tip}); err != nil {
		t.Error("after there is room again:", err)
	}
	if repos, err := s.Repos(t.Context()); len(repos) != 1 || err != nil {
		t.Error(repos, err)
	}
	git(t, r.Dir(), "fsck", "--strict")
}

func TestRefresh(t *testing.T) {
	ctx := t.Context()
	s := newServer(t)
	src := work(t)
	r, err := s.Import(ctx, "r", src, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := s.Refresh(ctx, "r", nil); err != nil || res.Old != res.New || res.Branch != "main" {
		t.Error(res, err)
	}
	// A base ahead of upstream is not diverged.
	local := commit(t, r, "main", "Local", "l", "l")
	if res, err := s.Refresh(ctx, "r", nil); err != nil || res.New != local || res.Old != local {
		t.Error(res, err)
	}
	git(t, src, "commit", "-q", "--allow-empty", "-m", "Theirs")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := s.Refresh(context.Background(), "r", nil); !errors.Is(err, ErrConflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if tip, err := r.Resolve(ctx, "main"); tip != local || err != nil {
		t.Error("a diverged base was moved", err)
	}
	if _, err := s.Create(ctx, "own"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Refresh(ctx, "own", nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, err := s.Refresh(ctx, "none", nil); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := os.RemoveAll(src); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Refresh(ctx, "r", nil); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if refs, err := r.Refs(ctx, "refs/ramus"); len(refs) > 0 || err != nil {
		t.Error(refs, err)
	}
}

// TestLogAndChangesLikeGit compares with git's own output, on texts that look like its formats.
func TestLogAndChangesLikeGit(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	messages := []string{
		"Plain", "", "Subject\n\nBody\n\nKey: value\nOther-Key:  two words \n  and folded\n",
		"No trailers: here\nsecond line",
		"S\n\nKey: a\nKey: b\nnot a trailer line at all\nstill: one\n", "\x1b[31mred\x01\x02",
		"S\n\nRamus-Run: x\x1fy\nRamus-Step: :\n",
		"commit " + strings.Repeat("a", 40) + "\n\ntree\n\nA: 1", strings.Repeat("long ", 5000), "S\r\n\r\nA: b\r\n",
	}
	var last Hash
	var all []Hash
	for i, m := range messages {
		c := NewCommit{From: last, Author: alice, Message: m,
			When: time.Unix(int64(1700000000+i), 0).In(time.FixedZone("", 3600))}
		if last != "" {
			c.Parents = []Hash{last}
		}
		c.Put = []File{
			{Path: fmt.Sprintf("f%d", i), Content: []byte(strings.Repeat("line\n", i+3))},
			{Path: "tab\t", Content: fmt.Append(nil, i)}, // like the end of a field in git's list
			{Path: "bin", Content: []byte{0, byte(i), 1}},
			{Path: "mode", Content: []byte("x"), Mode: []uint32{object.ModeFile, object.ModeExecutable}[i%2]},
			{Path: "type", Content: []byte("x"), Mode: []uint32{object.ModeFile, object.ModeSymlink}[i%2]},
			{Path: "odd\tname\n\"\xff", Content: fmt.Appendf(nil, "%d\n", i)},
		}
		if i > 0 {
			c.Delete = []string{fmt.Sprintf("f%d", i-1)}
			c.Put[0].Content = []byte(strings.Repeat("line\n", i+2))
			c.Put[0].Path = fmt.Sprintf("f%d", i)
		}
		h, err := r.WriteCommit(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		last, all = h, append(all, h)
	}
	if err := r.Update(ctx, RefUpdate{Name: "refs/heads/main", New: last}); err != nil {
		t.Fatal(err)
	}
	log, err := r.Log(ctx, "main", LogOptions{})
	if err != nil || len(log) != len(messages) {
		t.Fatal(len(log), err)
	}
	for i, c := range log {
		show := func(format string) string { return git(t, r.Dir(), "log", "-1", "--format="+format, string(c.Hash)) }
		if c.Subject != show("%s") || strings.TrimSpace(c.Body) != show("%b") || string(c.Tree) != show("%T") {
			t.Errorf("%+v", c)
		}
		var trailers []string
		for _, tr := range c.Trailers {
			trailers = append(trailers, strings.TrimSpace(tr.Key+": "+tr.Value))
		}
		if got, want := strings.Join(trailers, "\n"),
			strings.TrimSpace(show("%(trailers:only,unfold)")); got != strings.ReplaceAll(want, "\r", "") {
			t.Errorf("%q, git %q", got, want)
		}
		if c.When.Unix() != int64(1700000000+len(log)-1-i) {
			t.Error(c.When)
		}
	}
	if part, err := r.Log(ctx, "main", LogOptions{Not: string(all[3]), Max: 4}); len(part) != 4 || err != nil {
		t.Error(len(part), err)
	}
	for i := range all[1:] {
		changes, err := r.Changed(ctx, string(all[i]), string(all[i+1]), false)
		if err != nil {
			t.Fatal(err)
		}
		var got, counts strings.Builder
		for _, c := range changes {
			fmt.Fprintf(&got, "%s\x00", c.Status)
			if c.OldPath != "" {
				fmt.Fprintf(&got, "%s\x00", c.OldPath)
			}
			fmt.Fprintf(&got, "%s\x00", c.Path)
			fmt.Fprintf(&counts, "%d/%d ", c.Added, c.Deleted)
		}
		want := git(t, r.Dir(), "diff", "-z", "-M", "--name-status", string(all[i]), string(all[i+1]))
		want = strings.ReplaceAll(want, "R100", "R") // git adds a similarity to renames
		for n := 50; n < 100; n++ {
			want = strings.ReplaceAll(want, fmt.Sprintf("R0%d", n), "R")
		}
		if got.String() != want {
			t.Errorf("%q, git %q", got.String(), want)
		}
		if !strings.Contains(counts.String(), "-1/-1") {
			t.Error("no binary file in", counts.String())
		}
		for _, o := range []DiffOptions{{}, {Stat: true}, {Paths: []string{"bin", "*"}}, {MergeBase: true}} {
			var patch bytes.Buffer
			if err := r.Diff(ctx, string(all[i]), string(all[i+1]), o, &patch); err != nil {
				t.Error(err)
			}
			if o.Paths == nil && !o.Stat && !o.MergeBase {
				var same bytes.Buffer
				plain := slices.Clone(changes) // a review has no modes and blobs
				for k := range plain {
					plain[k].OldMode, plain[k].Mode, plain[k].OldBlob, plain[k].Blob = "", "", "", ""
				}
				list, err := r.Review(ctx, string(all[i]), string(all[i+1]), &same)
				if !slices.Equal(list, plain) || !bytes.Equal(same.Bytes(), patch.Bytes()) || err != nil {
					t.Errorf("a review has %+v and %d bytes, %v; want %+v and %d", list, same.Len(), err, plain,
						patch.Len())
				}
			}
			if o.Paths == nil && !o.Stat {
				tree := t.TempDir()
				git(t, tree, "clone", "-q", r.Dir(), ".")
				git(t, tree, "checkout", "-q", string(all[i]))
				file := filepath.Join(t.TempDir(), "patch")
				if err := os.WriteFile(file, patch.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
				git(t, tree, "apply", "--index", file)
				if got, want := git(t, tree, "write-tree"), git(t, r.Dir(), "rev-parse", string(all[i+1])+"^{tree}"); got != want {
					t.Errorf("the patch makes %s, not %s", got, want)
				}
			}
		}
		if i == 2 {
			break // three are enough for the slow part
		}
	}
	for _, bad := range []string{"", "-x", "main^", "a..b", "main:f1", "@{1}", "refs/heads/../x", "nothing", "--all",
		"HEAD~1", ":/x", "\x00"} {
		if _, err := r.Log(ctx, bad, LogOptions{}); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNotFound) {
			t.Errorf("Log(%q): %v", bad, err)
		}
	}
}
