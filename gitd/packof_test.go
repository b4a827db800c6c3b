package gitd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/pack"
)

// randomHistory fills a repository with commits that git itself makes of a random script.
// It has branches and merges. Files move, come back, change their mode, become folders,
// links and submodules. The clocks of committers go wrong. randomHistory returns the
// commits in the order they were made. Branches are b0, b1, …, and tags of all kinds point
// at some commits. The same numbers make the same history.
func randomHistory(t testing.TB, r *Repo, rnd *rand.Rand, commits int) []Hash {
	t.Helper()
	type entry struct{ mode, content string }
	type state map[string]entry
	var script bytes.Buffer
	states := []state{}
	tips := map[string]int{} // branch to commit
	now := 1700000000
	names := []string{"a", "b", "a.c", "a-b", "d/a", "d/b", "d/e/f", "d.x", "e/f/g", "e/f", "é", "z z"}
	contents := []string{"one\n", "two\n", "three\n", ""}
	long := strings.Repeat("a line that stays\n", 200)
	for i := range commits {
		branch := fmt.Sprintf("b%d", rnd.IntN(1+len(tips)))
		if len(tips) > 6 {
			branch = fmt.Sprintf("b%d", rnd.IntN(len(tips)))
		}
		from, old := tips[branch]
		if !old && i > 0 && rnd.IntN(8) > 0 {
			from, old = rnd.IntN(i), true
		}
		now += rnd.IntN(1000)
		when := now
		if rnd.IntN(6) == 0 {
			when += rnd.IntN(40000) - 20000
		}
		fmt.Fprintf(&script, "reset refs/heads/%s\n", branch)
		if old {
			fmt.Fprintf(&script, "from :%d\n", from+1)
		}
		message := fmt.Sprintf("Commit %d\n", i)
		fmt.Fprintf(&script, "\ncommit refs/heads/%s\nmark :%d\nauthor A <a@example.com> %d +0000\ncommitter C <c@example.com> %d +0000\ndata %d\n%s",
			branch, i+1, when, when, len(message), message)
		now1 := state{}
		if old {
			maps.Copy(now1, states[from])
			if i > 1 && rnd.IntN(5) == 0 {
				if other := rnd.IntN(i); other != from {
					fmt.Fprintf(&script, "merge :%d\n", other+1)
					for _, name := range slices.Sorted(maps.Keys(states[other])) {
						if rnd.IntN(2) == 0 {
							now1[name] = states[other][name]
						}
					}
				}
			}
			// Either all files are as in an earlier commit, or some of them come back, at
			// the old place or at another.
			if i > 2 && rnd.IntN(5) == 0 {
				now1 = maps.Clone(states[rnd.IntN(i)])
			}
			if i > 2 && rnd.IntN(4) == 0 {
				once := states[rnd.IntN(i)]
				for _, name := range slices.Sorted(maps.Keys(once)) {
					to := name
					if rnd.IntN(3) == 0 {
						to = path.Join("back", name)
					}
					now1[to] = once[name]
				}
			}
		}
		for range rnd.IntN(4) {
			name := names[rnd.IntN(len(names))]
			switch rnd.IntN(9) {
			case 0:
				delete(now1, name)
			case 1:
				now1[name] = entry{"100755", contents[rnd.IntN(len(contents))]}
			case 2:
				now1[name] = entry{"120000", names[rnd.IntN(len(names))]}
			case 3:
				now1[name] = entry{"160000", fmt.Sprintf("%040x", 1+rnd.IntN(5))}
			case 4:
				now1[name] = entry{"100644", long + fmt.Sprint(rnd.IntN(1000))}
			default:
				now1[name] = entry{"100644", fmt.Sprintf("%d\n", rnd.IntN(100000))}
			}
		}
		// A path cannot be a file and a folder.
		var sorted []string
		for name := range now1 {
			sorted = append(sorted, name)
		}
		slices.Sort(sorted)
		for _, name := range sorted {
			for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
				delete(now1, dir)
			}
		}
		script.WriteString("deleteall\n")
		for _, name := range sorted {
			e, ok := now1[name]
			switch {
			case !ok:
			case e.mode == "160000":
				fmt.Fprintf(&script, "M 160000 %s %q\n", e.content, name)
			default:
				fmt.Fprintf(&script, "M %s inline %q\ndata %d\n%s\n", e.mode, name, len(e.content), e.content)
			}
		}
		script.WriteString("\n")
		states = append(states, now1)
		tips[branch] = i
		switch rnd.IntN(8) {
		case 0:
			fmt.Fprintf(&script, "reset refs/tags/light%d\nfrom :%d\n\n", i, i+1)
		case 1:
			fmt.Fprintf(&script, "tag note%d\nfrom :%d\ntagger C <c@example.com> %d +0000\ndata 2\nx\n", i, i+1, when)
		}
	}
	marks := filepath.Join(t.TempDir(), "marks")
	cmd := exec.Command("git", "-C", r.dir, "-c", "fastimport.unpackLimit="+fmt.Sprint(rnd.IntN(2)*100000), "-c",
		"core.quotePath=false",
		"fast-import", "--quiet", "--force", "--export-marks="+marks)
	cmd.Stdin = &script
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(marks)
	if err != nil {
		t.Fatal(err)
	}
	made := make([]Hash, commits)
	for line := range strings.Lines(string(b)) {
		var n int
		var h string
		if _, err := fmt.Sscanf(line, ":%d %s", &n, &h); err == nil && n <= commits {
			made[n-1] = Hash(h)
		}
	}
	return made
}

