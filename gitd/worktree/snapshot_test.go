package worktree_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/pathspec"
	"github.com/ramus-dev/ramus/gitd/worktree"
	"github.com/ramus-dev/ramus/internal/redact"
)

// madeEntry is an entry of an overlay that exists only as a list.
type madeEntry struct {
	worktree.OverlayEntry
	data string
}

func (e madeEntry) exec() madeEntry            { e.Exec = true; return e }
func (e madeEntry) opaque() madeEntry          { e.Opaque = true; return e }
func (e madeEntry) from(path string) madeEntry { e.Redirect = path; return e }

func madeFile(path, data string) madeEntry {
	return madeEntry{worktree.OverlayEntry{Path: path, Kind: 'f', Size: int64(len(data))}, data}
}

func madeOf(kind byte, path string) madeEntry {
	return madeEntry{worktree.OverlayEntry{Path: path, Kind: kind}, ""}
}

func madeLink(path, to string) madeEntry {
	return madeEntry{worktree.OverlayEntry{Path: path, Kind: 'l', Link: to}, ""}
}

// overlayOf sorts entries as an overlay has them, with the folders that they need.
func overlayOf(under, known gitd.Hash, list ...madeEntry) worktree.Overlay {
	all := map[string]madeEntry{}
	for _, e := range list {
		for up, _ := splitName(e.Path); up != ""; up, _ = splitName(up) {
			if _, ok := all[up]; !ok {
				all[up] = madeOf('d', up)
			}
		}
		all[e.Path] = e
	}
	o := worktree.Overlay{Lower: under, Indexed: known}
	files := map[string]string{}
	for _, e := range all {
		e.Inode, e.MTime, e.CTime = 1, 1, int64(len(e.data))
		o.Entries = append(o.Entries, e.OverlayEntry)
		if e.Kind == 'f' {
			files[e.Path] = e.data
		}
	}
	slices.SortFunc(o.Entries, func(a, b worktree.OverlayEntry) int {
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
	o.Open = func(_ context.Context, path string) (io.ReadCloser, error) {
		data, ok := files[path]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(strings.NewReader(data)), nil
	}
	return o
}

// madeCommit has the message, author and time of every commit in these tests.
var madeCommit = gitd.NewCommit{Author: alice, Message: "Made", When: time.Unix(1700000000, 0).UTC()}

// snap makes a snapshot, which must succeed. The text describes its tree.
func snap(t testing.TB, r *gitd.Repo, o worktree.Overlay) (worktree.Snapshot, string) {
	t.Helper()
	c := madeCommit
	c.Parents = []gitd.Hash{o.Indexed}
	s, err := r.Snapshot(t.Context(), o, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Pack.Close() })
	return s, treeText(t, r, s.Tree)
}

func treeText(t testing.TB, r *gitd.Repo, tree gitd.Hash) string {
	t.Helper()
	return git(t, r.Dir(), "-c", "core.quotePath=false", "ls-tree", "-r", "--format=%(objectmode) %(path)", string(tree))
}

func TestSnapshotOf(t *testing.T) {
	r := newRepo(t)
	base := commit(t, r, "main", "One", "a", "1", "dir/b", "2", "dir/sub/c", "3", "x.log", "4", ".gitignore",
		"*.log\n/out/\n!keep.log\n", "win.bat", "1\n2\n", ".gitattributes", "*.bat text eol=crlf\n*.bin -text\n")
	const rest = "100644 .gitattributes\n100644 .gitignore\n"
	for _, test := range []struct {
		name string
		list []madeEntry
		want string // in addition to .gitattributes and .gitignore; empty for the earlier content
	}{
		{"nothing", nil, ""},
		{"the same", []madeEntry{madeFile("a", "1")}, ""},
		{"new and deleted", []madeEntry{madeFile("new", "n").exec(), madeOf('w', "a"), madeOf('w', "nothing"),
			madeLink("link", "../..")},
			"100644 dir/b\n100644 dir/sub/c\n120000 link\n100755 new\n100644 win.bat\n100644 x.log"},
		{"what is ignored", []madeEntry{madeFile("y.log", "n"), madeFile("out/x", ""), madeFile("out/.git/HEAD", ""),
			madeFile("keep.log", "")},
			"100644 a\n100644 dir/b\n100644 dir/sub/c\n100644 keep.log\n100644 win.bat\n100644 x.log"},
		{"empty folders, sockets and pipes", []madeEntry{madeOf('d', "empty/e"), madeOf('o', "pipe")}, ""},
		{"a folder that is opaque", []madeEntry{madeOf('d', "dir").opaque(), madeFile("dir/d", "")},
			"100644 a\n100644 dir/d\n100644 win.bat\n100644 x.log"},
		{"a renamed folder, one in it taken out, one put in",
			[]madeEntry{madeOf('w', "dir"), madeOf('d', "moved").from("dir"), madeOf('w', "moved/sub"),
				madeOf('d', "moved/s").from("dir/sub"), madeFile("moved/s/d", "")},
			"100644 a\n100644 moved/b\n100644 moved/s/c\n100644 moved/s/d\n100644 win.bat\n100644 x.log"},
		{"a folder in a renamed one",
			[]madeEntry{madeOf('w', "dir"), madeOf('d', "moved").from("dir"), madeFile("moved/sub/d", "")},
			"100644 a\n100644 moved/b\n100644 moved/sub/c\n100644 moved/sub/d\n100644 win.bat\n100644 x.log"},
		{"a folder that replaces a file, and the other way", []madeEntry{madeFile("a/b", ""), madeFile("dir", "")},
			"100644 a/b\n100644 dir\n100644 win.bat\n100644 x.log"},
		{"lines", []madeEntry{madeFile("win.bat", "1\r\n2\r\n")}, ""},
		{"git's own folder", []madeEntry{madeFile(".git/HEAD", "x"), madeFile(".git/x", "")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, got := snap(t, r, overlayOf(base, base, test.list...))
			if test.want == "" {
				if s.Commit != "" || s.Pack != nil || len(s.Changed) != 0 {
					t.Errorf("%+v\n%s", s, got)
				}
				return
			}
			lines := strings.Split(rest+test.want, "\n")
			if got != strings.Join(lines, "\n") {
				t.Errorf("tree\n%s\nwant\n%s", got, rest+test.want)
			}
			if parent := git(t, r.Dir(), "rev-parse", string(s.Commit)+"^"); parent != string(base) {
				t.Errorf("parent %s", parent)
			}
		})
	}
}

func TestSnapshotNeedsGit(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	link := gitd.Hash("1234567890123456789012345678901234567890")
	plain := commit(t, r, "main", "One", "a", "1", "dir/b", "2", ".gitattributes",
		"*.psd filter=lfs\n*.id ident\n*.u16 working-tree-encoding=UTF-16\nkeep text\n", "old.psd", "x",
		"d/.gitattributes", "*.txt text\n")
	// WriteCommit does not know submodules. Trees of stock git have them.
	tree := git(t, r.Dir(), "rev-parse", string(plain)+"^{tree}")
	index := filepath.Join(t.TempDir(), "index")
	stockGit := func(args ...string) gitd.Hash {
		out, err := gittest.TryEnv([]string{"GIT_INDEX_FILE=" + index, "GIT_DIR=" + r.Dir()}, r.Dir(), args...)
		if err != nil {
			t.Fatal(err, out)
		}
		return gitd.Hash(strings.TrimSpace(out))
	}
	stockGit("read-tree", tree)
	stockGit("update-index", "--add", "--cacheinfo", "160000,"+string(link)+",sub", "--cacheinfo",
		"160000,"+string(link)+",in/sub")
	base := stockGit("commit-tree", "-m", "x", string(stockGit("write-tree")))

	for name, list := range map[string][]madeEntry{
		"ident":                     {madeFile("x.id", "$Id$")},
		"encoding":                  {madeFile("x.u16", "")},
		"nested repository":         {madeFile("dir/.git/HEAD", "x")},
		"nested repository by file": {madeFile("dir/.git", "gitdir: x")},
		"alias":                     {madeFile("dir/.GIT", "x")},
		"alias of Windows":          {madeFile("git~1/x", "x")},
		"alias of a Mac":            {madeFile(".g\u200cit/x", "x")},
		"submodules file":           {madeFile(".gitmodules", "x")},
		"its short name":            {madeFile("x/GI7EBA~1", "x")},
		"attributes elsewhere":      {madeFile("x/.GitAttributes", "x")},
		"attributes as a folder":    {madeFile("x/.gitattributes/y", "x")},
		"long line of attributes":   {madeFile("x/.gitattributes", strings.Repeat("x", 3000)+" text")},
		"large attributes": {madeFile(".gitattributes", strings.Repeat("#\n", pathspec.MaxFile)),
			madeFile("x", "")},
		"large ignore file":       {madeFile(".gitignore", strings.Repeat("#\n", pathspec.MaxFile)), madeFile("x", "")},
		"lost attributes":         {madeOf('w', "d/.gitattributes"), madeFile("d/x.txt", "x")},
		"git's releases differ":   {madeFile(".gitignore", "/x**/y\n"), madeFile("xa/b/y", "")},
		"pipe in place of a file": {madeOf('o', "a")},
		"submodule fetched":       {madeFile("sub/.git", "x")},
		"submodule with files":    {madeFile("sub/x", "x")},
		"file in place of one":    {madeFile("sub", "x")},
		"moved from nowhere":      {madeOf('d', "x").from("nothing/here")},
		"moved from a file":       {madeOf('d', "x").from("a")},
		"moved from git's folder": {madeOf('d', "x").from(".git/hooks")},
		"a path that is too long": {madeFile(strings.Repeat("0123456789/", 400)+"x", "")},
	} {
		o := overlayOf(base, base, list...)
		if s, err := r.Snapshot(ctx, o, madeCommit); !errors.Is(err, worktree.ErrNeedsGit) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	// A change that touches none of these does not need git.
	for name, test := range map[string]struct {
		list []madeEntry
		want string
	}{
		"next to":             {[]madeEntry{madeFile("b", "x")}, "sub in/sub"},
		"an empty folder":     {[]madeEntry{madeOf('d', "sub"), madeFile("b", "x")}, "sub in/sub"},
		"deleted":             {[]madeEntry{madeOf('w', "sub")}, "in/sub"},
		"in a folder":         {[]madeEntry{madeOf('w', "in")}, "sub"},
		"in a moved folder":   {[]madeEntry{madeOf('w', "in"), madeOf('d', "out").from("in")}, "sub"},
		"itself moved":        {[]madeEntry{madeOf('w', "sub"), madeOf('d', "x").from("sub")}, "in/sub"},
		"filtered, untouched": {[]madeEntry{madeOf('w', "a")}, "sub in/sub"},
		"filtered":            {[]madeEntry{madeFile("new.psd", "x")}, "sub in/sub"}, // by a driver that is not configured
		"filtered and moved":  {[]madeEntry{madeFile("new.psd", "x"), madeOf('w', "old.psd")}, "sub in/sub"},
	} {
		c := madeCommit
		s, err := r.Snapshot(ctx, overlayOf(base, base, test.list...), c)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s.Pack.Close()
		got := treeText(t, r, s.Tree)
		for _, p := range []string{"sub", "in/sub"} {
			if has := strings.Contains("\n"+got+"\n", "160000 "+p+"\n"); has != slices.Contains(strings.Fields(test.want), p) {
				t.Errorf("%s: submodule %s: %v\n%s", name, p, has, got)
			}
		}
	}
}

func TestSnapshotRefusals(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	base := commit(t, r, "main", "One", "a", "1", "d/e", "2")
	e := func(kind byte, path string) worktree.OverlayEntry {
		return worktree.OverlayEntry{Kind: kind, Path: path}
	}
	for name, list := range map[string][]worktree.OverlayEntry{
		"no parent":       {e('f', "x/y")},
		"file as parent":  {e('f', "x"), e('f', "x/y")},
		"link as parent":  {e('l', "x"), e('f', "x/y")},
		"parent later":    {e('f', "x/y"), e('d', "x")},
		"absolute":        {e('f', "/x")},
		"empty":           {e('f', "")},
		"dot":             {e('f', ".")},
		"up":              {e('d', ".."), e('f', "../x")},
		"slash at end":    {e('d', "x"), e('f', "x/")},
		"NUL":             {e('f', "x\x00y")},
		"twice":           {e('f', "x"), e('f', "x")},
		"out of order":    {e('f', "y"), e('f', "x")},
		"unknown":         {e('?', "x")},
		"redirect up":     {{Kind: 'd', Path: "x", Redirect: "../../etc"}},
		"redirect around": {{Kind: 'd', Path: "x", Redirect: "/d"}},
	} {
		if s, err := r.Snapshot(ctx, worktree.Overlay{Lower: base, Indexed: base, Entries: list,
			Open: overlayOf(base, base).Open}, madeCommit); !errors.Is(err, gitd.ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	large := overlayOf(base, base, madeFile("x", ""))
	large.Entries[0].Size = int64(512<<20) + 1
	if _, err := r.Snapshot(ctx, large, madeCommit); !errors.Is(err, gitd.ErrTooLarge) {
		t.Error(err)
	}
	for _, o := range []worktree.Overlay{overlayOf("", base), overlayOf(base, "nothing"),
		overlayOf(base, "1234567890123456789012345678901234567890")} {
		if _, err := r.Snapshot(ctx, o, madeCommit); err == nil {
			t.Error("a commit that is not there")
		}
	}
	c := madeCommit
	c.Parents = []gitd.Hash{"1234567890123456789012345678901234567890"}
	if _, err := r.Snapshot(ctx, overlayOf(base, base, madeFile("x", "")), c); !errors.Is(err, gitd.ErrNotFound) {
		t.Error(err)
	}
	broken := errors.New("broken")
	o := overlayOf(base, base, madeFile("x", "1"))
	o.Open = func(context.Context, string) (io.ReadCloser, error) { return nil, broken }
	if _, err := r.Snapshot(ctx, o, madeCommit); !errors.Is(err, broken) {
		t.Error(err)
	}
	if packs, _ := filepath.Glob(r.Dir() + "/objects/pack/tmp_*"); len(packs) > 0 {
		t.Error("left: ", packs)
	}
}

// TestSnapshotWhileWriting changes files after they were listed. A file is taken in its
// listed state, or left for the next snapshot.
func TestSnapshotWhileWriting(t *testing.T) {
	r := newRepo(t)
	base := commit(t, r, "main", "One", "a", "1", "b", "2")
	now := map[string]string{"a": "12345", "b": "", "log": "one line\n"}
	cache := &worktree.BlobCache{}
	o := overlayOf(base, base, madeFile("a", "123"), madeFile("b", "now shorter"), madeFile("gone", "x"),
		madeFile("log", "one line\n"))
	o.Cache = cache
	o.Open = func(_ context.Context, path string) (io.ReadCloser, error) {
		data, ok := now[path]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return io.NopCloser(strings.NewReader(data)), nil
	}
	s, got := snap(t, r, o)
	if got != "100644 a\n100644 b\n100644 log" {
		t.Error(got)
	}
	for path, want := range map[string]string{"a": "123", "b": "", "log": "one line\n"} {
		if b, err := r.ReadFile(t.Context(), string(s.Commit), path, 0); string(b) != want || err != nil {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
}

func TestSnapshotReadsWhatChanged(t *testing.T) {
	r := newRepo(t)
	base := commit(t, r, "main", "One", "a", "1", "b", "2", "c", "3")
	cache := &worktree.BlobCache{}
	known := base
	step := func(hashed int, list ...madeEntry) {
		t.Helper()
		o := overlayOf(base, known, list...)
		o.Cache = cache
		s, _ := snap(t, r, o)
		if s.Hashed != hashed {
			t.Errorf("%d files were read, not %d", s.Hashed, hashed)
		}
		if s.Commit != "" {
			known = s.Commit
		}
	}
	step(2, madeFile("a", "one"), madeFile("new", "new"))
	step(0, madeFile("a", "one"), madeFile("new", "new"))
	step(0, madeFile("a", "one").exec(), madeFile("new", "new"))
	step(1, madeFile("a", "one"), madeFile("new", "newer"))
	step(1, madeFile("a", "one"), madeFile("dir/new", "newer"))
	// At another commit than the index's, the cache is not used.
	known = base
	step(2, madeFile("a", "one"), madeFile("dir/new", "newer"))
	cache = nil
	step(2, madeFile("a", "one"), madeFile("dir/new", "newer"))

	// A file that was written from outside need not be read.
	cache, known = &worktree.BlobCache{}, base
	o := overlayOf(base, base, madeFile("a", "1"))
	cache.Add(o.Entries[0], gitd.Hash(plumbing.ComputeHash(plumbing.BlobObject, []byte("1")).String()))
	step(0, madeFile("a", "1"))
}

func TestSnapshotFindsSecrets(t *testing.T) {
	ctx := t.Context()
	const secret = "correct-horse-battery"
	s := &gitd.Server{Root: t.TempDir()}
	s.Secrets, _ = redact.New(map[string]string{"HORSE": secret})
	if err := s.Open(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.Create(ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	base := commit(t, r, "main", "One", "a", "1", "known", "x "+secret, "d/"+secret, "y")
	before := gittest.ObjectFiles(t, r.Dir())
	c := madeCommit
	c.Parents = []gitd.Hash{base}
	for name, test := range map[string]struct {
		e       madeEntry
		message string
		want    string
	}{
		"file": {madeFile("d/x", "a\n"+secret+"\n"), "", `HORSE in "d/x"`},
		"large file": {madeFile("big", strings.Repeat("0123456789abcdef", pack.MaxInMemory/16)+secret), "",
			`HORSE in "big"`},
		"link":    {madeLink("l", "/"+secret), "", `HORSE in "l"`},
		"name":    {madeFile("e/"+secret+".txt", "1"), "", `HORSE in the name of a file in "e"`},
		"message": {madeFile("x", ""), "see " + secret, `HORSE in commit `},
		"folder":  {madeFile(secret+"/x", secret), "", `HORSE in "[secret HORSE]/x"; HORSE in the name of a file`},
	} {
		c.Message = test.message
		got, err := r.Snapshot(ctx, overlayOf(base, base, test.e), c)
		var texts []string
		for _, l := range got.Leaks {
			texts = append(texts, l.String())
		}
		if text := strings.Join(texts, "; "); !strings.HasPrefix(text, test.want) || err != nil || got.Commit != "" || got.Pack != nil {
			t.Errorf("%s: %q, %+v, %v", name, text, got, err)
		}
	}
	if after := gittest.ObjectFiles(t, r.Dir()); after != before {
		t.Error("something was written")
	}
	// An object that the repository has already is not lost if its file moves.
	got, err := r.Snapshot(ctx, overlayOf(base, base, madeOf('w', "known"), madeFile("other", "x "+secret)), madeCommit)
	if err != nil || len(got.Leaks) > 0 || got.Commit == "" {
		t.Errorf("%+v, %v", got, err)
	}
	got.Pack.Close()
}

// lines is a reader of many lines that are never in memory as a whole.
type lines struct{ at, size int64 }

const line = "line of text\r\n"

var block = strings.Repeat(line, 1000)

func (p *lines) Read(b []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	n := copy(b[:min(int64(len(b)), p.size-p.at)], block[p.at%int64(len(line)):])
	p.at += int64(n)
	return n, nil
}

func (p *lines) Close() error { return nil }

func TestSnapshotStreamsLargeFiles(t *testing.T) {
	r := newRepo(t)
	base := commit(t, r, "main", "One", ".gitattributes", "*.txt text=auto\n")
	const size = 9 << 20
	opened := map[string]int{}
	o := overlayOf(base, base, madeFile("x.txt", ""), madeFile("x.bin", ""))
	for i := range o.Entries {
		o.Entries[i].Size = size
	}
	o.Open = func(_ context.Context, path string) (io.ReadCloser, error) {
		opened[path]++
		return &lines{size: size}, nil
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, _ := snap(t, r, o)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > size/2 {
		t.Errorf("%d bytes of memory for files of %d", n, size)
	}
	want := map[string]string{}
	raw, err := os.Create(filepath.Join(t.TempDir(), "raw"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(raw, &lines{size: size}); err != nil {
		t.Fatal(err)
	}
	raw.Close()
	work := t.TempDir()
	git(t, work, "init", "-q")
	if err := os.WriteFile(filepath.Join(work, ".gitattributes"), []byte("*.txt text=auto\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path := range opened {
		want[path] = git(t, work, "hash-object", "--path="+path, raw.Name())
	}
	for _, c := range s.Changed {
		if string(c.New) != want[c.Path] {
			t.Errorf("%s is %s, by git %s", c.Path, c.New, want[c.Path])
		}
	}
	if len(s.Changed) != 2 || opened["x.bin"] != 1 || opened["x.txt"] != 2 {
		t.Errorf("%+v, opened %v", s.Changed, opened)
	}
	// The same content is read again, and not written.
	o.Indexed = s.Commit
	if s, _ := snap(t, r, o); s.Commit != "" || s.Hashed != 2 {
		t.Errorf("%+v", s)
	}
}

// TestSnapshotPack checks the pack of a snapshot. A repository with the parent commit gets
// the new commit by it.
func TestSnapshotPack(t *testing.T) {
	server := newServer(t)
	server.Signer = newSigner(t)
	r, err := server.Create(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	base := commit(t, r, "main", "One", "a", "1", "dir/b", "2", "dir/sub/c", "3")
	// The repository has the new content already. The work tree's own repository does
	// not.
	commit(t, r, "other", "Other", "new", "content", "dir/sub/c", "changed")
	own := t.TempDir()
	git(t, own, "clone", "-q", "--bare", "--single-branch", "-b", "main", r.Dir(), ".")
	s, _ := snap(t, r, overlayOf(base, base, madeFile("new", "content"), madeOf('w', "dir"),
		madeOf('d', "moved").from("dir"), madeFile("moved/sub/c", "changed")))
	for ext, from := range map[string]io.Reader{".pack": s.Pack.Pack, ".idx": s.Pack.Index} {
		data, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(own, "objects", "pack", "pack-"+s.Pack.Name+ext), data, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	git(t, own, "update-ref", "refs/heads/main", string(s.Commit))
	if out := git(t, own, "fsck", "--strict", "--full"); strings.Contains(out, "missing") {
		t.Error(out)
	}
	if out, err := verified(t, r.Dir(), server.Signer, s.Commit); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if err := r.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/x", New: s.Commit}); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotOfMovedLines renames a folder with files that were checked out with CRLF.
// The files still have CRLF, and the attributes of the new place apply.
func TestSnapshotOfMovedLines(t *testing.T) {
	r := newRepo(t)
	base := commit(t, r, "main", "One", ".gitattributes", "/a/*.bat eol=crlf\n/text/* text\n", "a/x.bat", "1\n2\n",
		"a/y", "1\n")
	for to, want := range map[string]string{"b": "1\r\n2\r\n", "text": "1\n2\n"} {
		o := overlayOf(base, base, madeOf('w', "a"), madeOf('d', to).from("a"))
		o.Cache = &worktree.BlobCache{}
		s, got := snap(t, r, o)
		if b, err := r.ReadFile(t.Context(), string(s.Commit), to+"/x.bat", 0); string(b) != want || err != nil {
			t.Errorf("%s: %q, %v\n%s", to, b, err, got)
		}
		o.Indexed = s.Commit
		if again, _ := snap(t, r, o); again.Commit != "" {
			t.Errorf("%s: %+v", to, again)
		}
	}
}

func TestVerbatim(t *testing.T) {
	r := newRepo(t)
	base := commit(t, r, "main", "One", ".gitattributes",
		"* text=auto\n*.sh eol=lf\n*.bat eol=crlf\n*.psd filter=lfs\n*.id ident\n[attr]wide working-tree-encoding=UTF-16\n",
		"a", "1", "x.bat", "1\n", "d/.gitattributes", "*.bat -text\n*.w wide\n")
	for path, plain := range map[string]bool{"a": true, "x.sh": true, "d/x.bat": true, "not/there": true, "x.w": true,
		"d/x.psd": true, "x.bat": false, "not/there.bat": false, "x.id": false, "d/x.w": false} {
		if err := r.Verbatim(t.Context(), base, []string{"a", path}); (err == nil) != plain || err != nil &&
			!errors.Is(err, worktree.ErrNeedsGit) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// FuzzOverlay makes overlays of arbitrary bytes. The result is either a commit that git
// finds valid, or one of the kinds of error.
func FuzzOverlay(f *testing.F) {
	f.Add([]byte("d\x00x\x00f\x00x/y\x00w\x00a\x00"), "a/b")
	f.Add([]byte("d\x01x\x00l\x00x/y\x00f\x00x/.gitignore\x00"), "*\n!y")
	f.Add([]byte("d\x02d\x00f\x00d/.gitattributes\x00f\x04d/x\x00"), "* text=auto eol=crlf\n\r\n")
	s := &gitd.Server{Root: f.TempDir()}
	if err := s.Open(f.Context()); err != nil {
		f.Fatal(err)
	}
	r, err := s.Create(f.Context(), "r")
	if err != nil {
		f.Fatal(err)
	}
	base := commit(f, r, "main", "One", "a", "1", "d/e", "2", "d/f/g", "3\r\n", ".gitattributes", "*.t text\n", "x.t", "1")
	f.Fuzz(func(t *testing.T, data []byte, content string) {
		o := worktree.Overlay{Lower: base, Indexed: base, Open: func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(content)), nil
		}}
		for len(data) > 2 && len(o.Entries) < 1000 {
			kind, flags := data[0], data[1]
			path, rest, _ := bytes.Cut(data[2:], []byte{0})
			e := worktree.OverlayEntry{Kind: kind, Path: string(path), Size: int64(len(content)), Link: content,
				Opaque: flags&1 != 0, Exec: flags&4 != 0}
			if flags&2 != 0 {
				e.Redirect = content
			}
			if flags&8 != 0 && len(rest) >= 8 {
				e.Size = int64(binary.BigEndian.Uint64(rest))
			}
			o.Entries = append(o.Entries, e)
			data = rest
		}
		got, err := r.Snapshot(t.Context(), o, madeCommit)
		switch {
		case err == nil:
			got.Pack.Close()
			if got.Commit != "" {
				if out, err := gittest.Try(r.Dir(), "rev-list", "--objects", "--quiet", string(got.Commit)); err != nil {
					t.Error(err, out)
				}
			}
		case !errors.Is(err, worktree.ErrNeedsGit) && !errors.Is(err, gitd.ErrInvalid) &&
			!errors.Is(err, gitd.ErrTooLarge) && !errors.Is(err, gitd.ErrConflict):
			t.Error(err)
		}
	})
}

// BenchmarkSnapshot commits three changed files of a tree of 27,000, repeatedly.
func BenchmarkSnapshot(b *testing.B) {
	r := newRepo(b)
	c := gitd.NewCommit{Author: alice}
	for n := range 27_000 {
		c.Put = append(c.Put, gitd.File{Path: fmt.Sprintf("packages/p%d/src/d%d/f%d.js", n/500, n/50%10, n%50),
			Content: fmt.Append(nil, n)})
	}
	c.Put = append(c.Put, gitd.File{Path: ".gitignore", Content: []byte("node_modules\n*.log\n/dist/\n")},
		gitd.File{Path: ".gitattributes", Content: []byte("* text=auto\n")})
	base, err := r.WriteCommit(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	for _, ignored := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("%d-ignored", ignored), func(b *testing.B) {
			known, cache := base, &worktree.BlobCache{}
			n := 0
			for b.Loop() {
				n++
				list := []madeEntry{madeFile("packages/p1/src/d1/f1.js", fmt.Sprint("x", n)),
					madeFile("packages/p2/src/d1/f1.js", fmt.Sprint("y", n)),
					madeFile("packages/p3/new.js", fmt.Sprint("z", n))}
				b.StopTimer()
				for i := range ignored {
					list = append(list, madeFile(fmt.Sprintf("node_modules/m%d/f%d", i/100, i), ""))
				}
				o := overlayOf(base, known, list...)
				for i := range o.Entries {
					o.Entries[i].CTime = int64(n)
				}
				o.Cache = cache
				b.StartTimer()
				c := madeCommit
				c.Parents = []gitd.Hash{known}
				s, err := r.Snapshot(b.Context(), o, c)
				if err != nil || s.Hashed != 3 {
					b.Fatal(s, err)
				}
				known = s.Commit
				if err := s.Pack.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
