package seal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// check compares the repository with its chain, with options.
func (w *world) check(option func(*Check)) Report {
	w.t.Helper()
	c := &Check{Repo: w.repo, Signers: w.chain.Signers()}
	option(c)
	rep, err := c.Do(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return rep
}

// remove removes a ref.
func (w *world) remove(name string) {
	w.t.Helper()
	if err := w.repo.Update(w.t.Context(), gitd.RefUpdate{Name: name}); err != nil {
		w.t.Fatal(err)
	}
}

// TestSees says nothing about runs that the asker does not see, except how many there are.
func TestSees(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.add(i)
	}
	w.claim(4)
	w.remove(ref(1))
	w.remove(ref(2))
	rep := w.check(func(c *Check) {
		c.Sees = func(name string) bool { return name != ref(0) && name != ref(1) && name != ref(4) }
	})
	if rep.Hidden != 3 || rep.Runs != 1 || rep.Working != 0 || len(rep.Faults) != 1 || rep.Faults[0].Run != "run-2/1" || rep.OK() {
		t.Errorf("%+v", rep)
	}
	rep = w.check(func(c *Check) { c.Sees = func(string) bool { return true } })
	if rep.Hidden != 0 || rep.Runs != 2 || rep.Working != 1 || len(rep.Faults) != 2 {
		t.Errorf("%+v", rep)
	}
}

// TestOneRun compares one run, and the whole chain.
func TestOneRun(t *testing.T) {
	w := newWorld(t)
	first := w.add(1)
	w.add(2)
	w.claim(3)
	w.remove(ref(2))
	for name, want := range map[string]struct {
		runs, working int
		fault         What
	}{ref(1): {1, 0, ""}, ref(2): {0, 0, Missing}, ref(3): {0, 1, ""}} {
		rep := w.check(func(c *Check) { c.Ref = name })
		fault := What("")
		if len(rep.Faults) > 0 {
			fault = rep.Faults[0].What
		}
		if rep.Runs != want.runs || rep.Working != want.working || fault != want.fault || rep.Links != 2 ||
			rep.Run != strings.TrimPrefix(name, record.RunsPrefix+"/") || rep.Repo != "app" {
			t.Errorf("%s: %+v", name, rep)
		}
	}
	head, err := head(t.Context(), w.repo)
	if err != nil {
		t.Fatal(err)
	}
	for since, want := range map[gitd.Hash]bool{"": true, head: true, first: false} {
		rep := w.check(func(c *Check) { c.Ref, c.Since = ref(1), since })
		if rep.OK() != want || !want && rep.Faults[0].What != NotAfter {
			t.Errorf("since %q: %+v", since, rep)
		}
		if rep.Head != head || !rep.Begin.Equal(w.chain.Now()) || !rep.Last.Equal(w.chain.Now()) {
			t.Errorf("%+v", rep)
		}
	}
}

