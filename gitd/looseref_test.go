package gitd

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gittest"
)

// TestLooseRefsAsGit makes the same changes in two repositories. git makes all of them in
// one of the two. The changes include deletions, conflicting names, packed refs, symbolic
// refs, foreign locks and empty folders. Both repositories must return the same errors and
// end in the same state.
func TestLooseRefsAsGit(t *testing.T) {
	ctx := t.Context()
	ours, gits := newRepo(t), newRepo(t)
	if err := os.Mkdir(filepath.Join(gits.Dir(), "logs"), 0o777); err != nil {
		t.Fatal(err)
	}
	both := []*Repo{ours, gits}
	var tips []Hash
	for _, text := range []string{"1", "2", "3"} {
		c := NewCommit{Author: Person{Name: "Ada", Email: "ada@example.org"}, When: time.Unix(1700000000, 0), Message: text}
		for i, r := range both {
			tip, err := r.WriteCommit(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				tips = append(tips, tip)
			}
		}
	}
	names := []string{"a", "b", "a/b", "a/b/c", "b/c", "d/e/f", "d/e", "d", "g/h/i/j"}
	rnd := rand.New(rand.NewPCG(7, 11))
	none := Hash("")
	update := func() RefUpdate {
		u := RefUpdate{Name: "refs/heads/" + names[rnd.IntN(len(names))]}
		if rnd.IntN(4) > 0 {
			u.New = tips[rnd.IntN(len(tips))]
		}
		switch rnd.IntN(4) {
		case 0:
			u.Old = &none
		case 1:
			u.Old = &tips[rnd.IntN(len(tips))]
		}
		return u
	}
	for step := range 250 {
		var updates []RefUpdate
		seen := map[string]bool{}
		for range 1 + rnd.IntN(3) {
			if u := update(); !seen[u.Name] {
				seen[u.Name] = true
				updates = append(updates, u)
			}
		}
		foreign := rnd.IntN(20)
		name := "refs/heads/" + names[rnd.IntN(len(names))]
		target := "refs/heads/" + names[rnd.IntN(len(names))]
		var errs, states [2]string
		for i, r := range both {
			switch foreign {
			case 0:
				git(t, r.Dir(), "pack-refs", "--all")
			case 1:
				_, _ = gittest.Try(r.Dir(), "symbolic-ref", name, target) // another ref may be in the way
			case 2:
				_, _ = gittest.Try(r.Dir(), "update-ref", "--no-deref", name, string(tips[0]))
			case 3:
				_ = os.MkdirAll(filepath.Join(r.Dir(), filepath.FromSlash(name)), 0o777) // an empty folder is not in the way
			}
			switch err := r.Update(ctx, updates...); {
			case errors.Is(err, ErrConflict):
				errs[i] = "conflict"
			case err != nil:
				errs[i] = "error" // an error of git, in git's words
			}
			states[i] = git(t, r.Dir(), "for-each-ref", "--format=%(refname) %(objectname) %(symref)")
		}
		if errs[0] != errs[1] || states[0] != states[1] {
			t.Fatalf("step %d, %d, %+v: %q\n%s\ngit: %q\n%s", step, foreign, updates, errs[0], states[0], errs[1], states[1])
		}
	}
	for _, r := range both {
		err := filepath.WalkDir(filepath.Join(r.Dir(), "refs"), func(path string, _ os.DirEntry, err error) error {
			if strings.HasSuffix(path, ".lock") {
				t.Errorf("%s is left", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestLooseRefsAlone simulates others between two changes. No process remains, and a
// removed repository does not come back.
func TestLooseRefsAlone(t *testing.T) {
	r := newRepo(t)
	tip := commit(t, r, "main", "One", "a", "1")
	for _, name := range []string{"refs/heads/x", "refs/ramus/runs/a/b", "refs/x"} {
		if err := r.Update(t.Context(), RefUpdate{Name: name, New: tip}); err != nil {
			t.Error(err)
		}
	}
	if pids := children(t, "update-ref"); len(pids) != 0 {
		t.Errorf("%d gits wait for changes of refs that need none", len(pids))
	}
	lock := filepath.Join(r.Dir(), "refs/heads/x.lock")
	long := time.Now().Add(-time.Minute) // its maker has ended
	if err := errors.Join(os.WriteFile(lock, nil, 0o666), os.Chtimes(lock, long, long)); err != nil {
		t.Fatal(err)
	}
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/x", New: tip}); err == nil {
		t.Error("a locked ref was changed")
	}
	if err := os.Remove(lock); err != nil {
		t.Error(err)
	}
	away := r.Dir() + ".away"
	if err := os.Rename(r.Dir(), away); err != nil {
		t.Fatal(err)
	}
	if err := r.writeLoose(t.Context(), []RefUpdate{{Name: "refs/heads/x", New: tip}}); err == nil {
		t.Error("a ref was written into a repository that is not there")
	}
	if _, err := os.Lstat(r.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the repository has come back: %v", err)
	}
	if err := os.Rename(away, r.Dir()); err != nil {
		t.Error(err)
	}
}
