package gitd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gittest"
)

// blameHistory makes a repository of stock git whose branches change, rename and merge a file with repeated lines.
func blameHistory(t *testing.T, dir string, r *rand.Rand, steps int) {
	t.Helper()
	gittest.Run(t, dir, "init", "-q", "-b", "main")
	write(t, filepath.Join(dir, "a b\t.txt"), strings.Repeat("same\n", 4))
	gittest.Run(t, dir, "add", ".")
	gittest.Run(t, dir, "commit", "-q", "-m", "first")
	for i := range steps {
		if i%7 == 3 {
			gittest.Run(t, dir, "checkout", "-q", "-B", "side")
		}
		name := gittest.Run(t, dir, "ls-files", "-z")
		name = strings.TrimRight(name, "\x00")
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(content), "\n")
		at := r.IntN(len(lines))
		switch r.IntN(5) {
		case 0:
			lines = append(lines[:at:at], append([]string{"same\n"}, lines[at:]...)...)
		case 1:
			if len(lines) > 3 {
				lines = append(lines[:at:at], lines[min(at+1, len(lines)):]...)
			}
		case 2:
			gittest.Run(t, dir, "mv", name, fmt.Sprintf("n%d ü.txt", i))
			name = fmt.Sprintf("n%d ü.txt", i)
		default:
			lines = append(lines[:at:at], append([]string{fmt.Sprintf("line %d\n", i)}, lines[at:]...)...)
		}
		write(t, filepath.Join(dir, name), strings.Join(lines, ""))
		gittest.Run(t, dir, "add", "-A")
		gittest.Run(t, dir, "commit", "-q", "--allow-empty", "-m", fmt.Sprint("step ", i))
		if i%7 == 6 {
			gittest.Run(t, dir, "checkout", "-q", "main")
			name := strings.TrimRight(gittest.Run(t, dir, "ls-files", "-z"), "\x00")
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), fmt.Sprintf("main %d\n", i)+string(content))
			gittest.Run(t, dir, "commit", "-q", "-a", "-m", fmt.Sprint("main ", i))
			for _, how := range [][]string{{"-X", "theirs"}, {"-s", "ours"}} {
				if _, err := gittest.Try(dir, append([]string{"merge", "-q", "--no-ff", "-m", "merge", "side"},
					how...)...); err == nil {
					break
				}
				gittest.Try(dir, "merge", "--abort")
			}
		}
	}
	gittest.Run(t, dir, "checkout", "-q", "-B", "main")
}