// TestArtifacts compares files in the artifact store. A store that does not answer is no fault of the files.
func TestArtifacts(t *testing.T) {
	const content = "content"
	sum := sha256.Sum256([]byte(content))
	whole := record.ManifestFile{Name: "big", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Stored: true}
	for name, x := range map[string]struct {
		change func(*record.ManifestFile)
		open   func() (io.ReadCloser, error)
		fault  string // a part of its text
		err    error
	}{
		"whole":         {nil, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }, "", nil},
		"another":       {nil, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("tampered")), nil }, "it has 8 bytes", nil},
		"another size":  {func(f *record.ManifestFile) { f.Size++ }, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }, "the manifest has 8 bytes", nil},
		"gone":          {nil, func() (io.ReadCloser, error) { return nil, errors.New("no such object") }, "cannot be read: no such object", nil},
		"cannot close":  {nil, func() (io.ReadCloser, error) { return badCloser{strings.NewReader(content)}, nil }, "cannot be read: closed badly", nil},
		"no answer":     {nil, func() (io.ReadCloser, error) { return nil, fmt.Errorf("timeout: %w", record.ErrStoreAway) }, "", record.ErrStoreAway},
		"no store here": {nil, nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			f := whole
			if x.change != nil {
				x.change(&f)
			}
			text, err := json.Marshal(record.Manifest{Files: []record.ManifestFile{f}})
			if err != nil {
				t.Fatal(err)
			}
			was := w.claim(1)
			if _, err := w.chain.Seal(t.Context(), w.repo, ref(1), was, gitd.NewCommit{Author: w.chain.Bot, Message: "run\n\nRamus-Run: 1\n",
				Parents: []gitd.Hash{was}, Put: []gitd.File{{Path: record.ManifestPath, Content: text}}}); err != nil {
				t.Fatal(err)
			}
			c := &Check{Repo: w.repo, Signers: w.chain.Signers()}
			if x.open != nil {
				c.Open = func(context.Context, record.ManifestFile) (io.ReadCloser, error) { return x.open() }
			}
			rep, err := c.Do(t.Context())
			if !errors.Is(err, x.err) {
				t.Fatal(err)
			}
			if x.err != nil {
				return
			}
			elsewhere := 0
			if x.open == nil {
				elsewhere = 1
			}
			if rep.Files != 1-elsewhere || rep.Elsewhere != elsewhere || rep.OK() != (x.fault == "") {
				t.Errorf("%+v", rep)
			}
			for _, f := range rep.Faults {
				if f.What != BadArtifact || f.File != "big" || !strings.Contains(f.Text, x.fault) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

type badCloser struct{ io.Reader }

func (badCloser) Close() error { return errors.New("closed badly") }

// TestBadManifest has a seal without a manifest that can be read.
func TestBadManifest(t *testing.T) {
	w := newWorld(t)
	was := w.claim(1)
	if _, err := w.chain.Seal(t.Context(), w.repo, ref(1), was, gitd.NewCommit{Author: w.chain.Bot, Message: "run\n",
		Put: []gitd.File{{Path: record.ManifestPath, Content: []byte("{")}}}); err != nil {
		t.Fatal(err)
	}
	w.expect("manifest run-1/1")
	was = w.claim(2)
	if _, err := w.chain.Seal(t.Context(), w.repo, ref(2), was, gitd.NewCommit{From: was, Author: w.chain.Bot, Message: "run\n"}); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("a record without a manifest is sealed: %v", err)
	}
}

// TestManyFaults lists a thousand faults, and counts the others.
func TestManyFaults(t *testing.T) {
	var c Check
	for range maxFaults + 2 {
		c.fault(Fault{})
	}
	if len(c.report.Faults) != maxFaults || c.report.More != 2 {
		t.Errorf("%d faults, and %d more", len(c.report.Faults), c.report.More)
	}
}

// TestChainMoves has another program move the chain while a run is sealed. The seal is written again after the new link. It gives up when
// the chain moves each time.
func TestChainMoves(t *testing.T) {
	for _, moves := range []int{1, 2, 3, 1000} {
		t.Run(fmt.Sprint(moves), func(t *testing.T) {
			w := newWorld(t)
			w.add(0)
			other := &Chain{Signer: w.chain.Signer, Bot: w.chain.Bot, Now: w.chain.Now}
			was, done := w.claim(1), 0
			moving := &Chain{Signer: w.chain.Signer, Bot: w.chain.Bot, Now: func() time.Time {
				if done < moves {
					done++
					// It makes a link about a run that is there.
					at, err := head(t.Context(), w.repo)
					run, e := w.repo.Resolve(t.Context(), ref(0))
					if err = errors.Join(err, e); err == nil {
						_, err = other.append(t.Context(), w.repo, at, "Adopt", []Entry{{Kind: Adopted, Commit: run, Ref: ref(0)}})
					}
					if err != nil {
						t.Error(err)
					}
				}
				return w.chain.Now()
			}}
			made, err := moving.Seal(t.Context(), w.repo, ref(1), was, w.seal(was, "one"))
			at, e := w.repo.Resolve(t.Context(), ref(1))
			if e != nil {
				t.Fatal(e)
			}
			if moves > attempts {
				if !errors.Is(err, gitd.ErrConflict) || at != was || done != attempts+1 {
					t.Errorf("after %d moves: %v", done, err)
				}
				return
			}
			if err != nil || at != made || done != moves {
				t.Errorf("after %d moves: %v", done, err)
			}
			if rep := w.expect(""); rep.Runs != 2 || rep.Links != 2+moves {
				t.Errorf("%+v", rep)
			}
		})
	}
}

// TestBegin adopts the runs that are older than the chain, once, and none that works.
func TestBegin(t *testing.T) {
	w := newWorld(t)
	for i := range 2 {
		h, err := w.repo.WriteCommit(t.Context(), w.seal("", fmt.Sprint("old ", i)))
		if err == nil {
			err = w.repo.Update(t.Context(), gitd.RefUpdate{Name: ref(i), New: h})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.claim(2)
	if err := w.chain.Prune(t.Context(), w.repo, nil); err != nil {
		t.Fatal(err)
	}
	w.expect("no chain")
	// The run that is sealed is not adopted, although it has a seal.
	was, err := w.repo.Resolve(t.Context(), ref(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.chain.Seal(t.Context(), w.repo, ref(1), was, w.seal(was, "new")); err != nil {
		t.Fatal(err)
	}
	if rep := w.expect(""); rep.Adopted != 1 || rep.Runs != 2 || rep.Working != 1 || rep.Links != 2 {
		t.Errorf("%+v", rep)
	}
	w.add(3)
	if rep := w.expect(""); rep.Adopted != 1 || rep.Links != 3 {
		t.Errorf("%+v", rep)
	}
}

// TestFinish makes refs only for what a link says and the repository has.
func TestFinish(t *testing.T) {
	const branch = "refs/heads/imported"
	for name, x := range map[string]struct {
		kind   Kind
		commit gitd.Hash // "" is that of a seal
		at     string    // of the ref before: "none", "claim" (the parent of the seal), "seal" or "other"
		made   bool      // the ref moves to the seal
		branch bool      // the branch of the link is made
	}{
		"an import":                       {Import, "", "none", true, true},
		"an import that is there":         {Import, "", "seal", false, false},
		"an import at another commit":     {Import, "", "other", false, false},
		"an import whose commit is gone":  {Import, gitd.Hash(strings.Repeat("1", 40)), "none", false, false},
		"a seal after its claim":          {Sealed, "", "claim", true, false},
		"a seal whose run is gone":        {Sealed, "", "none", false, false},
		"a seal whose run is elsewhere":   {Sealed, "", "other", false, false},
		"a pruned run that is gone":       {Pruned, "", "none", false, false},
		"a pruned run after its claim":    {Pruned, "", "claim", false, false},
		"a run that was adopted and gone": {Adopted, "", "none", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			claim := w.claim(1)
			other, err := w.repo.WriteCommit(t.Context(), w.seal("", "other"))
			if err != nil {
				t.Fatal(err)
			}
			made, err := w.repo.WriteCommit(t.Context(), w.seal(claim, "one"))
			if err != nil {
				t.Fatal(err)
			}
			switch x.at {
			case "none":
				w.remove(ref(1))
			case "seal":
				err = w.repo.Update(t.Context(), gitd.RefUpdate{Name: ref(1), New: made})
			case "other":
				err = w.repo.Update(t.Context(), gitd.RefUpdate{Name: ref(1), New: other})
			}
			e := Entry{Kind: x.kind, Commit: made, Ref: ref(1)}
			if x.commit != "" {
				e.Commit = x.commit
			}
			if x.kind == Sealed {
				e.Manifest = strings.Repeat("0", 64)
			}
			link, err2 := w.repo.WriteCommit(t.Context(), w.chain.link("", "x", []Entry{e}, gitd.Ref{Name: branch, Hash: made}))
			if err = errors.Join(err, err2); err == nil {
				err = w.repo.Update(t.Context(), gitd.RefUpdate{Name: Ref, New: link})
			}
			if err != nil {
				t.Fatal(err)
			}
			before, _ := w.repo.Resolve(t.Context(), ref(1)) // "" if it is gone
			if err := w.chain.Finish(t.Context(), w.repo); err != nil {
				t.Fatal(err)
			}
			after, _ := w.repo.Resolve(t.Context(), ref(1))
			if want := map[bool]gitd.Hash{true: made, false: before}[x.made]; after != want {
				t.Errorf("the run is at %q, want %q", after, want)
			}
			if _, err := w.repo.Resolve(t.Context(), branch); (err == nil) != x.branch {
				t.Errorf("the branch: %v", err)
			}
		})
	}
}

// TestMessage writes and reads the message of a link. Git reads its trailers.
func TestMessage(t *testing.T) {
	a, b, sum := gitd.Hash(strings.Repeat("a", 40)), gitd.Hash(strings.Repeat("b", 40)), strings.Repeat("c", 64)
	entries := []Entry{{Kind: Sealed, Commit: a, Ref: ref(1), Manifest: sum}, {Kind: Pruned, Commit: b, Ref: ref(2)}}
	trailers := fmt.Sprintf("Ramus-Seal: %s refs/ramus/runs/run-1/1 %s\nRamus-Pruned: %s refs/ramus/runs/run-2/1\n", a, sum, b)
	if got := message("Seal", entries); got != "Seal\n\n"+trailers {
		t.Errorf("%q", got)
	}
	with := []gitd.Ref{{Name: "refs/heads/x", Hash: a}, {Name: "refs/heads/y", Hash: b}}
	got := message("Seal", entries, with...)
	if got != fmt.Sprintf("Seal\n\nwith %s refs/heads/x\nwith %s refs/heads/y\n\n%s", a, b, trailers) {
		t.Errorf("%q", got)
	}
	if list := parseWith(got); fmt.Sprint(list) != fmt.Sprint(with) {
		t.Errorf("%v", list)
	}
	w := newWorld(t)
	h, err := w.repo.WriteCommit(t.Context(), w.chain.link("", "Seal", entries, with...))
	if err != nil {
		t.Fatal(err)
	}
	if out := gittest.Run(t, w.repo.Dir(), "log", "-1", "--format=%(trailers:only)", string(h)); strings.TrimSpace(out) != strings.TrimSpace(trailers) {
		t.Errorf("git reads %q", out)
	}

	for _, line := range []string{"", "with", "with " + string(a), "with " + string(a) + " refs/heads/x y", "with x refs/heads/x",
		"with " + string(a) + " ../x", "that " + string(a) + " refs/heads/x"} {
		if list := parseWith("Seal\n\n" + line + "\n"); len(list) > 0 {
			t.Errorf("%q: %v", line, list)
		}
	}
	for _, line := range []string{
		"", "x", "Ramus-Other: " + string(a) + " " + ref(1), "Ramus-Seal: " + string(a) + " " + ref(1), "Ramus-Pruned: " + string(a) + " " + ref(1) + " " + sum,
		"Ramus-Pruned: " + string(a), "Ramus-Pruned: x " + ref(1), "Ramus-Pruned: " + string(a) + " refs/heads/x",
		"Ramus-Pruned: " + string(a) + " " + record.RunsPrefix + "/../x", "Ramus-Pruned: " + string(a) + "  " + ref(1),
	} {
		if list, err := parseEntries("Seal\n\n" + line + "\n"); err == nil {
			t.Errorf("%q: %v", line, list)
		}
	}
	for text, want := range map[string]gitd.Hash{"": "", "x\n\nRamus-Seal-After: " + string(a): a, "Ramus-Seal-After:" + string(a): "",
		"x Ramus-Seal-After: " + string(a): "", "Ramus-Seal-After: " + string(a) + "\nRamus-Seal-After: " + string(b) + "\n": a} {
		if got := after(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if CallerOf(ref(7)) != "run-7" {
		t.Errorf("%q", CallerOf(ref(7)))
	}
}

// TestSigners counts the signer of the chain, and further ones.
func TestSigners(t *testing.T) {
	a, b := newSigner(t), newSigner(t)
	if n := len((&Chain{}).Signers()) + len((&Chain{Also: a.Public()}).Signers()) + len((&Chain{Signer: a, Also: b.Public()}).Signers()); n != 0+1+2 {
		t.Errorf("%d signers", n)
	}
	w := newWorld(t)
	w.add(1)
	w.chain = &Chain{Signer: a, Also: w.chain.Signer.Public(), Bot: w.chain.Bot, Now: w.chain.Now}
	w.add(2)
	w.expect("")
}
