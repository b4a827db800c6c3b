package seal

import (
	"errors"
	"testing"

	"github.com/ramus-dev/ramus/gitd"
)

// TestImportKilled ends the server after each of the refs of an import. The next one has the whole import or nothing of it.
// A branch that is deleted later stays deleted.
func TestImportKilled(t *testing.T) {
	for _, runs := range []int{3, 2*perLink + 1} {
		w := newWorld(t)
		w.add(9999)
		h, err := w.repo.WriteCommit(t.Context(), w.seal("", "imported"))
		if err != nil {
			t.Fatal(err)
		}
		branch := gitd.Ref{Name: "refs/heads/ramus/run-x", Hash: h}
		none := gitd.Hash("")
		var refs []gitd.Ref
		for i := range runs {
			refs = append(refs, gitd.Ref{Name: ref(i), Hash: h})
		}
		if err := w.chain.Import(t.Context(), w.repo, refs, gitd.RefUpdate{Name: branch.Name, New: h, Old: &none}); err != nil {
			t.Fatal(err)
		}
		all := append([]gitd.Ref{branch}, refs...)
		remove := func(list []gitd.Ref) {
			t.Helper()
			updates := make([]gitd.RefUpdate, len(list))
			for i, r := range list {
				updates[i] = gitd.RefUpdate{Name: r.Name, Old: &h}
			}
			if err := w.repo.Update(t.Context(), updates...); err != nil {
				t.Fatal(err)
			}
		}
		// The refs of a transaction change in its order, the chain first.
		for _, done := range []int{0, 1, 2, len(all) - 1} {
			remove(all[done:])
			next := &Chain{Signer: w.chain.Signer, Bot: w.chain.Bot, Now: w.chain.Now}
			if err := next.Finish(t.Context(), w.repo); err != nil {
				t.Fatal(err)
			}
			for _, r := range all {
				if at, err := w.repo.Resolve(t.Context(), r.Name); err != nil || at != h {
					t.Fatalf("%d runs, a kill after %d refs: %s is at %q, %v", runs, done, r.Name, at, err)
				}
			}
			if rep := w.expect(""); rep.Imported != runs {
				t.Errorf("%d runs are imported, want %d", rep.Imported, runs)
			}
		}
		remove(all[:1])
		if err := w.chain.Finish(t.Context(), w.repo); err != nil {
			t.Fatal(err)
		}
		if _, err := w.repo.Resolve(t.Context(), branch.Name); !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("the deleted branch is there again: %v", err)
		}
		// A link that the signer did not make moves nothing.
		last := all[len(all)-1]
		remove([]gitd.Ref{last})
		other := &Chain{Signer: newSigner(t), Bot: w.chain.Bot, Now: w.chain.Now}
		if err := other.Finish(t.Context(), w.repo); err != nil {
			t.Fatal(err)
		}
		if _, err := w.repo.Resolve(t.Context(), last.Name); !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("a link of somebody else made %s: %v", last.Name, err)
		}
	}
}

// TestPruneMoved names a seal for removal that is replaced meanwhile. It stays, and nothing is wrong.
func TestPruneMoved(t *testing.T) {
	w := newWorld(t)
	first := w.add(1)
	second := w.add(2)
	listed := []gitd.Ref{{Name: ref(1), Hash: first}, {Name: ref(2), Hash: second}}
	told, err := w.chain.Seal(t.Context(), w.repo, ref(1), first, gitd.NewCommit{From: first, Parents: []gitd.Hash{first},
		Author: w.chain.Bot, Message: "told\n\nRamus-Run: 1\n"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.chain.Prune(t.Context(), w.repo, listed); err != nil {
		t.Fatal(err)
	}
	for _, r := range listed {
		err := w.repo.Update(t.Context(), gitd.RefUpdate{Name: r.Name, Old: &r.Hash})
		if moved := r.Name == ref(1); moved != errors.Is(err, gitd.ErrConflict) {
			t.Fatalf("%s: %v", r.Name, err)
		}
	}
	if at, err := w.repo.Resolve(t.Context(), ref(1)); err != nil || at != told {
		t.Fatalf("%s is at %s, %v", ref(1), at, err)
	}
	if rep := w.expect(""); rep.Runs != 1 || rep.Pruned != 1 {
		t.Errorf("the report is %+v", rep)
	}
}
