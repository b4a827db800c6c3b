package pushed

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gitd"
)

// house is a Git server with one repository, and a starter over it whose runs only have records.
type house struct {
	t    testing.TB
	s    *Starter
	repo *gitd.Repo
	work *work // the executor of s
}

func newHouse(t testing.TB) *house {
	t.Helper()
	git := &gitd.Server{Root: filepath.Join(t.TempDir(), "root")}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { git.Close() })
	repo, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	w := &work{}
	return &house{t: t, repo: repo, work: w, s: &Starter{Executor: w, Find: &lookup.Lookup{Executor: w, Git: git}, Log: log,
		Dir: filepath.Join(t.TempDir(), "pushed")}}
}

// commit moves a branch to a new commit with these files, and returns it.
func (h *house) commit(branch string, parents []gitd.Hash, files ...gitd.File) gitd.Hash {
	h.t.Helper()
	who := gitd.Person{Name: "A", Email: "a@example.org"}
	c := gitd.NewCommit{Parents: parents, Put: files, Author: who, Committer: who, When: time.Unix(1700000000, 0),
		Message: fmt.Sprint(branch, len(files))}
	if len(parents) > 0 {
		c.From = parents[0]
	}
	hash, err := h.repo.WriteCommit(h.t.Context(), c)
	if err == nil && branch != "" {
		err = h.repo.Update(h.t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: hash})
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return hash
}

func workflowFile(name, text string) gitd.File {
	return gitd.File{Path: executor.WorkflowDir + "/" + name, Content: []byte(text)}
}

// TestListeners reads the workflows with events in any notation, and says why others do not count.
func TestListeners(t *testing.T) {
	h := newHouse(t)
	many := func(n int, text string) (files []gitd.File) {
		for i := range n {
			files = append(files, workflowFile(fmt.Sprintf("w%03d.yaml", i), fmt.Sprintf("id: w%d\n%s", i, text)))
		}
		return files
	}
	for name, test := range map[string]struct {
		files  []gitd.File
		starts int
		faults string
	}{
		"none":   {[]gitd.File{{Path: "a", Content: []byte("a")}}, 0, ""},
		"a file": {[]gitd.File{{Path: executor.WorkflowDir, Content: []byte("on: push")}}, 0, ""},
		"notations": {[]gitd.File{workflowFile("a.yaml", "id: a\non: push\n"), workflowFile("b.yaml", "{id: b, 'on': push}"),
			workflowFile("c.yaml", "id: c\n\"on\":\n  push:\n"), workflowFile("d.yml", "on: push"), workflowFile("e.yaml", "id: e")}, 3, ""},
		"mistakes": {[]gitd.File{workflowFile("a.yaml", "on: pushh"), workflowFile("b.yaml", "a: [b"),
			workflowFile("c.yaml", "on: push\n"+strings.Repeat("#", maxWorkflow))}, 0,
			".ramus/workflows/a.yaml starts nothing: line 1:5: on must be one of push|.ramus/workflows/c.yaml starts nothing: it has 1048585 bytes"},
		"many files": {many(maxWorkflows+1, ""), 0, "only the first 200 files"},
		"many":       {many(maxListening+1, "on: push"), maxListening, "only the first 20 workflows"},
	} {
		commit := h.commit("", nil, test.files...)
		for range 2 { // the second time from memory
			list, err := h.s.listeners(t.Context(), h.repo, commit)
			starts, faults := 0, []string{}
			for _, l := range list {
				if l.fault != "" {
					faults = append(faults, l.fault)
				} else if l.on.Matches("any") {
					starts++
				}
			}
			want := strings.Split(test.faults, "|")
			if err != nil || starts != test.starts || test.faults == "" && len(faults) > 0 || test.faults != "" && len(faults) != len(want) {
				t.Errorf("%s: %d start, %q, %v", name, starts, faults, err)
				continue
			}
			for i, f := range faults {
				if !strings.HasPrefix(f, want[i]) {
					t.Errorf("%s: %q, want %q", name, f, want[i])
				}
			}
		}
	}
}

