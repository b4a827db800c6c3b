package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// The process of a test starts itself again as a server that seals. childDir is its data folder, childPoint where it dies.
const (
	childDir   = "RAMUS_SEAL_DIR"
	childPoint = "RAMUS_SEAL_POINT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := runChild(context.Background(), dir, os.Getenv(childPoint)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// die ends the process as SIGKILL from outside does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// openChild opens the server of a data folder. It dies at a point, which is the number of a change of refs and a place:
// "before" it, "between" its refs if that is reached in time, or "after" it. An empty point prints all points.
func openChild(ctx context.Context, dir, point string) (*gitd.Server, *Chain, error) {
	git := &gitd.Server{Root: filepath.Join(dir, "repos"), KeyFile: filepath.Join(dir, "key.pem")}
	changes := 0
	git.Duty = func(context.Context, string) error {
		changes++
		switch point {
		case "":
			fmt.Println(changes)
		case fmt.Sprint(changes, " before"):
			die()
		case fmt.Sprint(changes, " between"):
			file := filepath.Join(git.Root, "app.git", filepath.FromSlash(Ref))
			was, _ := os.ReadFile(file) // there is none at first
			go func() {
				for {
					if now, err := os.ReadFile(file); err == nil && !bytes.Equal(now, was) {
						die()
					}
				}
			}()
		}
		return nil
	}
	git.Settle = func(context.Context, string) error {
		if point == fmt.Sprint(changes, " after") || point == fmt.Sprint(changes, " between") {
			die()
		}
		return nil
	}
	key, err := os.ReadFile(filepath.Join(dir, "seals.pem"))
	if err != nil {
		return nil, nil, err
	}
	signer, err := gitd.NewCommitSigner(key)
	if err != nil {
		return nil, nil, err
	}
	return git, &Chain{Signer: signer, Bot: gitd.Person{Name: "ramus", Email: "ramus@example.org"}, Now: time.Now}, git.Open(ctx)
}

// runChild is a server that ends what an earlier one began: it seals the runs 1 and 2, tells of run 1, imports the runs 3 and
// 4 with a branch, and prunes run 2.
func runChild(ctx context.Context, dir, point string) error {
	git, chain, err := openChild(ctx, dir, point)
	if err != nil {
		return err
	}
	defer git.Close()
	repo, err := git.Repo("app")
	if err == nil {
		err = chain.Finish(ctx, repo)
	}
	if err != nil {
		return err
	}
	at := func(name string) gitd.Hash {
		h, _ := repo.Resolve(ctx, name) // "" if it is gone
		return h
	}
	subject := func(name string) string {
		c, _ := repo.CheckCommit(ctx, at(name), nil)
		line, _, _ := strings.Cut(c.Message, "\n")
		return line
	}
	for i := 1; i <= 2; i++ {
		if was := at(ref(i)); subject(ref(i)) == "claim" {
			n, err := newSeal(was, fmt.Sprint("content ", i), chain.Bot)
			if err == nil {
				_, err = chain.Seal(ctx, repo, ref(i), was, n)
			}
			if err != nil {
				return err
			}
		}
	}
	if was := at(ref(1)); subject(ref(1)) == "run" {
		if _, err := chain.Seal(ctx, repo, ref(1), was, gitd.NewCommit{From: was, Parents: []gitd.Hash{was}, Author: chain.Bot,
			Message: "told\n\nRamus-Run: 1\n"}); err != nil {
			return err
		}
	}
	if at(ref(3)) == "" {
		n, err := newSeal("", "imported", chain.Bot)
		if err != nil {
			return err
		}
		h, err := repo.WriteCommit(ctx, n)
		if err == nil {
			err = chain.Import(ctx, repo, []gitd.Ref{{Name: ref(3), Hash: h}, {Name: ref(4), Hash: h}},
				gitd.RefUpdate{Name: "refs/heads/imported", New: h, Old: new(gitd.Hash)})
		}
		if err != nil {
			return err
		}
	}
	if was := at(ref(2)); was != "" {
		if err := chain.Prune(ctx, repo, []gitd.Ref{{Name: ref(2), Hash: was}}); err != nil {
			return err
		}
		return repo.Update(ctx, gitd.RefUpdate{Name: ref(2), Old: &was})
	}
	return nil
}

// TestKilledByForce kills a server before, in the middle of and after each change of refs of a chain that begins, of seals, an
// import and a prune. The next server finds an unbroken chain, and ends the work: no run is sealed twice.
func TestKilledByForce(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	w := &world{t: t, server: &gitd.Server{Root: filepath.Join(base, "repos"), KeyFile: filepath.Join(base, "key.pem")}, chain: new(Chain)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.server.Open(t.Context()))
	var err error
	w.repo, err = w.server.Create(t.Context(), "app")
	must(err)
	old, err := w.repo.WriteCommit(t.Context(), w.seal("", "old"))
	must(err)
	must(w.repo.Update(t.Context(), gitd.RefUpdate{Name: ref(0), New: old}))
	w.claim(1)
	w.claim(2)
	key, err := gitd.NewSignerKey("test")
	must(err)
	must(os.WriteFile(filepath.Join(base, "seals.pem"), key, 0o600))
	must(w.server.Close())

	// ended runs the work in a copy of the folder, and returns the points that it passed.
	ended := func(dir, point string) string {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir, childPoint+"="+point)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		var exit *exec.ExitError
		killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		if killed != (point != "") || err != nil && !killed {
			t.Fatalf("at %q: %v\n%s", point, err, errs.String())
		}
		return string(out)
	}
	copied := func() string {
		dir := filepath.Join(t.TempDir(), "data")
		must(exec.Command("cp", "-a", base, dir).Run()) // with the modes of keys
		return dir
	}
	halves := 0 // kills that came between the refs of a change
	checked := func(dir string) Report {
		t.Helper()
		git, chain, err := openChild(t.Context(), dir, "none")
		must(err)
		defer git.Close()
		repo, err := git.Repo("app")
		must(err)
		before, err := repo.Refs(t.Context(), "refs")
		must(err)
		must(chain.Finish(t.Context(), repo))
		after, err := repo.Refs(t.Context(), "refs")
		must(err)
		if !slices.Equal(before, after) {
			halves++
		}
		rep, err := (&Check{Repo: repo, Signers: chain.Signers()}).Do(t.Context())
		must(err)
		return rep
	}
	first := copied()
	points := strings.Fields(ended(first, ""))
	if len(points) != 7 { // the beginning, two seals, the word, the import, the prune, and the removal
		t.Fatalf("the points are %v", points)
	}
	for _, point := range points {
		for _, place := range []string{"before", "between", "after"} {
			dir := copied()
			ended(dir, point+" "+place)
			rep := checked(dir)
			for _, f := range rep.Faults {
				if f.What != NoChain { // the chain has not begun
					t.Errorf("%s change %s: %+v", place, point, f)
				}
			}
			ended(dir, "")
			if rep = checked(dir); !rep.OK() || rep.Runs != 4 || rep.Pruned != 1 || rep.Adopted != 1 || rep.Imported != 2 {
				t.Errorf("%s change %s, in the end: %+v", place, point, rep)
			}
			messages := gittest.Run(t, filepath.Join(dir, "repos", "app.git"), "log", "--format=%s", Ref)
			if strings.Count(messages, "Seal run") != 2 || strings.Count(messages, "Seal told") != 1 || strings.Count(messages, "Import") != 1 {
				t.Errorf("%s change %s: the links are\n%s", place, point, messages)
			}
			gittest.Run(t, filepath.Join(dir, "repos", "app.git"), "fsck", "--strict", "--no-dangling")
		}
	}
	t.Logf("%d of %d kills came between the refs of a change", halves, 3*len(points))
}

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
