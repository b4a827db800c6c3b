package worktree_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/history/historytest"
	"github.com/ramus-dev/ramus/gitd/pathspec/pathspectest"
	"github.com/ramus-dev/ramus/gitd/worktree"
	"golang.org/x/sys/unix"
)

// overlaid is a work tree on a real overlay, in a mount namespace of this test's
// thread. It has a repository of stock git as well, which makes the commit to compare
// with.
type overlaid struct {
	t                  testing.TB
	dir                string // contains all folders below
	lower, upper, tree string
	oracle, index      string
	objects            string // folder that git writes to, of the served repository or another
	keeper             *layer.Local
	clock              int64 // of the files' times, in whole seconds, which git compares
	mounted            bool
}

// newOverlaid must be called by the goroutine that works in the tree.
func newOverlaid(t testing.TB, r *gitd.Repo) *overlaid {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cannot run here: overlays need root")
	}
	// The thread ends with its goroutine, and the namespace with the thread.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skip("cannot run here: ", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	o := &overlaid{t: t, dir: t.TempDir(), clock: 1_600_000_000}
	o.lower, o.upper, o.tree = o.dir+"/lower", o.dir+"/upper", o.dir+"/tree"
	o.oracle, o.index = o.dir+"/oracle", o.dir+"/index"
	o.keeper = layer.NewLocal(o.dir)
	git(t, "/", "init", "-q", "--bare", o.oracle)
	if err := os.WriteFile(o.oracle+"/objects/info/alternates", []byte(r.Dir()+"/objects\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.unmount)
	return o
}

func (o *overlaid) unmount() {
	if o.mounted {
		o.mounted = false
		if err := unix.Unmount(o.tree, 0); err != nil {
			o.t.Error(err)
		}
	}
}

// begin puts an empty overlay over a fresh checkout of a commit.
func (o *overlaid) begin(commit gitd.Hash) {
	o.t.Helper()
	o.unmount()
	for _, d := range []string{o.lower, o.upper, o.dir + "/work", o.tree} {
		if err := errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o755)); err != nil {
			o.t.Fatal(err)
		}
	}
	os.Remove(o.index)
	o.git(o.lower, "read-tree", string(commit))
	o.git(o.lower, "checkout-index", "-q", "-a", "-u")
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on,metacopy=off,index=off,xino=off", o.lower,
		o.upper, o.dir+"/work")
	if err := unix.Mount("overlay", o.tree, "overlay", 0, data); err != nil {
		o.t.Skip("cannot run here: no overlay with redirect_dir: ", err)
	}
	o.mounted = true
}

// git runs stock git in a work tree. An error ends the test.
func (o *overlaid) git(tree string, args ...string) string {
	o.t.Helper()
	out, err := o.tryGit(tree, args...)
	if err != nil {
		o.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

func (o *overlaid) tryGit(tree string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C",
		"GIT_DIR="+o.oracle, "GIT_WORK_TREE="+tree, "GIT_INDEX_FILE="+o.index, "GIT_OBJECT_DIRECTORY="+o.objects)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	// git reads files that are as new as its index. Whether they are is random.
	future := time.Now().Add(time.Hour)
	if err := os.Chtimes(o.index, future, future); err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), err
}

// addAll returns the tree that git add -A makes.
func (o *overlaid) addAll() (gitd.Hash, error) {
	if _, err := o.tryGit(o.tree, "add", "-A"); err != nil {
		return "", err
	}
	tree, err := o.tryGit(o.tree, "write-tree")
	return gitd.Hash(tree), err
}

