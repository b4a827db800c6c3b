package index_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// TestReadRuns reads runs from the refs of two repositories, one of which got another name.
func TestReadRuns(t *testing.T) {
	ctx := t.Context()
	git := repotest.NewServer(t)
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	put := func(repo *gitd.Repo, ref, file, text string) {
		t.Helper()
		h, err := repo.WriteCommit(ctx, gitd.NewCommit{Put: []gitd.File{{Path: file, Content: []byte(text)}},
			Author: ada, Committer: ada, When: time.Unix(1e9, 0), Message: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if err := repo.Update(ctx, gitd.RefUpdate{Name: ref, New: h}); err != nil {
			t.Fatal(err)
		}
	}
	var repos []*gitd.Repo
	for _, name := range []string{"app", "web"} {
		repo, err := git.Create(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		repos = append(repos, repo)
	}
	for _, r := range []record.Run{newRun(t, "app", "run:a", "1"), newRun(t, "old", "run:a", "2"),
		newRun(t, "old", "conv:b", "3"), newRun(t, "app", "conv:b", "4"), newRun(t, "old", "conv:b", "5")} {
		switch r.ID {
		case "3", "4":
			r.Record = json.RawMessage(`{"id":"b","repo":"old"}`)
		case "5":
			r.Record = json.RawMessage(`{"id":"b"}`)
		}
		put(repos[0], record.RunRef(r.Caller, r.ID), "run.json", string(record.Marshal(r)))
	}
	long := newRun(t, "web", "run:c", "6")
	long.Error = strings.Repeat("x", 1<<20)
	put(repos[1], record.RunRef(long.Caller, long.ID), "run.json", string(record.Marshal(long)))

	runs, err := index.ReadRuns(ctx, git)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, strings.TrimSpace(r.Repo+" "+r.Name()+" "+string(r.Record)))
	}
	slices.Sort(got)
	want := []string{`app conv:b/3 {"id":"b","repo":"app"}`, `app conv:b/4 {"id":"b","repo":"old"}`,
		`app conv:b/5 {"id":"b"}`, "app run:a/1", "app run:a/2", "web run:c/6"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}

	for name, file := range map[string][2]string{"no JSON": {"run.json", "{"}, "no file": {"a.json", "{}"}} {
		put(repos[1], record.RunRef(long.Caller, "7"), file[0], file[1])
		if _, err := index.ReadRuns(ctx, git); err == nil ||
			!strings.HasPrefix(err.Error(), "cannot read run refs/ramus/runs/run-c/7 of web: ") {
			t.Errorf("%s: %v", name, err)
		}
		ref := gitd.RefUpdate{Name: record.RunRef(long.Caller, "7")}
		if err := repos[1].Update(ctx, ref); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveMany checks that all of the named runs are removed, from the file too.
func TestRemoveMany(t *testing.T) {
	path := t.TempDir() + "/index.db"
	ix, _ := open(t, path)
	all := []record.Run{newRun(t, "app", "run:a", "1"), newRun(t, "app", "run:a", "2"), newRun(t, "app", "run:b", "1"),
		newRun(t, "web", "run:a", "1")}
	if err := ix.Put(all...); err != nil {
		t.Fatal(err)
	}
	// The first and the last have the same name, in two repositories.
	if err := ix.Remove(all[0], newRun(t, "app", "run:none", "1"), all[2], all[1]); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if left := ix.All(); len(left) != 1 || left[0].Repo != "web" {
			t.Errorf("%s: left %+v", when, left)
		}
		if r, ok := ix.Get(all[3].Caller, "1"); !ok || r.Repo != "web" {
			t.Errorf("%s: %+v, %v", when, r, ok)
		}
		for _, r := range all[1:3] {
			if _, ok := ix.Get(r.Caller, r.ID); ok {
				t.Errorf("%s: %s is there", when, r.Name())
			}
		}
	}
	check("after the removal")
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	ix, _ = open(t, path)
	defer ix.Close()
	if err := ix.Load(); err != nil {
		t.Fatal(err)
	}
	check("after a restart")
}