// reached returns the objects that git's own walk lists.
func reached(t testing.TB, dir string, revs ...string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for h := range strings.FieldsSeq(git(t, dir, append([]string{"rev-list", "--objects", "--no-object-names"}, revs...)...)) {
		all[h] = true
	}
	return all
}

// TestPackOf compares packs with git's own walk over random histories. git checks a clone
// that gets the pack.
func TestPackOf(t *testing.T) {
	ctx := t.Context()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			r := newRepo(t)
			commits := randomHistory(t, r, rnd, 50)
			pick := func(n int) (list []Hash, revs []string) {
				for range n {
					h := commits[rnd.IntN(len(commits))]
					list, revs = append(list, h), append(revs, string(h))
				}
				return list, revs
			}
			for range 12 {
				pair, names := pick(2)
				got, err := r.Descends(ctx, pair[0], pair[1])
				if want := slices.Contains(strings.Fields(git(t, r.dir, "rev-list", names[0])), names[1]); got != want || err != nil {
					t.Errorf("%s descends from %s: %v, %v", pair[0], pair[1], got, err)
				}
			}
			for range 12 {
				want, revs := pick(1 + rnd.IntN(3))
				have, nots := pick(rnd.IntN(3))
				before := reached(t, r.dir, append([]string{"--ignore-missing"}, nots...)...)
				if len(nots) == 0 {
					before = nil
				}
				all := reached(t, r.dir, revs...)
				p, err := r.PackOf(ctx, want, have)
				if err != nil {
					t.Fatal(err)
				}
				has := map[string]bool{}
				if p != nil {
					for _, line := range strings.Split(unpackable(t, p), "\n") {
						if fields := strings.Fields(line); len(fields) >= 3 && len(fields[0]) == 40 {
							has[fields[0]] = true
						}
					}
					if len(has) != p.Objects {
						t.Errorf("%d objects, git finds %d", p.Objects, len(has))
					}
					if err := p.Close(); err != nil {
						t.Error(err)
					}
				}
				for h := range all {
					if !before[h] && !has[h] {
						t.Errorf("want %s have %s: %s is missing", want, have, h)
					}
				}
				for h := range has {
					if !all[h] {
						t.Errorf("want %s have %s: %s is not reached", want, have, h)
					}
				}
			}
		})
	}
}

// unpackable has git check a pack and its index, and returns the list of the pack's
// objects.
func unpackable(t testing.TB, p *pack.Pack) string {
	t.Helper()
	dir := t.TempDir()
	for ext, f := range map[string]*os.File{"pack": p.Pack, "idx": p.Index} {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pack-"+p.Name+"."+ext), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return git(t, dir, "verify-pack", "-v", "pack-"+p.Name+".idx")
}

// TestPackOfLarge has native git pack a blob that is too large for memory. A commit that
// does not exist is refused.
func TestPackOfLarge(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	first := commit(t, r, "main", "First", "a", "1\n")
	large := make([]byte, pack.MaxInMemory+1)
	if _, err := rand.NewChaCha8([32]byte{}).Read(large); err != nil {
		t.Fatal(err)
	}
	second := commit(t, r, "main", "Second", "large", string(large))
	p, err := r.PackOf(ctx, []Hash{second}, []Hash{first})
	if err != nil {
		t.Fatal(err)
	}
	if list := unpackable(t, p); p.Objects != 3 || !strings.Contains(list, string(second)) {
		t.Error(p.Objects, list)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, same := range [][]Hash{{second}, {first}, nil} {
		if p, err := r.PackOf(ctx, same, []Hash{second}); p != nil || err != nil {
			t.Error(p, err)
		}
	}
	missing := Hash(strings.Repeat("1", 40))
	if _, err := r.PackOf(ctx, []Hash{second}, []Hash{missing}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	tree, err := r.objects.TreeOf(ctx, first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.PackOf(ctx, []Hash{tree}, nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "objects", "tmp_*")); len(left) > 0 {
		t.Error("still there:", left)
	}
}