// TestChangesTouch compares a push with the paths of workflows, and lists its files once for all of them.
func TestChangesTouch(t *testing.T) {
	h := newHouse(t)
	first := h.commit("", nil, gitd.File{Path: "docs/a", Content: []byte("one\ntwo\nthree\n")}, gitd.File{Path: "b"})
	// The file moves, so both of its names count.
	second, err := h.repo.WriteCommit(t.Context(), gitd.NewCommit{Parents: []gitd.Hash{first}, From: first, Message: "move",
		Put: []gitd.File{{Path: "src/a", Content: []byte("one\ntwo\nthree\n")}}, Delete: []string{"docs/a"},
		Author: gitd.Person{Name: "A", Email: "a@example.org"}})
	if err != nil {
		t.Fatal(err)
	}
	never := gitd.Hash(strings.Repeat("1", 40))
	for _, x := range []struct {
		what      string
		old, base gitd.Hash
		want      string // the paths that count
	}{
		{"moved", first, "", "docs/* src/*"},
		{"made, with a base", "", first, "docs/* src/*"},
		{"made, without a base", "", "", "docs/* src/* other/*"},
		{"compared with a commit that is gone", never, "", "docs/* src/* other/*"},
		{"not changed", second, "", ""},
	} {
		c := &changes{repo: h.repo, base: x.base, log: h.s.Log,
			ref: gitd.PushedRef{Name: "refs/heads/x", Commit: second, Old: x.old}}
		var got []string
		for _, pattern := range []string{"docs/*", "src/*", "other/*"} {
			if c.touch(t.Context(), executor.On{Push: true, Paths: []string{pattern}}) {
				got = append(got, pattern)
			}
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%s: got %q, want %q", x.what, got, x.want)
		}
		if len(c.files) > 2 {
			t.Errorf("%s: got the files %q, want each once", x.what, c.files)
		}
	}
}

// TestExpectKeeps keeps a notice of each push that may start something, and of no other.
func TestExpectKeeps(t *testing.T) {
	h := newHouse(t)
	empty := h.commit("main", nil, gitd.File{Path: "a", Content: []byte("a")})
	push := func(branch string) gitd.Push {
		return gitd.Push{Repo: "app", Refs: []gitd.PushedRef{{Name: "refs/heads/" + branch, Commit: empty, Old: empty}}}
	}
	check := func(what, branch string, want int) {
		t.Helper()
		happened, err := h.s.Expect(t.Context(), push(branch))
		files, _ := filepath.Glob(filepath.Join(h.s.Dir, "*"))
		if err != nil || (happened != nil) != (want > 0) || len(files) != want {
			t.Errorf("%s: %t, %q, %v", what, happened != nil, files, err)
		}
		if happened != nil { // nothing was changed, so nothing starts
			happened(t.Context(), gitd.Push{Repo: "app"}, nil)
		}
		if files, _ := filepath.Glob(filepath.Join(h.s.Dir, "*")); len(files) > 0 {
			t.Errorf("%s: left %q", what, files)
		}
	}
	check("no workflows", "topic", 0)
	check("the base may bring some", "main", 1)
	h.commit("main", []gitd.Hash{empty}, workflowFile("a.yaml", "id: a\non: {push: {branches: ['topic/*']}}\n"))
	check("a branch that does not match", "topic", 0)
	check("a branch that matches", "topic/a", 1)
	check("the branch of a caller", "ramus/run-otter", 0)
	if happened, err := h.s.Expect(t.Context(), gitd.Push{Repo: "none", Refs: push("topic").Refs}); happened != nil || err == nil {
		t.Errorf("no repository: %v", err)
	}
}

