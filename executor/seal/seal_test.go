package seal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// world is a repository with a chain.
type world struct {
	t      *testing.T
	server *gitd.Server
	repo   *gitd.Repo
	chain  *Chain
}

func newSigner(t *testing.T) *gitd.CommitSigner {
	t.Helper()
	key, err := gitd.NewSignerKey("test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := gitd.NewCommitSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := repotest.NewServer(t)
	repo, err := server.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, server, repo, &Chain{Signer: newSigner(t), Bot: gitd.Person{Name: "ramus", Email: "ramus@example.org"},
		Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}}
}

// seal is newSeal for the bot of the chain.
func (w *world) seal(was gitd.Hash, content string) gitd.NewCommit {
	w.t.Helper()
	n, err := newSeal(was, content, w.chain.Bot)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// newSeal returns the commit for the record of a run with one file of a content.
func newSeal(was gitd.Hash, content string, author gitd.Person) (gitd.NewCommit, error) {
	sum := sha256.Sum256([]byte(content))
	text, err := json.Marshal(record.Manifest{Files: []record.ManifestFile{{Name: "output/a", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}}})
	n := gitd.NewCommit{Author: author, Message: "run\n\nRamus-Run: 1\n",
		Put: []gitd.File{{Path: "output/a", Content: []byte(content)}, {Path: record.ManifestPath, Content: text}}}
	if was != "" {
		n.Parents = []gitd.Hash{was}
	}
	return n, err
}

func ref(i int) string { return fmt.Sprintf("%s/run-%d/1", record.RunsPrefix, i) }

// claim claims a run.
func (w *world) claim(i int) gitd.Hash {
	w.t.Helper()
	h, err := w.repo.WriteCommit(w.t.Context(), gitd.NewCommit{Author: w.chain.Bot, Message: "claim",
		Put: []gitd.File{{Path: "run.json", Content: []byte("{}")}}})
	if err == nil {
		err = w.repo.Update(w.t.Context(), gitd.RefUpdate{Name: ref(i), New: h})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// add claims and seals a run.
func (w *world) add(i int) gitd.Hash {
	w.t.Helper()
	was := w.claim(i)
	h, err := w.chain.Seal(w.t.Context(), w.repo, ref(i), was, w.seal(was, fmt.Sprint("content ", i)))
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// faults returns the kinds of the faults with the runs.
func (w *world) faults() (Report, string) {
	w.t.Helper()
	c := Check{Repo: w.repo, Signers: w.chain.Signers()}
	rep, err := c.Do(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var list []string
	for _, f := range rep.Faults {
		list = append(list, strings.TrimSpace(string(f.What)+" "+f.Run))
	}
	return rep, strings.Join(list, ", ")
}

// expect compares the faults.
func (w *world) expect(want string) Report {
	w.t.Helper()
	rep, got := w.faults()
	if got != want {
		w.t.Errorf("the faults are %q, want %q: %+v", got, want, rep.Faults)
	}
	return rep
}

// TestTogether seals runs of one repository at the same time, while others are pruned. The chain has each of them.
func TestTogether(t *testing.T) {
	w := newWorld(t)
	const runs = 24
	var claims [runs]gitd.Hash
	for i := range runs {
		claims[i] = w.claim(i)
	}
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			h, err := w.chain.Seal(t.Context(), w.repo, ref(i), claims[i], w.seal(claims[i], fmt.Sprint(i)))
			if err == nil && i%4 == 0 {
				if err = w.chain.Prune(t.Context(), w.repo, []gitd.Ref{{Name: ref(i), Hash: h}}); err == nil {
					err = w.repo.Update(t.Context(), gitd.RefUpdate{Name: ref(i), Old: &h})
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	rep := w.expect("")
	if rep.Links != runs+runs/4 || rep.Runs != runs-runs/4 || rep.Pruned != runs/4 {
		t.Errorf("the report is %+v", rep)
	}
	// Stock git finds as many links.
	out := gittest.Run(t, w.repo.Dir(), "rev-list", "--count", "--first-parent", Ref)
	if strings.TrimSpace(out) != fmt.Sprint(rep.Links) {
		t.Errorf("git counts %s links", out)
	}
}

// TestKilled stops a seal between its steps. The next server has no half seal.
func TestKilled(t *testing.T) {
	for _, at := range []string{"written", "chained", "sealed"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t)
			w.add(1)
			was := w.claim(2)
			before, err := head(t.Context(), w.repo)
			if err != nil {
				t.Fatal(err)
			}
			n := w.seal(was, "two")
			sum, err := manifestSum(t.Context(), w.repo, n)
			if err != nil {
				t.Fatal(err)
			}
			made, err := w.chain.write(t.Context(), w.repo, ref(2), sum, before, n)
			if err != nil {
				t.Fatal(err)
			}
			// The server renames the files of the refs in the order of the transaction, and may die after each.
			for i, u := range []gitd.RefUpdate{{Name: Ref, New: made[1], Old: &before}, {Name: ref(2), New: made[0], Old: &was}} {
				if i < slices.Index([]string{"written", "chained", "sealed"}, at) {
					if err := w.repo.Update(t.Context(), u); err != nil {
						t.Fatal(err)
					}
				}
			}
			next := &Chain{Signer: w.chain.Signer, Bot: w.chain.Bot, Now: w.chain.Now}
			if err := next.Finish(t.Context(), w.repo); err != nil {
				t.Fatal(err)
			}
			w.chain = next
			rep := w.expect("")
			if want := 2; at != "written" && (rep.Runs != want || rep.Links != want) || at == "written" && rep.Working != 1 {
				t.Errorf("the report is %+v", rep)
			}
			if at == "written" { // the run is sealed again
				if _, err := next.Seal(t.Context(), w.repo, ref(2), was, w.seal(was, "two")); err != nil {
					t.Fatal(err)
				}
				w.expect("")
			}
		})
	}
}

// TestFaults plants each fault that only somebody with the key, or with access to objects, can plant.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	// Runs of a time before the chain are adopted.
	old := w.seal("", "old")
	h, err := w.repo.WriteCommit(t.Context(), old)
	if err == nil {
		err = w.repo.Update(t.Context(), gitd.RefUpdate{Name: ref(0), New: h})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.expect("no chain")
	w.add(1)
	if rep := w.expect(""); rep.Adopted != 1 || rep.Links != 2 {
		t.Errorf("the report is %+v", rep)
	}
	// The next seal of a run replaces the one before.
	first := w.add(2)
	second, err := w.chain.Seal(t.Context(), w.repo, ref(2), first, gitd.NewCommit{From: first, Parents: []gitd.Hash{first}, Author: w.chain.Bot, Message: "told\n\nRamus-Run: 1\n"})
	if err != nil {
		t.Fatal(err)
	}
	w.expect("")
	if err := w.repo.Update(t.Context(), gitd.RefUpdate{Name: ref(2), New: first, Old: &second}); err != nil {
		t.Fatal(err)
	}
	w.expect("replaced run-2/1")
	if err := w.repo.Update(t.Context(), gitd.RefUpdate{Name: ref(2), New: second, Old: &first}); err != nil {
		t.Fatal(err)
	}
	// Files that are not those of the manifest.
	was := w.claim(3)
	n := w.seal(was, "three")
	n.Put[0].Content = []byte("other")
	if _, err = w.chain.Seal(t.Context(), w.repo, ref(3), was, n); err != nil {
		t.Fatal(err)
	}
	w.expect("file run-3/1")
	was = w.claim(4)
	n = w.seal(was, "four")
	n.Put = n.Put[1:]
	if _, err = w.chain.Seal(t.Context(), w.repo, ref(4), was, n); err != nil {
		t.Fatal(err)
	}
	w.expect("file run-3/1, file run-4/1")
	// A link that has another manifest.
	before, err := head(t.Context(), w.repo)
	if err != nil {
		t.Fatal(err)
	}
	at, err := w.repo.Resolve(t.Context(), ref(4))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.chain.append(t.Context(), w.repo, before, "forged", []Entry{{Kind: Sealed, Commit: at, Ref: ref(4), Manifest: strings.Repeat("0", 64)}}); err != nil {
		t.Fatal(err)
	}
	w.expect("file run-3/1, bad seal run-4/1, manifest run-4/1")
	// Another key.
	w.chain.Signer = newSigner(t)
	if _, got := w.faults(); strings.Count(got, "bad link") != 7 || strings.Count(got, "bad seal") != 5 {
		t.Errorf("the faults are %q", got)
	}
}

// TestImport names the runs of another server, also if a kill comes between the chain and their refs.
func TestImport(t *testing.T) {
	w := newWorld(t)
	var runs []gitd.Ref
	for i := range 3 {
		h, err := w.repo.WriteCommit(t.Context(), w.seal("", fmt.Sprint("imported ", i)))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, gitd.Ref{Name: ref(i), Hash: h})
	}
	if err := w.chain.Import(t.Context(), w.repo, runs); err != nil {
		t.Fatal(err)
	}
	if rep := w.expect(""); rep.Imported != 3 || rep.Links != 1 {
		t.Errorf("the report is %+v", rep)
	}
	for _, r := range runs[1:] {
		if err := w.repo.Update(t.Context(), gitd.RefUpdate{Name: r.Name, Old: &r.Hash}); err != nil {
			t.Fatal(err)
		}
	}
	w.expect("missing seal run-1/1, missing seal run-2/1")
	if err := w.chain.Finish(t.Context(), w.repo); err != nil {
		t.Fatal(err)
	}
	w.expect("")
}

// TestMoved seals a run whose ref somebody moved. Neither the ref nor the chain moves.
func TestMoved(t *testing.T) {
	w := newWorld(t)
	w.add(1)
	before, _ := head(t.Context(), w.repo)
	was := w.claim(2)
	if _, err := w.chain.Seal(t.Context(), w.repo, ref(2), before, w.seal(was, "two")); err == nil {
		t.Error("it was sealed")
	}
	if now, _ := head(t.Context(), w.repo); now != before {
		t.Errorf("the chain moved from %s to %s", before, now)
	}
	if err := new(Chain).Prune(context.Background(), w.repo, nil); err != nil {
		t.Error(err)
	}
}

func FuzzParseEntries(f *testing.F) {
	f.Add("x\n\nRamus-Seal: " + strings.Repeat("a", 40) + " refs/ramus/runs/a/b " + strings.Repeat("b", 64))
	f.Add("x\n\nRamus-Pruned: " + strings.Repeat("a", 40) + " refs/ramus/runs/a/b\nRamus-Adopted: x")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseEntries(text)
		if err != nil {
			return
		}
		again, err := parseEntries(message("x", list))
		if err != nil || !slices.Equal(list, again) {
			t.Errorf("%v is %v the second time, %v", list, again, err)
		}
	})
}
