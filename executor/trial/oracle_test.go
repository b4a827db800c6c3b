package trial

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// TestStockGit compares searches in random histories with `git bisect run` of stock git. Half of the histories have
// merges, and a third has commits that cannot be tried. With both, git's list depends on the order of its tries, so that only
// the fault is compared.
func TestStockGit(t *testing.T) {
	seeds := uint64(6)
	if os.Getenv("RAMUS_TEST") == "full" {
		seeds = 120
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 7))
		merges, skips := seed%2 == 0, seed%3 == 0
		repo, list, exits, fault := faulty(t, r, 3+r.IntN(30), merges, skips)
		b, runs := bisection(t, repo, list, 0)
		runs.exit = func(h gitd.Hash) int { return exits[h] }
		b.Width = 1 + r.IntN(6)
		found, err := b.Run(t.Context())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got := []gitd.Hash{}
		for _, st := range found.Left {
			got = append(got, st.Commit)
		}
		want := stockBisect(t, repo, list[0], list[len(list)-1])
		if merges && skips {
			if !slices.Contains(got, fault) || !slices.Contains(want, fault) {
				t.Errorf("seed %d: found %v, stock git %v, the fault is %s", seed, got, want, fault)
			}
			continue
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: found %v, stock git %v, the fault is %s", seed, got, want, fault)
		}
	}
}

// faulty makes a random history after a good commit, with one fault. exits has the exit status that the file f of each
// commit has. The last commit has all others in its history, and is bad.
func faulty(t *testing.T, r *rand.Rand, n int, merges, skips bool) (repo *gitd.Repo, list []gitd.Hash,
	exits map[gitd.Hash]int, fault gitd.Hash) {
	t.Helper()
	repo, exits = repotest.NewRepo(t), map[gitd.Hash]int{}
	at := 1 + r.IntN(n)
	history, ends := []map[int]bool{}, map[int]bool{}
	for i := range n + 1 {
		parents := map[int]bool{}
		switch {
		case i == 0:
		case !merges:
			parents[i-1] = true
		case i == n:
			parents = ends
		default:
			for range 1 + r.IntN(2) {
				parents[i-1-r.IntN(min(i, 4))] = true
			}
		}
		c := gitd.NewCommit{Author: bot, When: time.Unix(1700000000+int64(i), 0), Message: fmt.Sprint(i)}
		mine := map[int]bool{i: true}
		if i == n {
			ends = map[int]bool{}
		}
		for p := range n {
			if !parents[p] {
				continue
			}
			c.Parents = append(c.Parents, list[p])
			for h := range history[p] {
				mine[h] = true
			}
			delete(ends, p)
		}
		ends[i] = true
		exit := 0
		switch {
		case skips && i > 0 && i < n && r.IntN(4) == 0:
			exit = 125
		case mine[at]:
			exit = 1 + r.IntN(124)
		}
		c.Put = []gitd.File{{Path: "f", Content: fmt.Appendln(nil, exit)}, {Path: "n", Content: fmt.Append(nil, i)}}
		h, err := repo.WriteCommit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		list, history, exits[h] = append(list, h), append(history, mine), exit
	}
	none := gitd.Hash("")
	if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: list[n], Old: &none}); err != nil {
		t.Fatal(err)
	}
	return repo, list, exits, list[at]
}

// stockBisect returns the commits that stock git names as the first bad one.
func stockBisect(t *testing.T, repo *gitd.Repo, good, bad gitd.Hash) (list []gitd.Hash) {
	t.Helper()
	dir := t.TempDir()
	gittest.Run(t, dir, "clone", "-q", repo.Dir(), ".")
	gittest.Run(t, dir, "bisect", "start", string(bad), string(good))
	out, _ := gittest.Try(dir, "bisect", "run", "sh", "-c", `exit "$(cat f)"`) // it fails if several are left
	several := false
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if h, ok := strings.CutSuffix(line, " is the first bad commit"); ok {
			return []gitd.Hash{gitd.Hash(h)}
		}
		if several && gitd.CheckHash(gitd.Hash(line)) == nil {
			list = append(list, gitd.Hash(line))
		}
		several = several || strings.HasPrefix(line, "The first bad commit could be any of")
	}
	if len(list) == 0 {
		t.Fatalf("git bisect: %s", out)
	}
	return list
}
