package refview

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// git runs stock git in a repository.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=T",
		"GIT_COMMITTER_EMAIL=t@example.com", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// open returns the view of a new repository with commits on main, and records the calls of its functions.
func open(t *testing.T, commits int) (v *View, tips []object.Hash) {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "--bare", "-b", "main")
	tree := git(t, dir, "hash-object", "-t", "tree", "-w", "/dev/null")
	args := []string{"commit-tree", tree}
	for i := range commits {
		tip := git(t, dir, append(args, "-m", fmt.Sprint("Commit ", i))...)
		args = []string{"commit-tree", tree, "-p", tip}
		tips = append(tips, object.Hash(tip))
		git(t, dir, "update-ref", "refs/heads/main", tip)
	}
	runner := &gitcmd.Runner{}
	t.Cleanup(runner.Close)
	objects := &pack.Reader{Dir: dir, Git: runner}
	objects.Packs.Dir = filepath.Join(dir, pack.Folder)
	t.Cleanup(objects.Close)
	return &View{Dir: dir, Name: "demo", Objects: objects,
		Deleted: func(map[object.Hash]bool) { t.Error("nobody deleted a ref") },
		Unreached: func(_ context.Context, commits, _ []object.Hash) (object.Hash, error) {
			return "", fmt.Errorf("asked for %v", commits)
		}}, tips
}

func (v *View) names(t *testing.T, g grant.Grant, prefixes ...string) (names []string) {
	t.Helper()
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.Each(g, prefixes, func(r *Ref) { names = append(names, r.Name) })
	return names
}

// TestEach lists the refs that a grant shows, with their objects, as git does.
func TestEach(t *testing.T) {
	v, tips := open(t, 2)
	git(t, v.Dir, "tag", "-a", "-m", "One", "one", string(tips[0]))
	git(t, v.Dir, "pack-refs", "--all")
	git(t, v.Dir, "tag", "-a", "-m", "Two", "two", "one")
	git(t, v.Dir, "update-ref", "refs/heads/ramus/a", string(tips[0]))
	git(t, v.Dir, "symbolic-ref", "refs/heads/link", "refs/heads/main")

	var lines []string
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.Each(grant.Grant{}, nil, func(r *Ref) {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", r.Name, r.Hash, r.Peeled, r.Target))
	})
	want := git(t, v.Dir, "for-each-ref", "--format=%(refname) %(objectname) %(if)%(*objectname)%(then)"+string(tips[0])+"%(end) %(symref)")
	if got := strings.TrimSpace(strings.Join(lines, "\n")); got != want {
		t.Errorf("%s\ngit has\n%s", got, want)
	}
	if got := v.names(t, grant.Grant{Read: []string{"refs/heads/main"}, Write: []string{"refs/heads/ramus/*"}}); !slices.Equal(got,
		[]string{"refs/heads/main", "refs/heads/ramus/a"}) {
		t.Error(got)
	}
	if got := v.names(t, grant.Grant{}, "refs/tags/t", "refs/tags/"); !slices.Equal(got, []string{"refs/tags/one", "refs/tags/two"}) {
		t.Error(got)
	}
	if !v.IsSymbolic("refs/heads/link") || v.IsSymbolic("refs/heads/main") || v.IsSymbolic("HEAD") {
		t.Error("the symbolic refs")
	}
	if !v.IsTip(tips[0]) || !v.IsTip(tips[1]) || v.IsTip(object.Hash(strings.Repeat("1", 40))) {
		t.Error("the tips")
	}
}

