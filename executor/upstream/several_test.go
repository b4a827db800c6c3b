package upstream_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// newPair returns two repositories of one server, each with an upstream of its own.
func newPair(t *testing.T) (app, lib *landing) {
	t.Helper()
	app = newLanding(t, nil)
	lib = &landing{t: t, up: filepath.Join(t.TempDir(), "lib.git"), bases: app.bases}
	gittest.Run(t, "", "init", "-q", "--bare", "-b", "main", lib.up)
	lib.theirs("begin")
	var err error
	if lib.repo, err = app.bases.Git.Import(t.Context(), "lib", lib.up, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gittest.Run(t, lib.up, "fsck", "--strict", "--no-dangling") })
	return app, lib
}

// mergeAll merges the branches of run:name in both repositories.
func mergeAll(t *testing.T, name string, in ...*landing) ([]record.Landed, error) {
	t.Helper()
	caller, err := record.RunCaller(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []upstream.Landing
	for _, l := range in {
		all = append(all, upstream.Landing{Repo: l.repo, Caller: caller, Committer: bot,
			Merge: record.Merge{Into: "main", Strategy: gitd.StrategyRebase, By: ada}})
	}
	return in[0].bases.LandAll(t.Context(), all)
}

func TestSeveralLand(t *testing.T) {
	app, lib := newPair(t)
	app.ours("ramus/run-pair", "one")
	lib.ours("ramus/run-pair", "two")
	lib.theirs("meanwhile")
	done, err := mergeAll(t, "pair", app, lib)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"app", "lib"} {
		if !done[i].Merged || done[i].Repo != name || done[i].Policy != record.MergePush {
			t.Errorf("in %s: %+v", name, done[i])
		}
	}
	if !slices.Contains(app.files(), "one") || !slices.Contains(lib.files(), "two") || app.here() != app.there() || lib.here() != lib.there() {
		t.Errorf("app has %v, lib %v", app.files(), lib.files())
	}
}

// A conflict, or a policy that refuses, in one repository changes none.
func TestSeveralAreCheckedFirst(t *testing.T) {
	app, lib := newPair(t)
	app.ours("ramus/run-pair", "one")
	lib.ours("ramus/run-pair", "two")
	lib.theirs("two", "another content\n")
	before := app.there()
	done, err := mergeAll(t, "pair", app, lib)
	if err != nil || len(done) != 2 || !slices.Contains(done[1].Conflicts, "two") || done[0].Merged || done[1].Merged {
		t.Fatalf("%+v, %v", done, err)
	}
	if app.there() != before || app.here() != before {
		t.Error("app was merged")
	}
	lib.bases.Sources["lib"] = upstream.Source{Merge: record.MergePull}
	if _, err := mergeAll(t, "pair", app, lib); !errors.Is(err, record.ErrInvalid) || !strings.Contains(err.Error(), "nothing was merged") {
		t.Fatal(err)
	}
	if app.there() != before {
		t.Error("app was merged")
	}
}

// An upstream that refuses after the checks leaves a stated state, from which the same call goes on.
func TestSeveralPartly(t *testing.T) {
	app, lib := newPair(t)
	one := app.ours("ramus/run-pair", "one")
	lib.ours("ramus/run-pair", "two")
	before := lib.there()
	hook := filepath.Join(lib.up, "hooks", "pre-receive")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := mergeAll(t, "pair", app, lib)
	var partly *upstream.PartlyError
	if !errors.As(err, &partly) || len(partly.Done) != 1 || partly.Done[0].Repo != "app" || !upstream.NotLanded(err) {
		t.Fatalf("%v", err)
	}
	if text := err.Error(); !strings.Contains(text, "app: merged into main") || !strings.Contains(text, "git revert") {
		t.Error(text)
	}
	if !slices.Contains(app.files(), "one") || lib.there() != before || lib.here() != before {
		t.Errorf("app has %v, lib %v; %.10s", app.files(), lib.files(), one)
	}
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	done, err := mergeAll(t, "pair", app, lib)
	if err != nil || !done[0].UpToDate || !done[1].Merged || !slices.Contains(lib.files(), "two") {
		t.Fatalf("%+v, %v", done, err)
	}
}
