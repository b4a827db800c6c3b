package settings

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/tasks/environment"
	"github.com/ramus-dev/ramus/tasks/rules"
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

// TestLostFile checks that a file whose content is lost is an error, and not a file that sets nothing.
func TestLostFile(t *testing.T) {
	git := repotest.NewServer(t)
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	for name, c := range map[string]struct{ path, then string }{
		"configuration":         {environment.Path, ""},
		"earlier-configuration": {environment.Path, "setpu: make\n"},
		"rules":                 {rules.Path, ""},
	} {
		repo, err := git.Create(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		text := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(text, []byte("# lost\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		blob := gitd.Hash(gittest.Run(t, repo.Dir(), "hash-object", "-w", text))
		tip, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Put: []gitd.File{{Path: c.path, Blob: blob}},
			Author: ada, Message: "m"})
		if err == nil && c.then != "" {
			tip, err = repo.WriteCommit(t.Context(), gitd.NewCommit{Put: []gitd.File{{Path: c.path, Content: []byte(c.then)}},
				Parents: []gitd.Hash{tip}, Author: ada, Message: "m"})
		}
		if err == nil {
			err = repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: tip})
		}
		if err == nil {
			err = os.Remove(filepath.Join(repo.Dir(), "objects", string(blob[:2]), string(blob[2:])))
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, err := (&Reader{}).Read(t.Context(), repo, "main"); !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("%s: %+v, %v; want %v", name, s, err, gitd.ErrNotFound)
		}
	}
}

// TestNoEarlierFile checks that a file with a mistake is replaced by none if the base has had no file before it.
func TestNoEarlierFile(t *testing.T) {
	git := repotest.NewServer(t)
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	put := func(path, text string) gitd.File { return gitd.File{Path: path, Content: []byte(text)} }
	bad := put(environment.Path, "setpu: make\n")
	for name, history := range map[string][]gitd.File{
		"first-commit":  {bad},
		"other-mistake": {put(environment.Path, "setup: [1\n"), bad},
		"no-file":       {put("a", "a"), bad},
		"no-folder":     {put(".ramus", "a"), bad},
		"removed-file":  {put(environment.Path, "setup: make\n"), put("a", "a"), bad},
	} {
		repo, err := git.Create(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		var tip []gitd.Hash
		for _, f := range history {
			h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Put: []gitd.File{f}, Parents: tip, Author: ada, Message: "m"})
			if err != nil {
				t.Fatal(err)
			}
			tip = []gitd.Hash{h}
		}
		if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: tip[0]}); err != nil {
			t.Fatal(err)
		}
		s, err := (&Reader{}).Read(t.Context(), repo, "main")
		if err != nil || s.From != "" || len(s.Setup) > 0 || !strings.Contains(s.Mistake, `no key "setpu"`) {
			t.Errorf("%s: setup %q of %q, mistake %q, %v", name, s.Setup, s.From, s.Mistake, err)
		}
	}
}

// TestLinkAfterFile checks that a file counts if a symbolic link with its content replaced it.
func TestLinkAfterFile(t *testing.T) {
	repo, err := repotest.NewServer(t).Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	var tip []gitd.Hash
	for _, mode := range []uint32{0o100644, 0o120000} {
		h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Parents: tip, Author: gitd.Person{Name: "Ada", Email: "ada@example.org"},
			Message: "m", Put: []gitd.File{{Path: environment.Path, Mode: mode, Content: []byte("setup: make")}}})
		if err != nil {
			t.Fatal(err)
		}
		tip = []gitd.Hash{h}
		if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: h}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := (&Reader{}).Read(t.Context(), repo, "main")
	if err != nil || len(s.Setup) != 1 || s.From == "" || s.From == tip[0] || !strings.Contains(s.Mistake, "symbolic link") {
		t.Errorf("setup %q of %q, mistake %q, %v", s.Setup, s.From, s.Mistake, err)
	}
}