// TestDeleted reports the objects of deleted refs once, and the version grows with each change only.
func TestDeleted(t *testing.T) {
	v, tips := open(t, 2)
	git(t, v.Dir, "update-ref", "refs/heads/old", string(tips[0]))
	if err := v.FollowDeleted(t.Context()); err != nil || v.Version() != 0 {
		t.Errorf("before the first refresh: %v", err)
	}
	v.names(t, grant.Grant{})
	before := v.Version()
	v.names(t, grant.Grant{})
	if v.Version() != before {
		t.Error("nothing changed, and the version did")
	}

	var gone []map[object.Hash]bool
	v.Deleted = func(tips map[object.Hash]bool) { gone = append(gone, tips) }
	git(t, v.Dir, "update-ref", "-d", "refs/heads/old")
	for range 2 {
		if err := v.FollowDeleted(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(gone) != 1 || len(gone[0]) != 1 || !gone[0][tips[0]] || v.Version() != before+1 {
		t.Errorf("%v, version %d after %d", gone, v.Version(), before)
	}
}

// TestNative leaves repositories to git whose refs or rules only git reads.
func TestNative(t *testing.T) {
	v, _ := open(t, 1)
	git(t, v.Dir, "config", "transfer.hideRefs", "refs/hidden")
	if err := v.Refresh(t.Context()); !errors.Is(err, ErrNative) {
		t.Error(err)
	}
	git(t, v.Dir, "config", "--unset", "transfer.hideRefs")
	if err := v.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	if c, err := v.Config(); err != nil || c["core.bare"] != "true" {
		t.Error(c, err)
	}
	if HasReftable(v.Dir) || v.ShallowState() != "" {
		t.Error("a plain repository")
	}
	if err := os.Mkdir(filepath.Join(v.Dir, "reftable"), 0o700); err != nil || !HasReftable(v.Dir) {
		t.Error(err)
	}
}

// TestCheckWants serves tips and what they reach, asks about a commit once for each grant and state, and serves trees to
// grants alone that show all refs.
func TestCheckWants(t *testing.T) {
	v, tips := open(t, 3)
	hidden := object.Hash(git(t, v.Dir, "commit-tree", git(t, v.Dir, "rev-parse", "main^{tree}"), "-m", "Hidden"))
	tree := object.Hash(git(t, v.Dir, "rev-parse", "main^{tree}"))
	asked := 0
	v.Unreached = func(_ context.Context, commits, shown []object.Hash) (object.Hash, error) {
		asked++
		if !slices.Contains(shown, tips[2]) {
			t.Errorf("the tips are %v", shown)
		}
		if slices.Contains(commits, hidden) {
			return hidden, nil
		}
		return "", nil
	}
	v.names(t, grant.Grant{})
	all, some := grant.Grant{}, grant.Grant{Read: []string{"refs/heads/main"}}
	check := func(g grant.Grant, want object.Hash, served bool, asks int) {
		t.Helper()
		asked = 0
		err := v.CheckWants(t.Context(), g, []object.Hash{want})
		var refused *WantError
		if errors.As(err, &refused) == served || err != nil && refused.Want != want || asked != asks {
			t.Errorf("%s: %v, %d questions", want, err, asked)
		}
	}
	check(all, tips[2], true, 0)
	check(all, tips[0], true, 1)
	check(all, tips[0], true, 0)
	check(some, tips[0], true, 1)
	check(some, tips[0], true, 0)
	check(all, hidden, false, 1)
	check(all, hidden, false, 1)
	check(all, tree, true, 0)
	check(some, tree, false, 0)
	check(all, object.Hash(strings.Repeat("1", 40)), false, 0)

	git(t, v.Dir, "update-ref", "refs/heads/main", string(tips[2]), string(tips[2]))
	git(t, v.Dir, "update-ref", "refs/heads/more", string(tips[1]))
	v.names(t, grant.Grant{})
	check(all, tips[0], true, 1) // the refs have changed
	if text := string((&WantError{hidden}).Packet()); !strings.HasSuffix(text, "ERR upload-pack: not our ref "+string(hidden)) {
		t.Errorf("%q", text)
	}
}

// TestTagState changes with the tags alone.
func TestTagState(t *testing.T) {
	v, tips := open(t, 1)
	v.names(t, grant.Grant{})
	some := grant.Grant{Read: []string{"refs/heads/*"}}
	if state, all := v.TagState(some); state != "" || !all {
		t.Error("no tags")
	}
	git(t, v.Dir, "tag", "one", string(tips[0]))
	v.names(t, grant.Grant{})
	one, all := v.TagState(grant.Grant{})
	if _, every := v.TagState(some); one == "" || !all || every {
		t.Error("one tag, which a grant does not show")
	}
	git(t, v.Dir, "update-ref", "refs/heads/more", string(tips[0]))
	v.names(t, grant.Grant{})
	if state, _ := v.TagState(grant.Grant{}); state != one {
		t.Error("a branch changed the state of tags")
	}
	git(t, v.Dir, "tag", "two", string(tips[0]))
	v.names(t, grant.Grant{})
	if state, _ := v.TagState(grant.Grant{}); state == one {
		t.Error("another tag changed nothing")
	}
}

// TestApart drops the prefixes that other prefixes cover.
func TestApart(t *testing.T) {
	for _, tt := range [][2][]string{
		{{"b", "a"}, {"a", "b"}}, {{"refs/heads/", "refs/heads/x", "refs/", "HEAD"}, {"HEAD", "refs/"}},
		{{"", "x"}, {""}}, {{"x", "x"}, {"x"}},
	} {
		if got := dropCovered(tt[0]); !slices.Equal(got, tt[1]) {
			t.Errorf("%q became %q", tt[0], got)
		}
	}
}