// TestBlame compares the lines of random histories with stock git's.
func TestBlame(t *testing.T) {
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		blameHistory(t, dir, r, 24)
		s := newServer(t)
		repo, err := s.Import(t.Context(), "r", dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimRight(gittest.Run(t, dir, "ls-files", "-z"), "\x00")
		lines, err := repo.Blame(t.Context(), "main", name, BlameOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, l := range lines {
			fmt.Fprintf(&got, "%s %d %d %s\n", l.Commit, l.Was, l.Line, l.Text)
		}
		if want := stockBlame(t, dir, "main", name); got.String() != want {
			t.Errorf("seed %d: got\n%s\nstock git has\n%s", seed, got.String(), want)
		}
		last := len(lines)
		part, err := repo.Blame(t.Context(), "main", name, BlameOptions{From: last, To: last})
		if err != nil || len(part) != 1 || part[0] != lines[last-1] {
			t.Errorf("seed %d: the last line alone: %+v, %v", seed, part, err)
		}
	}
}

// stockBlame returns the lines as stock git has them.
func stockBlame(t *testing.T, dir, rev, name string) string {
	t.Helper()
	out, err := gittest.Try(dir, "blame", "--line-porcelain", rev, "--", name)
	if err != nil {
		t.Fatal(err, out)
	}
	var list strings.Builder
	head := ""
	for line := range strings.Lines(out) {
		switch {
		case strings.HasPrefix(line, "\t"):
			list.WriteString(head + " " + line[1:])
			head = ""
		case head == "":
			words := strings.Fields(line)
			head = strings.Join(words[:3], " ")
		}
	}
	return list.String()
}

// TestBlameSquash looks through a squash. The oracle is a merge of the same branch.
func TestBlameSquash(t *testing.T) {
	r := newRepo(t)
	first := commit(t, r, "main", "first", "old.txt", "1\n2\n3\n4\n5\n6\n7\n8\n")
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/work", New: first, Old: new(Hash)}); err != nil {
		t.Fatal(err)
	}
	commit(t, r, "work", "second", "old.txt", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n")
	tip := commit(t, r, "work", "third", "old.txt", "one\n2\n3\n4\n5\n6\n7\n8\nnine\n")
	commit(t, r, "main", "another", "other.txt", "x\n")
	res, err := r.Merge(t.Context(), MergeRequest{From: "work", Into: "main", Strategy: StrategySquash,
		Committer: alice, Message: "All of it\n\nReviewed-by: Bob"})
	if err != nil || !res.Merged {
		t.Fatal(res, err)
	}
	c, err := r.Commit(t.Context(), "main")
	if err != nil || c.Trailer(TrailerSquashed) != string(tip) || c.Trailer("Reviewed-by") != "Bob" {
		t.Fatalf("the trailers of the squash are %+v, %v", c.Trailers, err)
	}

	plain, err := r.Blame(t.Context(), "main", "old.txt", BlameOptions{})
	if err != nil || plain[0].Commit != res.Commit || plain[8].Commit != res.Commit || plain[1].Commit != first {
		t.Fatalf("without grafts: %+v, %v", plain, err)
	}
	through, err := r.Blame(t.Context(), "main", "old.txt",
		BlameOptions{Grafts: map[Hash][]Hash{res.Commit: {c.Parents[0], tip}}})
	if err != nil {
		t.Fatal(err)
	}
	branch, err := r.Blame(t.Context(), "work", "old.txt", BlameOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range through {
		if through[i] != branch[i] {
			t.Errorf("line %d: %+v, the branch has %+v", i+1, through[i], branch[i])
		}
	}
}

// TestBlameRefuses asks for lines that are not there.
func TestBlameRefuses(t *testing.T) {
	r := newRepo(t)
	commit(t, r, "main", "first", "f", "1\n2", "empty", "", "d/e", "x", "large", strings.Repeat("x\n", blameBytes/2+1),
		"many", strings.Repeat("\n", blameLines+1))
	for _, x := range []struct {
		path     string
		from, to int
		want     error
	}{
		{"f", 1, 2, nil}, {"f", 2, 2, nil}, {"f", 0, 0, nil}, {"empty", 0, 0, nil}, {"f", 3, 3, ErrNotFound},
		{"f", 1, 3, ErrNotFound},
		{"f", 2, 1, ErrInvalid}, {"f", -1, 1, ErrInvalid}, {"empty", 1, 1, ErrNotFound}, {"d", 0, 0, ErrInvalid},
		{"none", 0, 0, ErrNotFound}, {"../f", 0, 0, ErrInvalid}, {"large", 1, 1, ErrTooLarge},
		{"many", 0, 0, ErrTooLarge}, {"many", 1, blameLines + 1, ErrTooLarge}, {"many", 2, blameLines + 1, nil},
	} {
		_, err := r.Blame(t.Context(), "main", x.path, BlameOptions{From: x.from, To: x.to})
		if !errors.Is(err, x.want) || (err == nil) != (x.want == nil) {
			t.Errorf("%s, %d to %d: %v, want %v", x.path, x.from, x.to, err, x.want)
		}
	}
}

// TestCommits reads commits in the order of their names, each as often as it is named.
func TestCommits(t *testing.T) {
	r := newRepo(t)
	a, b := commit(t, r, "main", "a", "f", "1"), commit(t, r, "main", "b", "f", "2")
	list, err := r.Commits(t.Context(), []Hash{b, a, b})
	if err != nil || len(list) != 3 || list[0].Hash != b || list[1].Hash != a || list[2].Subject != "b" {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := r.Commits(t.Context(), nil); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	if _, err := r.Commits(t.Context(), []Hash{Hash(strings.Repeat("1", 40))}); err == nil {
		t.Error("a commit that does not exist is read")
	}
}

// TestIsCopy compares commits with their copies on another parent.
func TestIsCopy(t *testing.T) {
	r := newRepo(t)
	a := commit(t, r, "main", "a", "f", "1")
	add := func(message string, parents ...Hash) Hash {
		h, err := r.WriteCommit(t.Context(), NewCommit{From: a, Parents: parents, Author: alice,
			When: time.Unix(1700000000, 0), Message: message})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	one, copied, other := add("x"), add("x", a), add("y", a)
	for _, x := range []struct {
		a, b Hash
		want bool
	}{{one, one, true}, {one, copied, true}, {one, other, false}} {
		if got, err := r.IsCopy(t.Context(), x.a, x.b); got != x.want || err != nil {
			t.Errorf("%s and %s: %v, %v", x.a, x.b, got, err)
		}
	}
	if _, err := r.IsCopy(t.Context(), one, Hash(strings.Repeat("1", 40))); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// FuzzBlame checks that the parser returns lines in the bounds that it was given, or an error.
func FuzzBlame(f *testing.F) {
	h := strings.Repeat("a", 40)
	f.Add([]byte(h+" 1 1 1\nauthor A\nfilename f\n\tx\n"), 1)
	f.Add([]byte(h+" 1 1 2\nboundary\nfilename \"a\\tb\"\n\tx\n"+h+" 2 2\n\ty\n"), 2)
	f.Add([]byte(h+" 1 1\n\tx\n"), 1)
	f.Add([]byte("\n"), 0)
	f.Fuzz(func(t *testing.T, out []byte, most int) {
		lines, err := parseBlame(out, max(most, 0))
		if err == nil && len(lines) > max(most, 0) {
			t.Fatalf("%d lines, allowed are %d", len(lines), most)
		}
		for _, l := range lines {
			if l.Path == "" || l.Was < 1 || l.Line < 1 || CheckHash(l.Commit) != nil {
				t.Fatalf("%+v", l)
			}
		}
	})
}
