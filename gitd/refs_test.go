package gitd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
	"golang.org/x/sys/unix"
)

// TestRefNamesLikeGit makes names of the pieces in git's rules and compares each
// with git's own check.
func TestRefNamesLikeGit(t *testing.T) {
	pieces := []string{"a", "b", "/", "/", ".", "..", ".lock", "lock", "@", "{", "@{", "-", " ", "~", "^", ":", "?",
		"*", "[", "\\", "\x7f", "\x01", "ä", "\xff", "refs", "heads", "HEAD"}
	rnd := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "@", "refs/heads/@", "refs/heads/a.lock", "refs/heads/.a", "refs//a", "refs/a/", "/refs/a",
		"refs/a.", "refs/a..b", "refs/heads/a.lock/b", ""}
	for range 500 {
		var b strings.Builder
		b.WriteString([]string{"", "refs/", "refs/heads/", "x/"}[rnd.IntN(4)])
		for range 1 + rnd.IntN(4) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		names = append(names, b.String())
	}
	for _, name := range names {
		err := exec.Command("git", "check-ref-format", name).Run()
		if reason := object.RefFault(name); (reason == "") != (err == nil) {
			t.Errorf("%q: %q, git: %v", name, reason, err)
		}
	}
	for name, ok := range map[string]bool{
		"refs/heads/a": true, "refs/ramus/runs/run:x/1": false, "refs/ramus/runs/run-x/1": true,
		"refs/heads/-x": false, "refs/heads/HEAD": false, "refs/heads/": false, "x/y": false, "HEAD": false,
		"refs/" + strings.Repeat("a", 251): false, "refs/" + strings.Repeat("a/", 600) + "a": false,
	} {
		if err := CheckRef(name); (err == nil) != ok || !ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("CheckRef(%.60q) = %v", name, err)
		}
	}
}

