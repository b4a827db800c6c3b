package gitd

import (
	"fmt"
	"strings"
	"testing"
)

// TestBranches compares branches and their distances with those of git.
func TestBranches(t *testing.T) {
	r, write := collidingRepo(t)
	base := write("", map[string]string{"f": "1\n"})
	tip := base
	for i := range 3 {
		tip = write(tip, map[string]string{"f": fmt.Sprintf("%d\n", i+2)})
	}
	other := write(base, map[string]string{"g": "1\n"})
	for name, h := range map[string]Hash{"a": tip, "b/c": other, "main": base} {
		if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/" + name, New: h}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := r.Branches(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, b := range list {
		fmt.Fprintf(&got, "%s %s %s\n", b.Commit, b.Branch, b.Subject)
	}
	want := stock(t, r.Dir(), "for-each-ref", "--sort=refname", "--sort=-committerdate", "--format=%(objectname) %(refname:lstrip=2) %(subject)", "refs/heads/")
	if strings.TrimSpace(got.String()) != strings.TrimSpace(want) {
		t.Errorf("branches\n%swant\n%s", got.String(), want)
	}
	if list, err := r.Branches(t.Context(), 2); err != nil || len(list) != 2 {
		t.Errorf("%d branches, %v", len(list), err)
	}
	if ahead, behind, err := r.Divergence(t.Context(), tip, other); ahead != 3 || behind != 1 || err != nil {
		t.Errorf("%d ahead, %d behind, %v", ahead, behind, err)
	}
	if _, _, err := r.Divergence(t.Context(), tip, "x"); err == nil {
		t.Error("x is a commit")
	}
}
