package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/clocktest"
)

// world is a data folder with one repository.
type world struct {
	t    *testing.T
	m    *Maker
	repo *gitd.Repo
	dir  string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir()}
	clock := clocktest.At(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))
	data := filepath.Join(w.dir, "data")
	git := &gitd.Server{Root: filepath.Join(data, "repos")}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { git.Close() })
	var err error
	if w.repo, err = git.Create(t.Context(), "team/app"); err != nil {
		t.Fatal(err)
	}
	w.m = &Maker{Data: data, Git: git, Now: func() time.Time { return clock.Add(time.Second) }}
	w.commit("main", "one")
	w.write("live/run-a/1.jsonl", "{}\n")
	w.write("index.db", "not copied")
	w.write("keys/grants.pem", "secret")
	w.write("artifacts/sha256/ab/abcd", "artifact")
	w.write("artifacts/sha256/ab/abcd.12.tmp", "unfinished")
	return w
}

func (w *world) write(name, content string) {
	w.t.Helper()
	path := filepath.Join(w.m.Data, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

// append adds to a file, as journals grow. A backup that has the file open has no more of it than there was then.
func (w *world) append(name, content string) {
	w.t.Helper()
	f, err := os.OpenFile(filepath.Join(w.m.Data, filepath.FromSlash(name)), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		w.t.Error(err)
		return
	}
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Close()); err != nil {
		w.t.Error(err)
	}
}

// commit makes a commit on a branch with one more file.
func (w *world) commit(branch, name string) gitd.Hash {
	w.t.Helper()
	ref := "refs/heads/" + branch
	var parents []gitd.Hash
	if tip, err := w.repo.Resolve(w.t.Context(), ref); err == nil {
		parents = []gitd.Hash{tip}
	}
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	h, err := w.repo.WriteCommit(w.t.Context(),
		gitd.NewCommit{Put: []gitd.File{{Path: name, Content: []byte(name)}}, Parents: parents,
			Author: ada, Committer: ada, When: w.m.Now(), Message: name})
	if err == nil {
		err = w.repo.Update(w.t.Context(), gitd.RefUpdate{Name: ref, New: h})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w *world) backup(r Request) Snapshot {
	w.t.Helper()
	r.Dir = filepath.Join(w.dir, "safe")
	s, err := w.m.Make(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := Check(w.t.Context(), s.Path); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) git(repo string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", repo}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Errorf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestSnapshots(t *testing.T) {
	w := newWorld(t)
	first := w.backup(Request{})
	tip := w.commit("main", "two")
	second := w.backup(Request{Keys: true})
	if first.Repos != 1 || first.Refs != 1 || second.Copied >= second.Bytes || second.Copied == 0 {
		t.Errorf("%+v, %+v", first, second)
	}
	third := w.backup(Request{Full: true})
	if third.Copied != third.Bytes {
		t.Errorf("a full snapshot copied %d of %d bytes", third.Copied, third.Bytes)
	}
	packs := func(s Snapshot) int {
		list, _ := filepath.Glob(filepath.Join(s.Path, dataName, "repos/team/app.git/objects/pack/*.pack"))
		return len(list)
	}
	if a, b, c := packs(first), packs(second), packs(third); a != 1 || b != 2 || c != 1 {
		t.Errorf("the packs are %d, %d and %d", a, b, c)
	}
	repo := filepath.Join(second.Path, dataName, "repos/team/app.git")
	if got := w.git(repo, "rev-parse", "main"); got != string(tip) {
		t.Errorf("main is at %s", got)
	}
	for name, want := range map[string]bool{"live/run-a/1.jsonl": true, "keys/grants.pem": true, "index.db": false,
		"artifacts/sha256/ab/abcd": true, "artifacts/sha256/ab/abcd.12.tmp": false} {
		if _, err := os.Stat(filepath.Join(second.Path, dataName, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(first.Path, dataName, "keys")); err == nil {
		t.Error("the keys are there without being asked for")
	}
	// The first snapshot does not need the others, nor they the first.
	if err := os.RemoveAll(first.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), second.Path); err != nil {
		t.Error(err)
	}
}

// TestFewPacks makes more snapshots than a repository may have packs.
func TestFewPacks(t *testing.T) {
	w := newWorld(t)
	var last Snapshot
	for i := range packsMax + 3 {
		w.commit("main", fmt.Sprint(i))
		var err error
		if last, err = w.m.Make(t.Context(), Request{Dir: filepath.Join(w.dir, "safe")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Check(t.Context(), last.Path); err != nil {
		t.Error(err)
	}
	list, _ := filepath.Glob(filepath.Join(last.Path, dataName, "repos/team/app.git/objects/pack/*.pack"))
	if len(list) > 4 {
		t.Errorf("the last snapshot has %d packs", len(list))
	}
}

// TestFreeze changes refs all the time. The journal that is read with the refs is never older or newer than these.
func TestFreeze(t *testing.T) {
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			tip := w.commit("main", fmt.Sprint("n", n%20))
			// As the executor journals a commit that is on the branch.
			w.append("live/run-a/1.jsonl", string(tip)+"\n")
		}
	})
	for range 10 {
		s := w.backup(Request{})
		b, err := os.ReadFile(filepath.Join(s.Path, dataName, "live/run-a/1.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		repo := filepath.Join(s.Path, dataName, "repos/team/app.git")
		lines := strings.Fields(string(b))
		if noted := lines[len(lines)-1]; len(noted) == 40 {
			w.git(repo, "merge-base", "--is-ancestor", noted, "main")
		}
	}
}

// failing returns a context that ends after a number of looks at it.
type failing struct {
	context.Context
	left int
}

func (f *failing) Err() error {
	if f.left--; f.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestInterrupted ends backups and restorations at every file. Neither leaves half of anything.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.dir, "safe")
	whole := false
	for n := 0; !whole; n++ {
		_, err := w.m.Make(&failing{t.Context(), n}, Request{Dir: dir})
		whole = err == nil
		entries, _ := os.ReadDir(dir)
		if want := map[bool]int{true: 1}[whole]; len(entries) != want {
			t.Fatalf("after %d looks: %v, and the folder has %v", n, err, entries)
		}
	}
	// A killed one leaves its folder until the next.
	if err := os.Mkdir(filepath.Join(dir, "20260504-110000.000"+partial), 0o700); err != nil {
		t.Fatal(err)
	}
	snapshot := w.backup(Request{}).Path
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("the folder has %v", entries)
	}
	data := filepath.Join(w.dir, "restored")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for n, done := 0, false; !done; n++ {
		_, err := Restore(&failing{t.Context(), n}, snapshot, data)
		done = err == nil
		if _, serr := os.Stat(filepath.Join(data, "repos")); (serr == nil) != done {
			t.Fatalf("after %d looks: %v, and repos %v", n, err, serr)
		}
		if ferr := CheckFinished(data); (ferr == nil) != done {
			t.Errorf("after %d looks the folder is finished: %v", n, ferr)
		}
	}
	w.git(filepath.Join(data, "repos/team/app.git"), "fsck", "--strict")
}

// TestPlaceAgain continues a restoration that died while it moved the checked files to their places.
func TestPlaceAgain(t *testing.T) {
	w := newWorld(t)
	snapshot := w.backup(Request{Keys: true}).Path
	data := filepath.Join(w.dir, "restored")
	if _, err := os.Stat(data); err == nil || os.Mkdir(data, 0o700) != nil {
		t.Fatal("cannot make the folder")
	}
	r := Restored{Snapshot: snapshot}
	var err error
	if r.Manifest, err = ReadManifest(snapshot); err != nil {
		t.Fatal(err)
	}
	stage := filepath.Join(data, restoreName)
	if err := r.stage(t.Context(), snapshot, stage); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(stage, dataName, "repos"), filepath.Join(data, "repos")); err != nil {
		t.Fatal(err)
	}
	if err := CheckFinished(data); !errors.Is(err, ErrUnfinished) {
		t.Error(err)
	}
	if _, err := Restore(t.Context(), snapshot, data); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"repos/team/app.git/HEAD", "live/run-a/1.jsonl", "keys/grants.pem"} {
		if _, err := os.Stat(filepath.Join(data, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestDamaged changes each file of a snapshot in turn.
func TestDamaged(t *testing.T) {
	w := newWorld(t)
	snapshot := w.backup(Request{}).Path
	m, err := ReadManifest(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		name := filepath.Join(snapshot, dataName, f.Path)
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		os.Chmod(name, 0o600)
		for _, bad := range []string{string(good) + "x", strings.Repeat("y", len(good))} {
			if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Check(t.Context(), snapshot); !errors.Is(err, record.ErrDamaged) && bad != string(good) {
				t.Errorf("%s: %v", f.Path, err)
			}
		}
		if err := errors.Join(os.Remove(name), os.Symlink("/etc/passwd", name)); err != nil {
			t.Fatal(err)
		}
		if _, err := Check(t.Context(), snapshot); err == nil {
			t.Errorf("%s as a link is good", f.Path)
		}
		if err := errors.Join(os.Remove(name), os.WriteFile(name, good, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"repos":[{"name":"a"}],"files":[{"path":"repos/a.git/HEAD","size":1,"mode":384,"sha256":"` + strings.Repeat("0", 64) + `"}]}`))
	f.Add([]byte(`{"format":1,"files":[{"path":"../x","sha256":"` + strings.Repeat("0", 64) + `"}]}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(file.Path) || strings.Contains(file.Path, "..") && strings.Contains(file.Path, "../") {
				t.Errorf("it has %q", file.Path)
			}
		}
	})
}

// TestLargeFiles copies Git LFS objects, and the mark by which a repository finds them.
func TestLargeFiles(t *testing.T) {
	w := newWorld(t)
	mark, err := w.repo.Mark()
	if err != nil {
		t.Fatal(err)
	}
	const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
	name := "artifacts/lfs/" + mark + "/2c/" + sum
	w.write(name, "hello")
	first := w.backup(Request{})
	s := w.backup(Request{})
	if s.Copied >= first.Copied {
		t.Errorf("copied %d bytes, then %d", first.Copied, s.Copied)
	}
	for _, name := range []string{name, "repos/team/app.git/ramus-mark"} {
		text, err := os.ReadFile(filepath.Join(s.Path, dataName, filepath.FromSlash(name)))
		if err != nil || string(text) != "hello" && string(text) != mark+"\n" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