// TestIsMoved tells from a ref whether a push has moved it.
func TestIsMoved(t *testing.T) {
	h := newHouse(t)
	file := func(text string) gitd.File { return gitd.File{Path: "a", Content: []byte(text)} }
	a := h.commit("", nil, file("a"))
	b := h.commit("", []gitd.Hash{a}, file("b"))
	c := h.commit("", []gitd.Hash{b}, file("c"))
	apart := h.commit("", nil, file("d"))
	never := gitd.Hash(strings.Repeat("1", 40))
	for _, test := range []struct {
		what         string
		at, old, new gitd.Hash
		want         bool
	}{
		{"made", a, "", a, true},
		{"not made", "", "", a, false},
		{"moved", b, a, b, true},
		{"not moved", a, a, b, false},
		{"moved further", c, a, b, true},
		{"made and moved further", c, "", b, true},
		{"another push was faster", apart, a, b, false},
		{"another push was faster than one that goes back", c, b, a, false},
		{"moved back", a, b, a, true},
		{"its objects did not come", a, "", never, false},
	} {
		ref := gitd.RefUpdate{Name: "refs/heads/x", New: test.at}
		if err := h.repo.Update(t.Context(), ref); err != nil && test.at != "" {
			t.Fatal(err)
		}
		got, err := isMoved(t.Context(), h.repo, gitd.PushedRef{Name: "refs/heads/x", Commit: test.new, Old: test.old})
		if err != nil || got != test.want {
			t.Errorf("%s: %t, %v", test.what, got, err)
		}
	}
}

// TestTakeUpRights drops the push of a person who has no rights any more, and keeps that of one whose rights cannot be read.
func TestTakeUpRights(t *testing.T) {
	h := newHouse(t)
	at := h.commit("main", nil, workflowFile("a.yaml", "id: a\non: push\n"))
	h.s.Find.Git.Bound = func(g gitd.Grant) (gitd.Grant, error) {
		if g.Person.ID == "gone" {
			return gitd.Grant{}, gitd.ErrDenied
		}
		return gitd.Grant{}, errors.New("the accounts cannot be read")
	}
	for id, left := range map[string]int{"gone": 0, "ada": 1} {
		n := &notice{Repo: "app", Base: "refs/heads/main", Refs: []gitd.PushedRef{{Name: "refs/heads/main", Commit: at}},
			Grant: gitd.Grant{Subject: id, Person: gitd.Person{ID: id}, Repo: "app", Scopes: []string{gitd.ScopeWrite}}}
		if _, err := h.s.keep(n, keepFast); err != nil {
			t.Fatal(err)
		}
		h.s.TakeUp(t.Context())
		files, _ := filepath.Glob(filepath.Join(h.s.Dir, "*"))
		if len(files) != left {
			t.Errorf("%s: left %q, want %d", id, files, left)
		}
		for _, f := range files {
			h.s.drop(f)
		}
	}
}

// BenchmarkExpect looks at a base with one workflow that a push does not start, whose folder is known.
func BenchmarkExpect(b *testing.B) {
	h := newHouse(b)
	at := h.commit("main", nil, workflowFile("a.yaml", "id: a\non: {push: {branches: ['topic/*']}}\n"))
	p := gitd.Push{Repo: "app", Refs: []gitd.PushedRef{{Name: "refs/heads/other", Commit: at}}}
	for b.Loop() {
		if happened, err := h.s.Expect(b.Context(), p); happened != nil || err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKeep keeps a notice that survives a loss of power, and one that survives a killed server.
func BenchmarkKeep(b *testing.B) {
	h := newHouse(b)
	n := &notice{Repo: "app", Refs: []gitd.PushedRef{{Name: "refs/heads/main", Commit: gitd.Hash(strings.Repeat("1", 40))}}}
	for name, how := range map[string]keeping{"safe": keepSafe, "fast": keepFast} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				file, err := h.s.keep(n, how)
				if err != nil {
					b.Fatal(err)
				}
				h.s.drop(file)
			}
		})
	}
}
