package executor_test

import (
	"fmt"
	"testing"

	"github.com/ramus-dev/ramus/gitd"
)

// TestApartBothWays compares the work trees of containers that work for no caller. One is
// bound over a base layer and one is cloned, at the commit of the layer and at an earlier
// one.
func TestApartBothWays(t *testing.T) {
	t.Parallel()
	const line = look + `; git log --format=%s; git rev-parse HEAD^{tree} main^{tree} origin/main^{tree}; git symbolic-ref HEAD; git remote -v; git config user.name; git commit --allow-empty -qm own && git show -s --format=%s`
	var shown [2]string
	for i, open := range []func(t *testing.T) *world{
		func(t *testing.T) *world { return boundWorld(t, "sandbox", nil) },
		newPortableWorld,
	} {
		t.Run([]string{"bound", "portable"}[i], func(t *testing.T) {
			w := open(t)
			first := w.inRepo("rev-parse", "main")
			w.exec("run:base", `echo more >>greeting.txt; rm sub/a; mkdir new; echo x >new/x; ln -s x new/link; chmod +x .gitignore`)
			w.inRepo("update-ref", "refs/heads/main", "refs/heads/ramus/run-base")
			w.layer()
			before := w.x.Stats().Bound
			for n, commit := range []string{w.inRepo("rev-parse", "main"), first} {
				out, err := w.x.InApart(t.Context(), "demo", gitd.Hash(commit), line)
				if err != nil {
					t.Fatal(err)
				}
				shown[i] += fmt.Sprintln(n, out)
			}
			if n := w.x.Stats().Bound - before; n != []int64{2, 0}[i] {
				t.Errorf("%d were bound, %+v", n, w.x.Stats())
			}
		})
	}
	// If nothing can be bound there is nothing to compare.
	if shown[0] != "" && shown[0] != shown[1] {
		t.Errorf("bound:\n%s\ncloned:\n%s", shown[0], shown[1])
	}
}
