package changes_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

var ada = gitd.Person{Name: "Ada", Email: "ada@example.org"}

// commit makes a commit of files alone.
func commit(t *testing.T, r *gitd.Repo, put []gitd.File) gitd.Hash {
	t.Helper()
	h, err := r.WriteCommit(t.Context(), gitd.NewCommit{Put: put, Author: ada, Message: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestReadLikeGit reads the changes between random commits, part by part. All parts together have the files and counts of git, and the
// lines of each file are those of git.
func TestReadLikeGit(t *testing.T) {
	r := repotest.NewRepo(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	var commits []gitd.Hash
	for range 8 {
		var put []gitd.File
		for i := range 130 {
			if rnd.IntN(5) == 0 {
				continue
			}
			f := gitd.File{Path: fmt.Sprintf("d%d/f %d", i%3, i), Mode: []uint32{0, 0, 0, object.ModeExecutable}[rnd.IntN(4)]}
			for range rnd.IntN(40) {
				f.Content = fmt.Appendf(f.Content, "%sline %d\n", strings.Repeat(" ", rnd.IntN(2)), rnd.IntN(3))
			}
			if rnd.IntN(30) == 0 {
				f.Content = append(f.Content, 0)
			}
			put = append(put, f)
		}
		commits = append(commits, commit(t, r, put))
	}
	var c changes.Changes
	for range 12 {
		a, b := commits[rnd.IntN(len(commits))], commits[rnd.IntN(len(commits))]
		w := changes.Window{Context: rnd.IntN(3) * 4, IgnoreSpace: rnd.IntN(2) == 0}
		var files []string
		var all changes.Set
		keys := map[string]bool{}
		for w.Page = 1; w.Page <= max(all.Pages, 1); w.Page++ {
			s, err := c.Read(t.Context(), r, a, b, w, nil)
			if err != nil {
				t.Fatal(err)
			}
			all = s
			lines := 0
			for _, f := range s.Files {
				files = append(files, fmt.Sprintf("%d\t%d\t%s", f.Added, f.Deleted, f.Path))
				if keys[f.ID] || keys[f.Key] {
					t.Errorf("two files have the id %s or the key %s", f.ID, f.Key)
				}
				keys[f.ID], keys[f.Key] = true, true
				if f.Shown && !f.Binary() {
					lines += checkLines(t, r, a, b, w, f)
				}
			}
			if lines > 2*changes.MaxLines || len(s.Files) > changes.MaxFiles {
				t.Errorf("a part has %d files with %d lines", len(s.Files), lines)
			}
		}
		var want []string
		for line := range strings.Lines(gittest.Run(t, r.Dir(), "diff", "-M", "--numstat", string(a), string(b))) {
			line = strings.TrimSpace(strings.ReplaceAll(line, "-\t", "-1\t"))
			if strings.Contains(line, "=>") {
				want = nil
				break
			}
			want = append(want, line)
		}
		if want != nil && !slices.Equal(files, want) || all.All != len(files) {
			t.Errorf("%d files %q\ngit %q", all.All, files, want)
		}
	}
}

// checkLines compares the lines of a file with those of git, and returns their number.
func checkLines(t *testing.T, r *gitd.Repo, a, b gitd.Hash, w changes.Window, f *changes.File) int {
	t.Helper()
	renames := "--no-renames"
	if f.OldPath != "" {
		renames = "-M"
	}
	args := []string{"diff", renames, fmt.Sprintf("-U%d", cmp.Or(w.Context, 3))}
	if w.IgnoreSpace {
		args = append(args, "-w")
	}
	args = append(args, string(a), string(b), "--", ":(literal)"+f.Path)
	if f.OldPath != "" {
		args = append(args, ":(literal)"+f.OldPath)
	}
	out, err := gittest.Try(r.Dir(), args...)
	if err != nil {
		t.Fatal(out)
	}
	list, _, err := diff.Read(strings.NewReader(out), diff.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var want []diff.Hunk
	for _, d := range list {
		if d.New == f.Path {
			want = d.Hunks
		}
	}
	if !reflect.DeepEqual(f.Hunks, want) || f.Next != 0 {
		t.Errorf("%s: %+v\ngit %s", f.Path, f.Hunks, out)
	}
	lines := 0
	for _, h := range f.Hunks {
		lines += len(h.Lines)
	}
	return lines
}

// TestLongFile reads a file of 200,000 changed lines. Its lines are read in parts.
func TestLongFile(t *testing.T) {
	r := repotest.NewRepo(t)
	var text strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&text, "line %d\n", i+1)
	}
	a, b := commit(t, r, []gitd.File{{Path: "short", Content: []byte("x\n")}}),
		commit(t, r, []gitd.File{{Path: "long", Content: []byte(text.String())}, {Path: "short", Content: []byte("y\n")}})
	var c changes.Changes
	s, err := c.Read(t.Context(), r, a, b, changes.Window{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Added != 200_001 || s.Files[0].Shown || len(s.Files[1].Hunks) != 1 {
		t.Errorf("%+v", s)
	}
	for _, at := range []int{0, 100_000, 199_700, 200_000} {
		s, err := c.Read(t.Context(), r, a, b, changes.Window{Path: "long", Line: at}, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := s.Files[0]
		n := min(changes.MaxLines, 200_000-at)
		next := 0
		if at+n < 200_000 {
			next = at + n
		}
		if n == 0 {
			if len(f.Hunks) > 0 || f.Next != 0 {
				t.Errorf("after the end: %+v", f)
			}
			continue
		}
		if len(f.Hunks) != 1 || len(f.Hunks[0].Lines) != n || f.Hunks[0].Lines[0].Text != fmt.Sprintf("line %d", at+1) || f.Next != next {
			t.Errorf("from %d: %d hunks, next %d, want %d lines and %d", at, len(f.Hunks), f.Next, n, next)
		}
	}
	for _, w := range []changes.Window{{Page: -1}, {Line: -1}, {Context: -1}, {Context: 10_001}, {Path: "nothing"}} {
		if _, err := c.Read(t.Context(), r, a, b, w, nil); err == nil {
			t.Errorf("%+v is no mistake", w)
		}
	}
}

// TestKinds reads a submodule, a link that was a file, and a change of the mode alone.
func TestKinds(t *testing.T) {
	r := repotest.NewRepo(t)
	a := commit(t, r, []gitd.File{{Path: "tool", Content: []byte("x\n")}, {Path: "was a file", Content: []byte("text\n")}})
	index := []string{"GIT_INDEX_FILE=" + t.TempDir() + "/index"}
	git := func(args ...string) string {
		t.Helper()
		out, err := gittest.TryEnv(index, r.Dir(), args...)
		if err != nil {
			t.Fatal(args, out)
		}
		return strings.TrimSpace(out)
	}
	git("read-tree", string(a))
	sub := strings.Repeat("ab", 20)
	git("update-index", "--add", "--cacheinfo", "160000,"+sub+",sub")
	git("update-index", "--chmod=+x", "--cacheinfo", "100755,"+git("rev-parse", string(a)+":tool")+",tool")
	git("update-index", "--cacheinfo", "120000,"+git("rev-parse", string(a)+":was a file")+",was a file")
	b := gitd.Hash(git("commit-tree", "-m", "x", git("write-tree")))
	var c changes.Changes
	s, err := c.Read(t.Context(), r, a, b, changes.Window{}, nil)
	if err != nil || len(s.Files) != 3 {
		t.Fatal(s, err)
	}
	if f := s.Files[0]; !f.Submodule() || f.Status != "A" || f.Blob != gitd.Hash(sub) || f.Hunks[0].Lines[0].Text != "Subproject commit "+sub {
		t.Errorf("the submodule is %+v", f)
	}
	if f := s.Files[1]; f.OldMode != "100644" || f.Mode != "100755" || f.OldBlob != f.Blob || !f.Shown || len(f.Hunks) != 0 {
		t.Errorf("the executable file is %+v", f)
	}
	if f := s.Files[2]; f.Status != "T" || f.Mode != "120000" || len(f.Hunks) != 2 || f.Hunks[0].Lines[0].Sign != diff.Deleted || f.Hunks[1].Lines[0].Sign != diff.Added {
		t.Errorf("the link is %+v", f)
	}
}

// TestFind finds files by a part of their new or their old path, counts folders, and leaves out lines that are not asked for.
func TestFind(t *testing.T) {
	r := repotest.NewRepo(t)
	same := []byte("one\ntwo\nthree\nfour\n")
	var before, after []gitd.File
	for i := range 60 {
		after = append(after, gitd.File{Path: fmt.Sprintf("new/%02d", i), Content: fmt.Appendf(nil, "%d\n", i)})
	}
	before = append(before, gitd.File{Path: "old/name", Content: same}, gitd.File{Path: "top", Content: []byte("x\n")})
	after = append(after, gitd.File{Path: "other/name", Content: same}, gitd.File{Path: "top", Content: []byte("y\n")})
	a, b := commit(t, r, before), commit(t, r, after)
	var c changes.Changes
	read := func(w changes.Window, skip func(string) bool) changes.Set {
		t.Helper()
		s, err := c.Read(t.Context(), r, a, b, w, skip)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, x := range []struct {
		w     changes.Window
		found int
		pages int
		first string
	}{
		{changes.Window{}, 62, 2, "new/00"},
		{changes.Window{Page: 2}, 62, 2, "new/50"},
		{changes.Window{Page: 9}, 62, 2, "new/50"},
		{changes.Window{Find: "old/"}, 1, 1, "other/name"},
		{changes.Window{Find: "other/"}, 1, 1, "other/name"},
		{changes.Window{Find: "new/1"}, 10, 1, "new/10"},
		{changes.Window{Path: "top"}, 1, 1, "top"},
		{changes.Window{Find: "nowhere"}, 0, 1, ""},
	} {
		s := read(x.w, nil)
		first := ""
		if len(s.Files) > 0 {
			first = s.Files[0].Path
		}
		if s.All != 62 || s.Found != x.found || s.Pages != x.pages || first != x.first {
			t.Errorf("%+v: %d of %d files on %d pages, the first is %s", x.w, s.Found, s.All, s.Pages, first)
		}
		if got := fmt.Sprint(s.Folders); got != "[{new/ 60} {other/ 1} { 1}]" {
			t.Errorf("%+v: the folders are %s", x.w, got)
		}
	}
	one := read(changes.Window{Find: "new/1"}, nil)
	skipped := one.Files[3].Key
	for i, f := range read(changes.Window{Find: "new/1"}, func(key string) bool { return key == skipped }).Files {
		if f.Shown != (i != 3) {
			t.Errorf("the lines of %s: %v", f.Path, f.Shown)
		}
	}
	if f := read(changes.Window{Path: one.Files[3].Path}, func(string) bool { return true }).Files[0]; !f.Shown {
		t.Error("a file that is named has no lines")
	}
}

// TestLimits deletes as many lines as are shown, and one more. Six lines count for each file in addition, as equal ones around the deleted ones.
func TestLimits(t *testing.T) {
	r := repotest.NewRepo(t)
	for _, x := range []struct {
		a, b int
		want string
	}{{250, 238, "true true"}, {250, 239, "true false"}, {251, 250, "false true"}} {
		var c changes.Changes
		s, err := c.Read(t.Context(), r, commit(t, r, []gitd.File{
			{Path: "a", Content: []byte(strings.Repeat("line\n", x.a))}, {Path: "b", Content: []byte(strings.Repeat("line\n", x.b))},
		}), commit(t, r, []gitd.File{{Path: "a"}, {Path: "b"}}), changes.Window{}, nil)
		if err != nil || len(s.Files) != 2 {
			t.Fatal(s, err)
		}
		if got := fmt.Sprint(s.Files[0].Shown, " ", s.Files[1].Shown); got != x.want {
			t.Errorf("%d and %d lines: %s, want %s", x.a, x.b, got, x.want)
		}
	}
}

// TestErrors compares with a commit that does not exist, and for a caller that went away. Neither error blames the time that git takes.
func TestErrors(t *testing.T) {
	r := repotest.NewRepo(t)
	a := commit(t, r, []gitd.File{{Path: "x", Content: []byte("x\n")}})
	var c changes.Changes
	var p *route.Problem
	if _, err := c.Read(t.Context(), r, a, gitd.Hash(strings.Repeat("ab", 20)), changes.Window{}, nil); err == nil || errors.As(err, &p) {
		t.Errorf("a commit that does not exist: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Read(gone, r, a, commit(t, r, nil), changes.Window{}, nil); err == nil || errors.As(err, &p) {
		t.Errorf("a caller that went away: %v", err)
	}
}

// commitOn makes a commit of one more file the tip of a branch.
func commitOn(t *testing.T, r *gitd.Repo, branch, path string, parent gitd.Hash) gitd.Hash {
	t.Helper()
	n := gitd.NewCommit{Put: []gitd.File{{Path: path, Content: []byte(path)}}, From: parent, Author: ada, Message: path}
	if parent != "" {
		n.Parents = []gitd.Hash{parent}
	}
	h, err := r.WriteCommit(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, r.Dir(), "update-ref", "refs/heads/"+branch, string(h))
	return h
}

// missing is a commit that no repository has.
const missing = gitd.Hash("1111111111111111111111111111111111111111")

// TestSpan finds the begin and the end of the work of a caller.
func TestSpan(t *testing.T) {
	r := repotest.NewRepo(t)
	put := func(branch, path string, parent gitd.Hash) gitd.Hash { return commitOn(t, r, branch, path, parent) }
	start := put("main", "a", "")
	moved := put("main", "b", start)
	early, rebased := put("ramus/early", "c", start), put("ramus/rebased", "d", moved)
	gittest.Run(t, r.Dir(), "update-ref", "refs/heads/ramus/merged", string(moved))
	for _, x := range []struct {
		branch, base   string
		head, from, to gitd.Hash
	}{
		{"ramus/early", "main", "", start, early},
		{"ramus/rebased", "main", "", moved, rebased},
		{"ramus/merged", "main", "", start, moved}, // all its work is in the base, so its begin is that of the record
		{"ramus/gone", "main", rebased, moved, rebased},
		{"ramus/early", "deleted", "", start, early},
	} {
		st := executor.CallerStatus{Branch: x.branch, Head: x.head, Last: record.Run{Base: x.base, BaseCommit: start}}
		from, to, err := changes.Span(t.Context(), r, st)
		if err != nil || from != x.from || to != x.to {
			t.Errorf("%s on %s: %s to %s, %v, want %s to %s", x.branch, x.base, from, to, err, x.from, x.to)
		}
	}
	// The base moved on before the last of several runs, and has all the work now.
	again := put("ramus/again", "e", early)
	gittest.Run(t, r.Dir(), "update-ref", "refs/heads/main", string(again))
	for _, x := range []struct{ base, start, from gitd.Hash }{
		{moved, early, start},   // merged after the last run
		{start, early, start},   // the base did not move between the runs
		{again, again, again},   // merged before the last run, which changed nothing
		{"", early, early},      // a record without the base
		{missing, early, early}, // a base that was rewritten
	} {
		st := executor.CallerStatus{Branch: "ramus/again", Last: record.Run{Base: "main", BaseCommit: x.base, Start: x.start}}
		from, to, err := changes.Span(t.Context(), r, st)
		if err != nil || from != x.from || to != again {
			t.Errorf("several runs, the last on %s from %s: %s to %s, %v, want %s to %s", x.base, x.start, from, to, err, x.from, again)
		}
	}
	st := executor.CallerStatus{Branch: "ramus/early", Head: start, Last: record.Run{Base: "main", BaseCommit: start}}
	if _, to, err := changes.Span(t.Context(), r, st); err != nil || to != early {
		t.Errorf("a branch that moved since it was last read: got %s, %v, want %s", to, err, early)
	}
	if _, _, err := changes.Span(t.Context(), r, executor.CallerStatus{Branch: "ramus/gone", Last: record.Run{Base: "main"}}); err == nil {
		t.Error("a branch that does not exist has changes")
	}
}

// TestEnds finds the repository and the commits of a window, and refuses what the caller of the request does not see.
func TestEnds(t *testing.T) {
	git := repotest.NewServer(t)
	app, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	lib, err := git.Create(t.Context(), "lib")
	if err != nil {
		t.Fatal(err)
	}
	put := func(r *gitd.Repo, branch string, parent gitd.Hash) gitd.Hash {
		return commitOn(t, r, branch, r.Name()+"/"+branch, parent)
	}
	appMain, libMain := put(app, "main", ""), put(lib, "main", "")
	appWork, libWork := put(app, "ramus/run-otter", appMain), put(lib, "ramus/run-otter", libMain)
	other := put(app, "other", appMain)
	docs, err := git.Create(t.Context(), "docs")
	if err != nil {
		t.Fatal(err)
	}
	docsMain := put(docs, "main", "")
	docsWork := put(docs, "ramus/run-otter", docsMain)
	docsMore := put(docs, "ramus/run-otter", docsWork)
	gittest.Run(t, docs.Dir(), "update-ref", "refs/heads/main", string(docsMore))
	st := executor.CallerStatus{Repo: "app", Branch: "ramus/run-otter", Last: record.Run{Repo: "app", Base: "main", BaseCommit: appMain,
		With: []record.Addition{{Repo: "lib", Base: "main", Start: libMain}, {Repo: "none", Base: "main", Start: libMain},
			{Repo: "docs", Base: "main", BaseCommit: docsMain, Start: docsWork}}}}
	all := route.Who{Subject: "ada", Repo: "*", Scopes: []string{gitd.ScopeAdmin}}
	one := route.Who{Subject: "bo", Repo: "app", Scopes: []string{gitd.ScopeRead}, Read: []string{"refs/heads/main", "refs/heads/ramus/*"}}
	find := &lookup.Lookup{Git: git}
	for _, x := range []struct {
		what     string
		who      route.Who
		w        changes.Window
		repo     string // "" means an error
		from, to gitd.Hash
	}{
		{"all work", all, changes.Window{}, "app", appMain, appWork},
		{"the repository of the caller by name", one, changes.Window{In: "app"}, "app", appMain, appWork},
		{"another end", all, changes.Window{To: "other"}, "app", appMain, other},
		{"another begin", all, changes.Window{From: "other"}, "app", other, appWork},
		{"both", all, changes.Window{From: "main", To: "other"}, "app", appMain, other},
		{"an additional repository", all, changes.Window{In: "lib"}, "lib", libMain, libWork},
		{"an additional repository after a merge of several runs", all, changes.Window{In: "docs"}, "docs", docsMain, docsMore},
		{"one that who does not see", one, changes.Window{In: "lib"}, "", "", ""},
		{"one that is gone", all, changes.Window{In: "none"}, "", "", ""},
		{"one that the caller does not have", all, changes.Window{In: "more"}, "", "", ""},
		{"a branch that who does not see", one, changes.Window{To: "refs/heads/other"}, "", "", ""},
		{"a branch that does not exist", all, changes.Window{From: "refs/heads/none"}, "", "", ""},
	} {
		r, from, to, err := changes.Ends(t.Context(), find, x.who, st, x.w)
		if x.repo == "" {
			if err == nil {
				t.Errorf("%s: got %s to %s, want an error", x.what, from, to)
			}
			continue
		}
		if err != nil || r.Name() != x.repo || from != x.from || to != x.to {
			t.Errorf("%s: got %s to %s, %v, want %s to %s in %s", x.what, from, to, err, x.from, x.to, x.repo)
		}
	}
	if _, _, _, err := changes.Ends(t.Context(), find, all, executor.CallerStatus{Repo: "gone"}, changes.Window{}); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("a repository that is gone: got %v, want %v", err, gitd.ErrNotFound)
	}
}

// TestLongFileBecameLink reads a file that became a link, part by part. Git writes two differences, and no line of either is lost.
func TestLongFileBecameLink(t *testing.T) {
	r := repotest.NewRepo(t)
	for _, lines := range []int{1, changes.MaxLines - 1, changes.MaxLines, changes.MaxLines + 1, 2 * changes.MaxLines} {
		a := commit(t, r, []gitd.File{{Path: "x", Content: []byte(strings.Repeat("line\n", lines))}})
		b := commit(t, r, []gitd.File{{Path: "x", Content: []byte("to"), Mode: object.ModeSymlink}})
		var c changes.Changes
		got, last := 0, diff.Line{}
		for w := (changes.Window{Path: "x"}); ; {
			s, err := c.Read(t.Context(), r, a, b, w, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range s.Files[0].Hunks {
				got, last = got+len(h.Lines), h.Lines[len(h.Lines)-1]
			}
			if s.Files[0].Next != 0 && s.Files[0].Next <= w.Line {
				t.Fatalf("%d lines: the part after %d begins at %d", lines, w.Line, s.Files[0].Next)
			}
			if w.Line = s.Files[0].Next; w.Line == 0 {
				break
			}
		}
		if got != lines+1 || last.Text != "to" {
			t.Errorf("%d lines: got %d that end with %q, want %d with that of the link", lines, got, last.Text, lines+1)
		}
	}
}
