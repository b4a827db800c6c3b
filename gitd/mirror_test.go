package gitd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// namesOf returns the branches and tags of a repository as git lists them.
func namesOf(t *testing.T, dir string) string {
	t.Helper()
	return git(t, dir, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")
}

func TestMirror(t *testing.T) {
	s := newServer(t)
	from, err := s.Create(t.Context(), "from")
	if err != nil {
		t.Fatal(err)
	}
	first := commit(t, from, "main", "One", "a", "1")
	to := filepath.Join(t.TempDir(), "to.git")
	git(t, "", "init", "-q", "--bare", "-b", "main", to)
	up := Upstream{URL: to}
	set := func(r *Repo, updates ...RefUpdate) {
		t.Helper()
		if err := r.Update(t.Context(), updates...); err != nil {
			t.Fatal(err)
		}
	}
	set(from, RefUpdate{Name: "refs/heads/side", New: first}, RefUpdate{Name: "refs/tags/v1", New: first},
		RefUpdate{Name: "refs/heads/ramus/run-x", New: first})
	done, err := from.MirrorTo(t.Context(), up)
	if err != nil || done.Updated != 3 || done.Removed != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := from.MirrorTo(t.Context(), up); err != nil || done != (Mirrored{}) {
		t.Errorf("again: %+v, %v", done, err)
	}
	// A branch below the name of a removed one, a forced one, and a foreign one.
	git(t, to, "update-ref", "refs/heads/foreign", string(first))
	second := commit(t, from, "other", "Two", "b", "2")
	set(from, RefUpdate{Name: "refs/heads/side"})
	set(from, RefUpdate{Name: "refs/heads/side/below", New: first}, RefUpdate{Name: "refs/tags/v1", New: second})
	if done, err := from.MirrorTo(t.Context(), up); err != nil || done.Removed != 2 || done.Updated != 3 {
		t.Errorf("%+v, %v", done, err)
	}
	want := git(t, from.Dir(), "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/main",
		"refs/heads/other", "refs/heads/side", "refs/tags")
	if got := namesOf(t, to); got != want {
		t.Errorf("there is\n%s\nwant\n%s", got, want)
	}

	// A rule of the other side refuses one ref, which is told, and the others arrive.
	hook := filepath.Join(to, "hooks", "update")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\n[ $1 != refs/heads/protected ]\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	set(from, RefUpdate{Name: "refs/heads/protected", New: first}, RefUpdate{Name: "refs/heads/open", New: first})
	if _, err := from.MirrorTo(t.Context(), up); err == nil {
		t.Error("a refusal is not told")
	}
	if _, err := from.MirrorTo(t.Context(), Upstream{URL: filepath.Join(t.TempDir(), "nothing")}); !errors.Is(err,
		ErrNotFound) && !errors.Is(err, ErrUpstream) {
		t.Errorf("a place that is not there: %v", err)
	}

	// The other way. The base, and the branches of callers, stay.
	copied, err := s.Create(t.Context(), "copy")
	if err != nil {
		t.Fatal(err)
	}
	own := commit(t, copied, "main", "Own", "c", "3")
	set(copied, RefUpdate{Name: "refs/heads/ramus/run-y", New: own}, RefUpdate{Name: "refs/heads/gone", New: own},
		RefUpdate{Name: "refs/tags/gone", New: own})
	done, err = copied.MirrorFrom(t.Context(), Upstream{URL: from.Dir()}, nil)
	if err != nil || done.Removed != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	refs, err := copied.Refs(t.Context(), "refs")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, ref := range refs {
		names = append(names, ref.Name)
	}
	if !slices.Equal(names, []string{"refs/heads/main", "refs/heads/open", "refs/heads/other", "refs/heads/protected",
		"refs/heads/ramus/run-y", "refs/heads/side/below", "refs/tags/v1"}) {
		t.Errorf("refs %q", names)
	}
	if h, err := copied.Resolve(t.Context(), "main"); err != nil || h != own {
		t.Errorf("the base moved to %s, %v", h, err)
	}
}