// overlay returns the argument of Snapshot.
func (o *overlaid) overlay(under, known gitd.Hash, cache *worktree.BlobCache) worktree.Overlay {
	o.t.Helper()
	list, err := o.keeper.Changes(context.Background(), o.upper, 100_000)
	if err != nil {
		o.t.Fatal(err)
	}
	out := worktree.Overlay{Lower: under, Indexed: known, Cache: cache,
		Open: func(ctx context.Context, path string) (io.ReadCloser, error) {
			return o.keeper.Open(ctx, o.upper, path)
		}}
	for _, c := range list {
		out.Entries = append(out.Entries,
			worktree.OverlayEntry{Path: c.Path, Kind: byte(c.Kind), Exec: c.Exec, Size: c.Size, Inode: c.Inode,
				MTime: c.MTime, CTime: c.CTime, Link: c.Link, Opaque: c.Opaque, Redirect: c.Redirect})
	}
	return out
}

// touch gives a file a time that no file had before.
func (o *overlaid) touch(path string) {
	o.clock++
	t := unix.NsecToTimeval(o.clock * 1e9)
	_ = unix.Lutimes(filepath.Join(o.tree, path), []unix.Timeval{t, t}) // it may be gone
}

// list returns all files, links and folders of the tree.
func (o *overlaid) list() (files, folders []string) {
	folders = []string{""}
	err := filepath.WalkDir(o.tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == o.tree {
			return err
		}
		p = p[len(o.tree)+1:]
		if d.IsDir() {
			folders = append(folders, p)
		} else {
			files = append(files, p)
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return files, folders
}

// mutation changes a work tree at random.
type mutation struct {
	*overlaid
	pathspectest.Random
	plain bool // nothing that git refuses to send
	log   []string
}

// step makes one change. It may fail.
func (m *mutation) step() {
	files, folders := m.list()
	in := filepath.Join(m.tree, m.Pick(folders))
	fresh := filepath.Join(in, m.Name())
	some := fresh
	if m.plain {
		files = slices.DeleteFunc(files, func(p string) bool { return strings.HasPrefix(filepath.Base(p), ".gita") })
	}
	if len(files) > 0 {
		some = filepath.Join(m.tree, m.Pick(files))
	}
	folder := filepath.Join(m.tree, m.Pick(folders))
	write := func(p string, data []byte) {
		if info, err := os.Lstat(p); err == nil && !info.Mode().IsRegular() {
			os.RemoveAll(p)
		}
		if m.IntN(3) == 0 {
			os.Remove(p)
		}
		os.WriteFile(p, data, 0o644)
		m.touch(p[len(m.tree)+1:])
		m.log = append(m.log, fmt.Sprintf("write %q %q", p[len(m.tree)+1:], data))
	}
	note := func(what, a, b string) {
		m.log = append(m.log, fmt.Sprintf("%s %q %q", what, strings.TrimPrefix(a, m.tree), strings.TrimPrefix(b, m.tree)))
	}
	switch m.IntN(26) {
	case 0, 1, 2, 3:
		write(fresh, m.Content())
	case 4, 5, 6:
		write(some, m.Content())
	case 7:
		os.Remove(some)
		note("rm", some, "")
	case 8, 9:
		if folder != m.tree {
			os.RemoveAll(folder)
			note("rm -r", folder, "")
			if m.IntN(2) == 0 { // an opaque one takes its place
				os.Mkdir(folder, 0o755)
				note("mkdir", folder, "")
			}
		}
	case 10, 11, 12, 13, 14:
		if folder != m.tree && !strings.HasPrefix(fresh, folder+"/") {
			err := os.Rename(folder, fresh)
			note("rename", folder, fmt.Sprint(fresh, err))
		}
	case 15:
		to := fresh
		if m.IntN(3) == 0 && len(files) > 0 {
			to = filepath.Join(m.tree, m.Pick(files))
		}
		// If a pipe replaced one of git's own files, git would wait for its content.
		if info, err := os.Lstat(some); err == nil && info.Mode()&os.ModeNamedPipe != 0 && strings.HasPrefix(filepath.Base(to), ".git") {
			return
		}
		err := os.Rename(some, to)
		m.touch(strings.TrimPrefix(to, m.tree+"/"))
		note("rename", some, fmt.Sprint(to, err))
	case 16:
		os.RemoveAll(fresh)
		os.Symlink(m.Pick([]string{"a", "../x", "/etc/passwd", "\xff", "build/", ".git"}), fresh)
		m.touch(strings.TrimPrefix(fresh, m.tree+"/")) // another of the same length is another to git
		note("link", fresh, "")
	case 17:
		if info, err := os.Lstat(some); err == nil && info.Mode().IsRegular() {
			os.Chmod(some, info.Mode()^0o111)
			m.touch(some[len(m.tree)+1:])
			note("chmod", some, "")
		}
	case 18:
		os.RemoveAll(some) // a folder in a file's place
		os.Mkdir(some, 0o755)
		write(filepath.Join(some, m.Name()), m.Content())
	case 19:
		if folder != m.tree { // a file in a folder's place
			os.RemoveAll(folder)
			write(folder, m.Content())
		}
	case 20:
		os.MkdirAll(filepath.Join(fresh, m.Name()), 0o755)
		note("mkdir", fresh, "")
		if m.IntN(2) == 0 {
			write(filepath.Join(fresh, m.Name()), m.Content())
		}
	case 21:
		if info, err := os.Lstat(fresh); err != nil || !info.IsDir() {
			os.Remove(fresh)
			unix.Mkfifo(fresh, 0o644)
			note("pipe", fresh, "")
		}
	case 22, 23:
		write(filepath.Join(in, ".gitignore"), m.Gitignore())
	case 24:
		write(filepath.Join(in, ".gitattributes"), m.Gitattributes())
	case 25:
		switch kind := m.IntN(12); {
		case kind == 0 && !m.plain:
			write(filepath.Join(in, m.Pick([]string{".GIT", "git~1", ".git ", ".g\u200cit", ".gitmodules", "gitmod~1",
				".GitAttributes"})), m.Content())
		case kind == 1:
			p := filepath.Join(in, m.Pick([]string{".gitignore", ".gitattributes"}))
			os.RemoveAll(p)
			note("rm", p, "")
			if m.IntN(3) == 0 && !m.plain {
				os.Symlink("a.txt", p)
				m.touch(strings.TrimPrefix(p, m.tree+"/"))
				note("link", p, "")
			}
		default:
			m.touch(strings.TrimPrefix(some, m.tree+"/"))
			note("touch", some, "")
		}
	}
}

// TestSnapshotLikeGit changes work trees on real overlays at random. It compares the
// tree of Snapshot with the tree of git add -A.
func TestSnapshotLikeGit(t *testing.T) {
	states := 40
	if os.Getenv("RAMUS_TEST") == "full" {
		states = 2000
	}
	seed := uint64(7)
	if s := os.Getenv("RAMUS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	r := newRepo(t)
	o := newOverlaid(t, r)
	empty, err := r.WriteCommit(ctx, gitd.NewCommit{Author: alice})
	if err != nil {
		t.Fatal(err)
	}
	var done, portable, refused, renamed int
	for tree := uint64(0); done < states && !t.Failed(); tree++ {
		m := &mutation{overlaid: o, Random: pathspectest.Random{Rand: rand.New(rand.NewPCG(seed, tree))}, plain: true}
		// git itself makes the commit of the base.
		o.objects = r.Dir() + "/objects"
		o.begin(empty)
		for range 10 + m.IntN(40) {
			m.step()
		}
		base, err := o.addAll()
		if err != nil {
			continue
		}
		under := gitd.Hash(o.git("/", "-c", "user.name=O", "-c", "user.email=o@example.com", "commit-tree", "-m",
			"base", string(base)))
		o.objects = o.oracle + "/objects"
		o.begin(under)
		m.log, m.plain = nil, false
		known, knownTree := under, base
		commits := []gitd.Hash{known}
		cache := &worktree.BlobCache{}
		for round := range 6 {
			for range 1 + m.IntN(8) {
				m.step()
			}
			if m.IntN(8) == 0 { // the index is set to another commit
				known = commits[m.IntN(len(commits))]
				knownTree = gitd.Hash(o.git("/", "rev-parse", string(known)+"^{tree}"))
				o.git(o.tree, "read-tree", "-m", "-i", string(known))
				m.log = append(m.log, "reset to "+string(known))
			}
			over := o.overlay(under, known, cache)
			if m.IntN(4) == 0 {
				cache = &worktree.BlobCache{}
				over.Cache = cache
				o.forget(over.Entries, known)
				m.log = append(m.log, "forget")
			}
			m.log = append(m.log, fmt.Sprintf("-- %d", round))
			want, gitErr := o.addAll()
			s, err := r.Snapshot(ctx, over, gitd.NewCommit{Parents: []gitd.Hash{known}, Author: alice, Message: "m",
				When: time.Unix(1700000000, 0)})
			done++
			if errors.Is(err, worktree.ErrNeedsGit) {
				portable++
				if gitErr != nil {
					refused++
				}
				if testing.Verbose() {
					t.Logf("tree %d: %v (git: %v)", tree, err, gitErr)
				}
				break
			}
			if err != nil || gitErr != nil || s.Tree != want {
				t.Errorf("tree %d, round %d: tree %s, %v; git's %s, %v\n%s", tree, round, s.Tree, err, want, gitErr,
					strings.Join(m.log, "\n"))
				for _, e := range over.Entries {
					t.Logf("%+v", e)
				}
				if s.Tree != "" {
					s.Pack.Close()
					t.Log("\n", o.git(o.tree, "diff-tree", "-r", string(want), string(s.Tree)))
				}
				break
			}
			for _, e := range over.Entries {
				if e.Redirect != "" {
					renamed++
				}
			}
			if got, want := historytest.FormatChanges(s.Changed),
				o.git(o.tree, "diff-tree", "-r", "-z", "--no-renames", string(knownTree), string(want)); got != want {
				t.Errorf("tree %d: changed\n%q\ngit\n%q", tree, got, want)
			}
			if s.Commit == "" {
				if s.Tree != knownTree || s.Pack != nil || len(s.Changed) > 0 {
					t.Errorf("tree %d: no commit, but %+v", tree, s)
				}
				continue
			}
			if err := s.Pack.Close(); err != nil {
				t.Error(err)
			}
			known, knownTree = s.Commit, s.Tree
			commits = append(commits, known)
			// The end of the test checks that every reachable object exists.
			if err := r.Update(ctx, gitd.RefUpdate{Name: fmt.Sprintf("refs/heads/t%d", tree), New: known}); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d states: %d left to git, which refused %d of them; %d renamed folders", done, portable, refused, renamed)
	if portable > done/5 || renamed == 0 {
		t.Errorf("of %d states %d were left to git, and there were %d renamed folders", done, portable, renamed)
	}
}

// forget removes from the index the cached state of the overlay's files.
func (o *overlaid) forget(entries []worktree.OverlayEntry, known gitd.Hash) {
	tracked := strings.Split(o.git(o.tree, "ls-tree", "-r", "-z", string(known)), "\x00")
	in := map[string]bool{}
	for _, e := range entries {
		in[e.Path] = e.Kind == 'f'
	}
	var lines strings.Builder
	for _, line := range tracked {
		if _, path, ok := strings.Cut(line, "\t"); ok && in[path] {
			lines.WriteString(line + "\x00")
		}
	}
	file := filepath.Join(o.dir, "info")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		o.t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `exec git update-index -z --index-info <"$0"`, file)
	cmd.Dir = o.tree
	cmd.Env = append(os.Environ(), "GIT_DIR="+o.oracle, "GIT_WORK_TREE="+o.tree, "GIT_INDEX_FILE="+o.index)
	if out, err := cmd.CombinedOutput(); err != nil {
		o.t.Fatalf("%v: %s", err, out)
	}
	future := time.Now().Add(time.Hour)
	os.Chtimes(o.index, future, future)
}
