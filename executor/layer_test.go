package executor_test

import (
	"testing"
)

// TestBound binds a work tree from outside, commits from outside, and finds both as git would.
func TestBound(t *testing.T) { onEngines(t, bound) }

func bound(t *testing.T, engine string) {
	w := newWorldOn(t, engine, nil)
	if w.x.Fleet.Keeper == nil {
		t.Skip("cannot run here: work trees cannot be bound from outside")
	}
	if err := w.x.MakeLayer(t.Context(), "demo", "main"); err != nil {
		t.Fatal(err)
	}
	res, out, errs := w.exec("run:one", "git status --porcelain; git log --oneline | wc -l; echo more >>greeting.txt; echo new >new; rm sub/a; git status --porcelain")
	if res.ExitCode != 0 || res.Commit == "" {
		t.Fatalf("%+v %s %s", res, out, errs)
	}
	t.Log(out, errs)
	res, out, errs = w.exec("run:one", "git status --porcelain; git fsck --strict; git log --stat --format='%an %cn %s%n%b'; git diff --cached; ls -la . .git; git reflog; cat .git/config; git ls-files --stage --debug")
	t.Log(out, errs)
	if s := w.x.Stats(); s.Bound != 1 || s.Snapshots != 2 || len(s.Portable) > 0 {
		t.Errorf("%+v", s)
	}
}
