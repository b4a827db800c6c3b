package seal

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// TestProperty seals, seals again, imports and prunes runs in a random order, and checks after each change that nothing is
// wrong. Then it makes each change that somebody without the key can make: each is noticed. RAMUS_SEED is the seed, and
// RAMUS_ROUNDS the number of histories (2).
func TestProperty(t *testing.T) {
	t.Parallel()
	rounds := 2
	if n, err := strconv.Atoi(os.Getenv("RAMUS_ROUNDS")); err == nil {
		rounds = n
	}
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("RAMUS_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	planted := map[string]int{}
	for round := range rounds {
		h := &history{world: newWorld(t), rand: rand.New(rand.NewPCG(seed, uint64(round))), pruned: map[int]bool{}}
		h.grow(12)
		h.tamper(planted)
	}
	t.Logf("noticed: %v", planted)
	if len(planted) < 20 {
		t.Errorf("only %d kinds of changes were made", len(planted))
	}
}

// history is a world with a random history.
type history struct {
	*world
	rand   *rand.Rand
	runs   int // that were begun
	pruned map[int]bool
	heads  []gitd.Hash            // each head of the chain
	states []map[string]gitd.Hash // the refs at each head
}

func (h *history) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// refs returns the refs of the runs and of the chain.
func (h *history) refs() map[string]gitd.Hash {
	h.t.Helper()
	list, err := h.repo.Refs(h.t.Context(), "refs/ramus")
	h.must(err)
	is := make(map[string]gitd.Hash, len(list))
	for _, r := range list {
		is[r.Name] = r.Hash
	}
	return is
}

// restore moves the refs back to a state.
func (h *history) restore(to map[string]gitd.Hash) {
	h.t.Helper()
	now := h.refs()
	var updates []gitd.RefUpdate
	for name, at := range to {
		if now[name] != at {
			updates = append(updates, gitd.RefUpdate{Name: name, New: at})
		}
	}
	for name := range now {
		if _, kept := to[name]; !kept {
			updates = append(updates, gitd.RefUpdate{Name: name})
		}
	}
	h.must(h.repo.Update(h.t.Context(), updates...))
}

// sealed returns the numbers of the runs that are there, in order.
func (h *history) sealed() []int {
	var list []int
	for i := range h.runs {
		if !h.pruned[i] {
			list = append(list, i)
		}
	}
	return list
}

// grow makes the history. The first run is older than the chain, and each kind of change comes at least once.
func (h *history) grow(changes int) {
	ctx := h.t.Context()
	old, err := h.repo.WriteCommit(ctx, h.seal("", "old"))
	h.must(err)
	h.must(h.repo.Update(ctx, gitd.RefUpdate{Name: ref(0), New: old}))
	h.runs = 1
	for n := range changes {
		what := n
		if n >= 5 {
			what = h.rand.IntN(4) + 1
		}
		switch run := h.sealed()[h.rand.IntN(len(h.sealed()))]; what {
		case 0, 1:
			h.add(h.runs)
			h.runs++
		case 2: // the next seal of a run
			was := h.refs()[ref(run)]
			_, err = h.chain.Seal(ctx, h.repo, ref(run), was, gitd.NewCommit{From: was, Parents: []gitd.Hash{was},
				Author: h.chain.Bot, Message: "told\n\nRamus-Run: 1\n"})
			h.must(err)
		case 3:
			made, err := h.repo.WriteCommit(ctx, h.seal("", fmt.Sprint("imported ", h.runs)))
			h.must(err)
			h.must(h.chain.Import(ctx, h.repo, []gitd.Ref{{Name: ref(h.runs), Hash: made}}))
			h.runs++
		case 4:
			if len(h.sealed()) < 3 {
				continue
			}
			at := h.refs()[ref(run)]
			h.must(h.chain.Prune(ctx, h.repo, []gitd.Ref{{Name: ref(run), Hash: at}}))
			h.expect("")
			h.must(h.repo.Update(ctx, gitd.RefUpdate{Name: ref(run), Old: &at}))
			h.pruned[run] = true
		}
		if rep := h.expect(""); rep.Runs != len(h.sealed()) || rep.Pruned != len(h.pruned) {
			h.t.Errorf("after %d changes the report is %+v", n, rep)
		}
		h.heads, h.states = append(h.heads, h.refs()[Ref]), append(h.states, h.refs())
	}
	links := strings.Fields(gittest.Run(h.t, h.repo.Dir(), "rev-list", Ref))
	for i, at := range h.heads {
		if !slices.Contains(links, string(at)) {
			h.t.Errorf("git does not find head %d in the chain", i)
		}
	}
}

// link is a link as it can be written again.
type link struct {
	at gitd.Hash
	gitd.NewCommit
}

// links returns the chain, the first link first.
func (h *history) links() []link {
	var list []link
	for at := h.refs()[Ref]; at != ""; {
		c, err := h.repo.CheckCommit(h.t.Context(), at, nil)
		h.must(err)
		list = append(list, link{at, gitd.NewCommit{Author: h.chain.Bot, When: c.Time, Message: c.Message}})
		at = ""
		if len(c.Parents) > 0 {
			at = c.Parents[0]
		}
	}
	slices.Reverse(list)
	return list
}

// rewrite makes another chain of links. Those that are in their old places stay as they are. The others get the signature of
// another key, or none.
func (h *history) rewrite(links []link) {
	before, old := gitd.Hash(""), h.links()
	for i, l := range links {
		if i < len(old) && l.at == old[i].at && (i == 0 || before == old[i-1].at) {
			before = l.at
			continue
		}
		h.sign(&l.NewCommit)
		if l.Parents = nil; before != "" {
			l.Parents = []gitd.Hash{before}
		}
		made, err := h.repo.WriteCommit(h.t.Context(), l.NewCommit)
		h.must(err)
		before = made
	}
	h.must(h.repo.Update(h.t.Context(), gitd.RefUpdate{Name: Ref, New: before}))
}

// sign has a commit signed as somebody without the key does it.
func (h *history) sign(c *gitd.NewCommit) {
	if c.Signer, c.Unsigned = newSigner(h.t), false; h.rand.IntN(3) == 0 {
		c.Signer, c.Unsigned = nil, true
	}
}

// resealed writes the record of a run again, with a change, and moves its ref. Returns the commit before and after.
func (h *history) resealed(run int, change func(*gitd.NewCommit)) (was, made gitd.Hash) {
	was = h.refs()[ref(run)]
	c, err := h.repo.CheckCommit(h.t.Context(), was, nil)
	h.must(err)
	n := gitd.NewCommit{From: was, Parents: c.Parents, Author: h.chain.Bot, When: c.Time.Add(time.Second), Message: c.Message}
	h.sign(&n)
	if change != nil {
		change(&n)
	}
	made, err = h.repo.WriteCommit(h.t.Context(), n)
	h.must(err)
	h.must(h.repo.Update(h.t.Context(), gitd.RefUpdate{Name: ref(run), New: made}))
	return was, made
}

// tamper makes each change, checks that it is noticed, and takes it back.
func (h *history) tamper(planted map[string]int) {
	ctx, whole := h.t.Context(), h.refs()
	links, runs := h.links(), h.sealed()
	last := links[len(links)-1].at
	noticed := func(what string, change func()) {
		h.t.Helper()
		change()
		rep, got := h.faults()
		if rep.OK() {
			h.t.Errorf("%s is not noticed", what)
		}
		if planted[what]++; planted[what] == 1 {
			h.t.Logf("%s: %.100s", what, got)
		}
		h.restore(whole)
	}
	for _, run := range runs[:min(len(runs), 5)] {
		noticed("a run taken out", func() { h.must(h.repo.Update(ctx, gitd.RefUpdate{Name: ref(run)})) })
		noticed("a run at another place", func() {
			h.must(h.repo.Update(ctx, gitd.RefUpdate{Name: ref(h.runs + run), New: whole[ref(run)]}, gitd.RefUpdate{Name: ref(run)}))
		})
		noticed("a run written again", func() { h.resealed(run, nil) })
		noticed("a file changed", func() {
			h.resealed(run, func(n *gitd.NewCommit) { n.Put = []gitd.File{{Path: "output/a", Content: []byte("better")}} })
		})
		noticed("a run and its links written again", func() {
			was, made := h.resealed(run, nil)
			again := slices.Clone(links)
			for i := range again {
				if text := strings.ReplaceAll(again[i].Message, string(was), string(made)); text != again[i].Message {
					again[i].at, again[i].Message = "", text
				}
			}
			h.rewrite(again)
		})
	}
	one, other := runs[0], runs[1]
	noticed("two runs swapped", func() {
		h.must(h.repo.Update(ctx, gitd.RefUpdate{Name: ref(one), New: whole[ref(other)]},
			gitd.RefUpdate{Name: ref(other), New: whole[ref(one)]}))
	})
	noticed("a run that nobody sealed", func() {
		made, err := h.repo.WriteCommit(ctx, h.seal("", "invented"))
		h.must(err)
		h.must(h.repo.Update(ctx, gitd.RefUpdate{Name: ref(h.runs), New: made}))
	})
	noticed("the chain taken out", func() { h.must(h.repo.Update(ctx, gitd.RefUpdate{Name: Ref})) })
	for i, l := range links {
		kind := kindOf(h.t, l)
		noticed("the link "+kind+" written again", func() {
			again := slices.Clone(links)
			again[i].at = ""
			h.rewrite(again)
		})
		if len(links) > 1 {
			noticed("the link "+kind+" taken out", func() { h.rewrite(slices.Delete(slices.Clone(links), i, i+1)) })
		}
		noticed("the link "+kind+" twice", func() { h.rewrite(slices.Insert(slices.Clone(links), i, link{NewCommit: l.NewCommit})) })
		if i > 0 {
			noticed("the link "+kind+" earlier", func() {
				again := slices.Clone(links)
				again[i-1], again[i] = again[i], again[i-1]
				h.rewrite(again)
			})
		}
	}
	// With the runs of an earlier time as well, only somebody who noted the head notices.
	for i, state := range h.states[:len(h.states)-1] {
		h.restore(state)
		rep, err := (&Check{Repo: h.repo, Signers: h.chain.Signers(), Since: last}).Do(ctx)
		h.must(err)
		if !slices.ContainsFunc(rep.Faults, func(f Fault) bool { return f.What == NotAfter }) && state[Ref] != last {
			h.t.Errorf("the chain of %d changes before is not noticed: %+v", len(h.states)-1-i, rep.Faults)
		}
		planted["all of an earlier time"]++
		h.restore(whole)
	}
	rep, err := (&Check{Repo: h.repo, Signers: h.chain.Signers(), Since: h.heads[0]}).Do(ctx)
	h.must(err)
	if !rep.OK() || !maps.Equal(whole, h.refs()) {
		h.t.Errorf("in the end %+v is wrong", rep.Faults)
	}
}

// kindOf returns the kind of the first statement of a link.
func kindOf(t *testing.T, l link) string {
	t.Helper()
	entries, err := parseEntries(l.Message)
	if err != nil {
		t.Fatal(err)
	}
	return string(entries[0].Kind)
}
