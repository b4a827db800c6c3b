package settings

import (
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// TestReader follows a file through the history of a base: made, changed, broken, corrected.
func TestReader(t *testing.T) {
	ctx := t.Context()
	git := repotest.NewServer(t)
	repo, err := git.Create(ctx, "app")
	if err != nil {
		t.Fatal(err)
	}
	r := &Reader{}
	r.SetBounds(server)
	if s, err := r.Read(ctx, repo, ""); err != nil || s.Base != "main" || s.Commit != "" {
		t.Fatalf("without commits: %+v, %v", s, err)
	}
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	var tip gitd.Hash
	commit := func(branch string, files ...gitd.File) gitd.Hash {
		t.Helper()
		var parents []gitd.Hash
		if tip != "" {
			parents = []gitd.Hash{tip}
		}
		h, err := repo.WriteCommit(ctx, gitd.NewCommit{Put: files, Parents: parents, Author: ada, Committer: ada,
			When: time.Unix(1e9, 0), Message: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if err := repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + branch, New: h}); err != nil {
			t.Fatal(err)
		}
		return h
	}
	put := func(text string) gitd.File { return gitd.File{Path: environment.Path, Content: []byte(text)} }
	read := func(base, setup string, from gitd.Hash, mistake string) {
		t.Helper()
		s, err := r.Read(ctx, repo, base)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(s.Setup, ";") != setup || s.From != from || mistake == "" != (s.Mistake == "") ||
			!strings.Contains(s.Mistake, mistake) {
			t.Errorf("setup %q of %s, mistake %q; want %q of %s, %q", s.Setup, s.From, s.Mistake, setup, from, mistake)
		}
	}

	tip = commit("main", gitd.File{Path: "a", Content: []byte("a")})
	read("main", "", "", "")
	good := commit("main", put("setup: make one\n"))
	tip = good
	read("main", "make one", good, "")
	for range 2 { // a second commit with the mistake, and one with another
		tip = commit("main", put("setpu: make two\n"))
	}
	read("", "make one", good, `.ramus/config.yaml:1:1: the configuration of a repository has no key "setpu"`)
	tip = commit("main", put(strings.Repeat("#", environment.MaxBytes+1)))
	read("main", "make one", good, "has more than")

	// A branch under work has no influence.
	hostile := commit("ramus/run-x", put("setup: evil\n"))
	read("ramus/run-x", "make one", good, "has more than")
	if s, _ := r.Read(ctx, repo, "ramus/run-x"); s.Base != "main" || s.Commit == hostile {
		t.Errorf("%+v", s)
	}

	tip = commit("main", put("setup: make three\n"))
	read("main", "make three", tip, "")
	r.SetBounds(Bounds{Image: "other"})
	if s, err := r.Read(ctx, repo, "main"); err != nil || s.Image != "other" {
		t.Errorf("after other bounds: %+v, %v", s, err)
	}
}