func TestRepositoryNames(t *testing.T) {
	s := newServer(t)
	for name, ok := range map[string]bool{
		"a": true, "a-b_c.d/E9": true, "a/b/c": true, strings.Repeat("x", 100): true,
		"": false, "-x": false, "../x": false, "a..b": false, "x.lock": false, "x.git": false, ".x": false, "a/.x": false,
		"a//b": false, "/a": false, "a/": false, "a b": false, "a\x00": false, "ä": false, "refs/heads/main": false,
		"refs": true, "my/refs/x": true,
		strings.Repeat("x", 101): false, "a.git/b": false, "a.": false,
	} {
		_, err := s.Repo(name)
		if want := map[bool]error{true: ErrNotFound, false: ErrInvalid}[ok]; !errors.Is(err, want) {
			t.Errorf("Repo(%q): %v", name, err)
		}
		if !ok {
			if _, err := s.Create(t.Context(), name); !errors.Is(err, ErrInvalid) {
				t.Errorf("Create(%q): %v", name, err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(s.Root, "empty.git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Root, "file.git"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"empty", "file"} {
		if _, err := s.Repo(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("Repo(%q): %v", name, err)
		}
		if _, err := s.Create(t.Context(), name); !errors.Is(err, ErrExists) {
			t.Errorf("Create(%q): %v", name, err)
		}
	}
	for _, name := range []string{"z", "a/b", "a/c"} {
		if _, err := s.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Create(t.Context(), "a/b"); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	repos, err := s.Repos(t.Context())
	var names []string
	for _, r := range repos {
		names = append(names, r.Name())
	}
	if !slices.Equal(names, []string{"a/b", "a/c", "z"}) || err != nil {
		t.Error(names, err)
	}
	// A repository in another folder of the same name is another repository.
	old, err := s.Repo("z")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, old, "main", "Old", "f", "old")
	if err := os.Rename(old.Dir(), old.Dir()+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Repo("z"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	fresh, err := s.Create(t.Context(), "z")
	if err != nil || fresh == old {
		t.Fatal("the vanished repository is served", err)
	}
	if _, err := fresh.Resolve(t.Context(), "main"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// eachWriter runs a test with refs that this server writes and with refs that git
// writes. git writes those of a repository with logs.
func eachWriter(t *testing.T, f func(t *testing.T, r *Repo)) {
	t.Run("loose", func(t *testing.T) { f(t, newRepo(t)) })
	t.Run("native", func(t *testing.T) {
		r := newRepo(t)
		if err := os.Mkdir(filepath.Join(r.Dir(), "logs"), 0o777); err != nil {
			t.Fatal(err)
		}
		f(t, r)
	})
}

func TestUpdate(t *testing.T) { eachWriter(t, testUpdate) }

func testUpdate(t *testing.T, r *Repo) {
	ctx := t.Context()
	one := commit(t, r, "main", "One", "a", "1")
	two := commit(t, r, "main", "Two", "a", "2")
	none := Hash("")
	tree, err := r.objects.TreeOf(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	missing := Hash(strings.Repeat("12", 20))
	for _, test := range []struct {
		what    string
		kind    error
		updates []RefUpdate
	}{
		{"create", nil, []RefUpdate{{"refs/heads/x", one, &none}}},
		{"create again", ErrConflict, []RefUpdate{{"refs/heads/x", one, &none}}},
		{"wrong old", ErrConflict, []RefUpdate{{"refs/heads/x", two, &two}}},
		{"right old", nil, []RefUpdate{{"refs/heads/x", two, &one}}},
		{"any old", nil, []RefUpdate{{"refs/heads/x", one, nil}}},
		{"none of two", ErrConflict, []RefUpdate{{"refs/heads/x", two, nil}, {"refs/heads/y", two, &one}}},
		{"below a ref", ErrConflict, []RefUpdate{{"refs/heads/x/y", one, nil}}},
		{"above a ref", ErrConflict, []RefUpdate{{"refs/heads", one, nil}}},
		{"twice", ErrInvalid, []RefUpdate{{"refs/heads/z", one, nil}, {"refs/heads/z", two, nil}}},
		{"no ref", ErrInvalid, []RefUpdate{{"HEAD", one, nil}}},
		{"bad name", ErrInvalid, []RefUpdate{{"refs/heads/x\x00refs/heads/y", one, nil}}},
		{"bad hash", ErrInvalid, []RefUpdate{{"refs/heads/z", "main", nil}}},
		{"bad old", ErrInvalid, []RefUpdate{{"refs/heads/z", one, &[]Hash{"x\x00y"}[0]}}},
		{"no object", ErrNotFound, []RefUpdate{{"refs/heads/z", missing, nil}}},
		{"a tree as a branch", ErrInvalid, []RefUpdate{{"refs/heads/z", tree, nil}}},
		{"a tree elsewhere", nil, []RefUpdate{{"refs/ramus/tree", tree, nil}}},
		{"delete, wrong old", ErrConflict, []RefUpdate{{"refs/heads/x", "", &two}}},
		{"delete", nil, []RefUpdate{{"refs/heads/x", "", &one}}},
		{"delete what is not there", nil, []RefUpdate{{"refs/heads/x", "", nil}}},
		{"delete what must not be there", nil, []RefUpdate{{"refs/heads/x", "", &none}}},
		{"now below it", nil, []RefUpdate{{"refs/heads/x/y", one, nil}}},
		{"now again above", ErrConflict, []RefUpdate{{"refs/heads/x", one, nil}}},
		{"nothing", nil, nil},
	} {
		if err := r.Update(ctx, test.updates...); !errors.Is(err, test.kind) {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	refs, err := r.Refs(ctx, "")
	var got []string
	for _, ref := range refs {
		got = append(got, string(ref.Hash)+" "+ref.Name)
	}
	if want := git(t, r.Dir(), "for-each-ref", "--format=%(objectname) %(refname)"); strings.Join(got, "\n") != want || err != nil {
		t.Errorf("%q, git has %q, %v", got, want, err)
	}
}

// TestUpdateOneWins has many callers create one ref. One of them wins, also with
// equal values, and also if git writes at the same time.
func TestUpdateOneWins(t *testing.T) { eachWriter(t, testUpdateOneWins) }

func testUpdateOneWins(t *testing.T, r *Repo) {
	tip := commit(t, r, "main", "One", "a", "1")
	none := Hash("")
	for round := range 5 {
		name := fmt.Sprintf("refs/heads/run-%d", round)
		var wins atomic.Int32
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				if i%4 == 3 {
					if _, err := gittest.Try(r.Dir(), "update-ref", name, string(tip), strings.Repeat("0", 40)); err == nil {
						wins.Add(1)
					}
					return
				}
				switch err := r.Update(context.Background(), RefUpdate{name, tip, &none}); {
				case err == nil:
					wins.Add(1)
				case !errors.Is(err, ErrConflict):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if wins.Load() != 1 {
			t.Errorf("%d creators won", wins.Load())
		}
	}
}

// TestUpdateWaits holds the lock of a ref longer than git waits for it.
func TestUpdateWaits(t *testing.T) {
	r := newRepo(t)
	one := commit(t, r, "main", "One", "a", "1")
	lock := filepath.Join(r.Dir(), "refs/heads/x.lock")
	ahead := time.Now().Add(time.Hour) // does not become stale during the test
	if err := errors.Join(os.WriteFile(lock, nil, 0o666), os.Chtimes(lock, ahead, ahead)); err != nil {
		t.Fatal(err)
	}
	before := r.server.Stats().Children
	updated := make(chan error, 1)
	go func() { updated <- r.Update(context.Background(), RefUpdate{Name: "refs/heads/x", New: one}) }()
	eventually(t, "git has given up often", func() bool { return r.server.Stats().Children > before+refWriterFails+1 })
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := <-updated; err != nil {
		t.Error(err)
	}
	if is, err := r.Resolve(t.Context(), "refs/heads/x"); is != one || err != nil {
		t.Error(is, err)
	}
}

// TestUpdateSurvivesItsGit kills the kept git repeatedly. No acknowledged change
// is lost, and no change is reported that did not happen.
func TestUpdateSurvivesItsGit(t *testing.T) {
	r := newRepo(t)
	if err := os.Mkdir(filepath.Join(r.Dir(), "logs"), 0o777); err != nil { // so that git writes
		t.Fatal(err)
	}
	var tips []Hash
	for i := range 2 {
		tips = append(tips, commit(t, r, "main", fmt.Sprint(i), "a", fmt.Sprint(i)))
	}
	stop := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for kills := 0; kills < refWriterDeaths/2; {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(10+rand.IntN(40)) * time.Millisecond):
			}
			for _, pid := range children(t, "update-ref") {
				kills++
				unix.Kill(pid, unix.SIGTERM)
			}
		}
	})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			name := fmt.Sprintf("refs/heads/w-%d", g)
			at := Hash("")
			for i := range 40 {
				next := tips[i%2]
				if err := r.Update(context.Background(), RefUpdate{name, next, &at}); err != nil {
					t.Error(err)
					return
				}
				at = next
				if is, err := r.readRef(context.Background(), name); is != at || err != nil {
					t.Errorf("%s is at %s, acknowledged %s, %v", name, is, at, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	killer.Wait()
}

// children returns the child processes of this process that run the git verb.
func children(t testing.TB, verb string) (pids []int) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		t.Skip("cannot run here: the kernel does not list children", err)
	}
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(b)) {
			line, _ := os.ReadFile("/proc/" + f + "/cmdline")
			if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == verb {
				if pid, err := strconv.Atoi(f); err == nil {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids
}

// TestUpdateInMaintenance changes and reads refs and objects while packs and
// packed refs come and go.
func TestUpdateInMaintenance(t *testing.T) {
	r := newRepo(t)
	commit(t, r, "main", "Base", "a", "1")
	base, err := r.Resolve(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var packer sync.WaitGroup
	packer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := r.Maintain(context.Background()); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	var wg sync.WaitGroup
	for g := range 20 {
		wg.Go(func() {
			branch := fmt.Sprintf("w-%d", g)
			if err := r.Update(context.Background(), RefUpdate{Name: "refs/heads/" + branch, New: base}); err != nil {
				t.Error(err)
				return
			}
			for i := range 5 {
				text := fmt.Sprintf("%d of %d", i, g)
				commit(t, r, branch, text, "dir/"+text, text)
				if b, err := r.ReadFile(context.Background(), branch, "dir/"+text, 0); string(b) != text || err != nil {
					t.Error(string(b), err)
				}
			}
			if log, err := r.Log(context.Background(), branch, LogOptions{}); len(log) != 6 || err != nil {
				t.Error(len(log), err)
			}
		})
	}
	wg.Wait()
	close(stop)
	packer.Wait()
	if refs, err := r.Refs(t.Context(), "refs/heads"); len(refs) != 21 || err != nil {
		t.Error(len(refs), err)
	}
}

// TestManyRefs has ten thousand branches and five thousand runs.
func TestManyRefs(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	tip := commit(t, r, "main", "Base", "a", "1")
	none := Hash("")
	var late []RefUpdate
	var packed strings.Builder
	packed.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range 10000 {
		name := fmt.Sprintf("refs/heads/ramus/run-%05d", i)
		if i%100 == 7 {
			late = append(late, RefUpdate{name, tip, &none})
		} else {
			fmt.Fprintf(&packed, "%s %s\n", tip, name)
		}
	}
	for i := range 5000 {
		fmt.Fprintf(&packed, "%s refs/ramus/runs/run-%05d/1\n", tip, i)
	}
	// The repository has packed refs and newer loose ones, like one that has grown.
	if err := os.WriteFile(filepath.Join(r.Dir(), "packed-refs"), []byte(packed.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Update(ctx, late...); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		commit(t, r, "ramus/run-00007", "More", "b", "2")
		if err := r.Maintain(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string]int{"refs/heads": 10001, "refs/ramus/runs": 5000,
		"refs/ramus/runs/run-00007": 1, "": 15001, "refs/heads/ramus/run": 0} {
		if refs, err := r.Refs(ctx, prefix); len(refs) != want || err != nil {
			t.Errorf("%q: %d refs, %v", prefix, len(refs), err)
		}
	}
	start := time.Now()
	for i := range 100 {
		if _, err := r.Resolve(ctx, fmt.Sprintf("ramus/run-%05d", i*99)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("100 × Resolve: %v", time.Since(start))
	start = time.Now()
	if _, err := r.Refs(ctx, "refs/heads"); err != nil {
		t.Fatal(err)
	}
	t.Logf("Refs: %v", time.Since(start))
}

// TestLockOfTheSameTick opens a server as soon as a killed git has left a lock. The clock of the file system may show the
// same time for both.
func TestLockOfTheSameTick(t *testing.T) {
	root := t.TempDir()
	var tips []Hash
	for i := range 10 {
		s := &Server{Root: root}
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			r, err := s.Create(t.Context(), "r")
			if err != nil {
				t.Fatal(err)
			}
			tips = append(tips, commit(t, r, "main", "One", "a", "1"), commit(t, r, "main", "Two", "a", "2"))
		}
		r, err := s.Repo("r")
		if err == nil {
			err = r.Update(t.Context(), RefUpdate{Name: "refs/heads/main", New: tips[i%2]})
		}
		if err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		// Some file systems give a file a finer time when its time was read before, which a new file's was not.
		if err := os.Remove(filepath.Join(root, lockName)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, "r.git", "refs/heads/main.lock"), "")
	}
}

// TestStaleLocks leaves locks like a power cut. A lock is removed once nobody can
// hold it, and not before.
func TestStaleLocks(t *testing.T) {
	root := t.TempDir()
	first := &Server{Root: root}
	if err := first.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := first.Create(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	tip := commit(t, r, "main", "One", "a", "1")
	lock := filepath.Join(r.Dir(), "refs/heads/main.lock")
	leave := func() {
		t.Helper()
		if err := os.WriteFile(lock, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		past := time.Now().Add(-time.Hour)
		if err := os.Chtimes(lock, past, past); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	second := &Server{Root: root}
	if err := second.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Repo("r"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(lock); err != nil {
		t.Error("a lock was taken from under a living server:", err)
	}
	if r2, err := second.Repo("r"); err != nil {
		t.Error(err)
	} else if err := r2.Update(t.Context(), RefUpdate{Name: "refs/heads/main", New: tip}); err == nil {
		t.Error("a locked ref was changed")
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	after := &Server{Root: root}
	if err := after.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	if r, err = after.Repo("r"); err != nil {
		t.Fatal(err)
	}
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/main", New: tip}); err != nil {
		t.Error(err)
	}
}

func FuzzParsePackedRefs(f *testing.F) {
	f.Add("# pack-refs with: peeled fully-peeled sorted \n" + strings.Repeat("ab", 20) + " refs/heads/main\n^" +
		strings.Repeat("cd", 20) + "\n")
	f.Add("x y\n")
	f.Fuzz(func(t *testing.T, text string) {
		refs, err := parsePackedRefs(strings.NewReader(text))
		if err == nil && !slices.IsSortedFunc(refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error("not sorted")
		}
	})
}
