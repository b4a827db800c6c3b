package transfer_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// dial returns a connection of SFTP to the files of this machine, as to those of a container.
func dial(t *testing.T) net.Conn {
	near, far := net.Pipe()
	server, err := sftp.NewServer(far)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve() // until the client is closed
		far.Close()
	}()
	t.Cleanup(func() {
		near.Close()
		<-done
	})
	return near
}

// place is a container whose work tree is a folder.
func place(t *testing.T) transfer.Container {
	open := func(context.Context) (*sftp.Client, error) {
		conn := dial(t)
		return sftp.NewClientPipe(conn, conn)
	}
	return transfer.Container{Open: open, Root: t.TempDir()}
}

func begin(t *testing.T, s *transfer.Spool, files map[string]string) *transfer.Upload {
	t.Helper()
	if s.Dir == "" {
		s.Dir = t.TempDir()
	}
	u := s.Begin()
	t.Cleanup(func() { u.Close() })
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := u.Add(name, strings.NewReader(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// keep places an upload for good.
func keep(t *testing.T, u *transfer.Upload, to transfer.Container) {
	t.Helper()
	placed, err := u.Place(t.Context(), to)
	if err == nil {
		err = placed.Keep(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the files below a folder.
func read(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, p)
		if d.Type()&fs.ModeSymlink != 0 {
			all[name] = "link"
			return nil
		}
		b, err := os.ReadFile(p)
		all[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content),
			0o755)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPlace(t *testing.T) {
	to := place(t)
	write(t, to.Root, map[string]string{"docs/old.txt": "old", "README": "read me"})
	u := begin(t, &transfer.Spool{}, map[string]string{"a.txt": "a", "deep/er/b.bin": "\x00\x01", "old.txt": "new",
		"empty": ""})
	u.Folder, u.Replace = "docs", true
	keep(t, u, to)
	want := map[string]string{"docs/a.txt": "a", "docs/deep/er/b.bin": "\x00\x01", "docs/old.txt": "new",
		"docs/empty": "", "README": "read me"}
	if got := read(t, to.Root); !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if info, err := os.Stat(filepath.Join(to.Root, "docs/old.txt")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the mode of a file that is replaced: %v, %v", info, err)
	}
}

// TestUndo undoes an upload that was placed, after its context has ended. The work tree is as before.
func TestUndo(t *testing.T) {
	to := place(t)
	before := map[string]string{"docs/old.txt": "old", ".git/logs/HEAD": "log"}
	write(t, to.Root, before)
	u := begin(t, &transfer.Spool{}, map[string]string{"docs/old.txt": "new", "docs/a.txt": "a", "deep/er/b": "b"})
	u.Replace = true
	ctx, cancel := context.WithCancel(t.Context())
	placed, err := u.Place(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, to.Root); got["docs/old.txt"] != "new" || got["docs/a.txt"] != "a" || got["deep/er/b"] != "b" {
		t.Errorf("%q", got)
	}
	cancel()
	if err := placed.Undo(ctx); err != nil {
		t.Fatal(err)
	}
	if got := read(t, to.Root); !maps.Equal(got, before) {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(filepath.Join(to.Root, "deep")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a new folder stays")
	}
}

// cutConn ends a connection in place of the answer to a request that names an operation for the n-th time.
type cutConn struct {
	net.Conn
	operation []byte
	n         int
	cut       atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.operation) {
		if c.n--; c.n == 0 {
			c.cut.Store(true)
		}
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.cut.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// TestPlaceUnanswered loses the connection when a file has its name, and before the answer says so. The work tree is as before.
func TestPlaceUnanswered(t *testing.T) {
	for _, c := range []struct {
		operation string
		n         int
	}{{"hardlink@", 1}, {"hardlink@", 2}, {"posix-rename@", 1}, {"hardlink@", 3}} {
		to := place(t)
		before := map[string]string{"b": "old", ".git/HEAD": "ref"}
		write(t, to.Root, before)
		open, first := to.Open, true
		to.Open = func(ctx context.Context) (*sftp.Client, error) {
			if !first {
				return open(ctx)
			}
			first = false
			conn := &cutConn{Conn: dial(t), operation: []byte(c.operation), n: c.n}
			return sftp.NewClientPipe(conn, conn)
		}
		u := begin(t, &transfer.Spool{}, map[string]string{"a": "a", "b": "new", "docs/c": "c"})
		u.Replace = true
		if _, err := u.Place(t.Context(), to); err == nil {
			t.Errorf("%v: it was placed", c)
		}
		if got := read(t, to.Root); !maps.Equal(got, before) {
			t.Errorf("%v: %q", c, got)
		}
	}
}

// TestPlaceWithoutLogs places an upload in a work tree whose .git/logs is missing, and where it is no folder.
func TestPlaceWithoutLogs(t *testing.T) {
	to := place(t)
	write(t, to.Root, map[string]string{".git/HEAD": "ref"})
	placed, err := begin(t, &transfer.Spool{}, map[string]string{"docs/a": "a"}).Place(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{".git/logs/.ramus-upload-*", ".ramus-upload-*"} {
		found, err := filepath.Glob(filepath.Join(to.Root, pattern))
		if want := strings.HasPrefix(pattern, ".git/"); err != nil || len(found) > 0 != want {
			t.Errorf("%s: %q, %v", pattern, found, err)
		}
	}
	if err := placed.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{".git/HEAD": "ref", "docs/a": "a"}
	if got := read(t, to.Root); !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}

	to = place(t)
	want = map[string]string{".git/HEAD": "ref", ".git/logs": "a file"}
	write(t, to.Root, want)
	_, err = begin(t, &transfer.Spool{}, map[string]string{"a": "a"}).Place(t.Context(), to)
	if err == nil || !strings.Contains(err.Error(), ".git/logs") {
		t.Error(err)
	}
	if got := read(t, to.Root); !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestPlaceRefuses tries places that an upload must not take. The work tree stays as it was.
func TestPlaceRefuses(t *testing.T) {
	outside := t.TempDir()
	for _, c := range []struct {
		name, folder string
		files        map[string]string
		kind         error
		why          string
	}{
		{"existing file", "", map[string]string{"README": "x", "fine": "y"}, gitd.ErrExists, "there is such a file"},
		{"folder in place of a file", "", map[string]string{"docs": "x"}, gitd.ErrInvalid, "a folder has this name"},
		{"file in place of a folder", "", map[string]string{"README/x": "x"}, gitd.ErrInvalid, `"README" is a file`},
		{"link in place of a folder", "", map[string]string{"out/x": "x"}, gitd.ErrInvalid, `"out" is a link`},
		{"link in the folder", "out/deeper", map[string]string{"x": "x"}, gitd.ErrInvalid, `"out" is a link`},
		{"link in place of a file", "", map[string]string{"way": "x"}, gitd.ErrInvalid, "a link or a special file"},
		{"case", "", map[string]string{"ReadMe": "x"}, gitd.ErrExists, `"README" is there`},
		{"case of a folder", "DOCS", map[string]string{"x": "x"}, gitd.ErrInvalid, `"docs" is there`},
		{"file of the branch alone", "", map[string]string{"gone": "x"}, gitd.ErrExists, "the branch has such a file"},
		{"too large for a commit", "", map[string]string{"large": "0123456789"}, gitd.ErrInvalid, "10 bytes"},
		{"folders together", strings.Repeat("d/", 20) + "d", map[string]string{strings.Repeat("e/", 20) + "x": "x"},
			gitd.ErrInvalid, "more than 32 folders deep"},
		{"bytes together", strings.Repeat(strings.Repeat("d", 200)+"/", 4) + "d",
			map[string]string{strings.Repeat("e", 240): "x"}, gitd.ErrInvalid, "longer than 1024 bytes"},
		{"folder outside", "../x", map[string]string{"x": "x"}, gitd.ErrInvalid, "the folder cannot be used"},
		{"nothing", "", nil, gitd.ErrInvalid, "choose a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := place(t)
			write(t, to.Root, map[string]string{"README": "read me", "docs/a": "a"})
			for name, target := range map[string]string{"out": outside, "way": filepath.Join(outside, "made")} {
				if err := os.Symlink(target, filepath.Join(to.Root, name)); err != nil {
					t.Fatal(err)
				}
			}
			to.Names = func(_ context.Context, folder string) ([]string, error) {
				if folder == "" {
					return []string{"README", "docs", "gone"}, nil
				}
				return nil, nil
			}
			to.Allow = func(_ string, size int64) error {
				if size == 10 {
					return errors.New("10 bytes are too many")
				}
				return nil
			}
			before := read(t, to.Root)
			u := begin(t, &transfer.Spool{}, c.files)
			u.Folder = c.folder
			_, err := u.Place(t.Context(), to)
			var refused *transfer.Refused
			if !errors.As(err, &refused) || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %v with %q", err, c.kind, c.why)
			}
			if got := read(t, to.Root); !maps.Equal(got, before) {
				t.Errorf("the work tree changed: %q", got)
			}
			if got := read(t, outside); len(got) > 0 {
				t.Errorf("outside: %q", got)
			}
		})
	}
}

// TestPlaceTidies has an upload fail at its last step, because a folder appears where a file was to be. The work tree
// is as before.
func TestPlaceTidies(t *testing.T) {
	to := place(t)
	write(t, to.Root, map[string]string{"z/keep": "keep", "a": "old", ".git/logs/HEAD": "log"})
	to.Names = func(_ context.Context, folder string) ([]string, error) {
		if folder == "z" {
			write(t, to.Root, map[string]string{"z/new/inside": "in the way"})
		}
		return nil, nil
	}
	u := begin(t, &transfer.Spool{}, map[string]string{"a": "changed", "b/c/d": "d", "z/new": "new"})
	u.Replace = true
	if _, err := u.Place(t.Context(), to); err == nil {
		t.Fatal("it was placed")
	}
	want := map[string]string{"z/keep": "keep", "a": "old", ".git/logs/HEAD": "log", "z/new/inside": "in the way"}
	if got := read(t, to.Root); !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"b", ".git/logs/.ramus-upload-*"} {
		if left, _ := filepath.Glob(filepath.Join(to.Root, name)); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// TestPlaceLate has a file appear where an upload that may not replace one is about to put its own.
func TestPlaceLate(t *testing.T) {
	to := place(t)
	write(t, to.Root, map[string]string{"z/keep": "keep"})
	to.Names = func(_ context.Context, folder string) ([]string, error) {
		if folder == "z" {
			write(t, to.Root, map[string]string{"z/new": "theirs"})
		}
		return nil, nil
	}
	if _, err := begin(t, &transfer.Spool{}, map[string]string{"a": "a", "z/new": "ours"}).Place(t.Context(),
		to); err == nil {
		t.Error("it was placed")
	}
	if got := read(t, to.Root); !maps.Equal(got, map[string]string{"z/keep": "keep", "z/new": "theirs"}) {
		t.Errorf("%q", got)
	}
}

// TestPlaceHostileGit has .git be a link. The files that are not complete are in the work tree then, and go.
func TestPlaceHostileGit(t *testing.T) {
	to, outside := place(t), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(to.Root, ".git")); err != nil {
		t.Fatal(err)
	}
	keep(t, begin(t, &transfer.Spool{}, map[string]string{"a": "a"}), to)
	if got := read(t, to.Root); !maps.Equal(got, map[string]string{"a": "a", ".git": "link"}) {
		t.Errorf("%q", got)
	}
	if got := read(t, outside); len(got) > 0 {
		t.Errorf("outside: %q", got)
	}
}

// TestPlaceEnds ends the context of an upload before it begins.
func TestPlaceEnds(t *testing.T) {
	to := place(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u := begin(t, &transfer.Spool{}, map[string]string{"a": "a"})
	if _, err := u.Place(ctx, to); err == nil {
		t.Error("it was placed")
	}
	if got := read(t, to.Root); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestAdd(t *testing.T) {
	secrets := new(redact.Secrets)
	secrets.Add(map[string]string{"DEPLOY_KEY": "correct-horse-battery"})
	for _, c := range []struct {
		name  string
		spool transfer.Spool
		files map[string]string
		kind  error
		why   []string
	}{
		{name: "names", files: map[string]string{"../up": "x", "a/.GIT/config": "y", "fine": "z"},
			kind: gitd.ErrInvalid,
			why:  []string{`"../up"`, `".GIT"`}},
		{name: "case", files: map[string]string{"A.txt": "x", "a.TXT": "y"}, kind: gitd.ErrInvalid,
			why: []string{"one name"}},
		{name: "file and folder", files: map[string]string{"a": "x", "a/b": "y"}, kind: gitd.ErrInvalid,
			why: []string{"one name"}},
		{name: "folders of different case", files: map[string]string{"A/b": "x", "a/c": "y"}, kind: gitd.ErrInvalid,
			why: []string{"one name"}},
		{name: "bytes", spool: transfer.Spool{MaxBytes: 4}, files: map[string]string{"a": "123", "b": "45", "c": "6"},
			kind: gitd.ErrTooLarge, why: []string{"together"}},
		{name: "files", spool: transfer.Spool{MaxFiles: 2}, files: map[string]string{"a": "", "b": "", "c": ""},
			kind: gitd.ErrTooLarge, why: []string{"at most 2 files"}},
		{name: "secret in a name", spool: transfer.Spool{Secrets: secrets},
			files: map[string]string{"correct-horse-battery": ""},
			kind:  gitd.ErrInvalid, why: []string{"the name of a file has the value of a secret"}},
		{name: "secret", spool: transfer.Spool{Secrets: secrets},
			files: map[string]string{".env": "KEY=correct-horse-battery\n"},
			kind:  gitd.ErrInvalid, why: []string{"the secret DEPLOY_KEY"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := begin(t, &c.spool, c.files).Check()
			if !errors.Is(err, c.kind) {
				t.Fatalf("%v", err)
			}
			for _, want := range c.why {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "horse") {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
	folder := begin(t, &transfer.Spool{Secrets: secrets}, map[string]string{"a": ""})
	for range 2 { // a second look finds the same
		folder.Folder = "correct-horse-battery"
		if err := folder.Check(); err == nil || err.Error() != "the name of the folder has the value of a secret" {
			t.Error(err)
		}
	}
	if err := begin(t, &transfer.Spool{}, map[string]string{"10:15.json": "", "10:45.json": ""}).Check(); err != nil {
		t.Errorf("names with a colon: %v", err)
	}
	dir := t.TempDir()
	exact := begin(t, &transfer.Spool{Dir: dir, MaxBytes: 4}, map[string]string{"a": "1234"})
	if err := exact.Check(); err != nil || exact.Bytes() != 4 {
		t.Errorf("as many bytes as may be: %v, %d", err, exact.Bytes())
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("files have names: %v, %v", left, err)
	}
}

func TestLive(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"a.txt": "aaa", "dist/app": "binary", ".git/config": "secret",
		"sub/.gitignore": "*"})
	if err := os.Symlink("/etc/passwd", filepath.Join(root, "sub/out")); err != nil {
		t.Fatal(err)
	}
	live, err := transfer.OpenLive(dial(t), root)
	if err != nil {
		t.Fatal(err)
	}
	list, err := live.List(t.Context(), "", 10)
	if err != nil || len(list) != 3 || list[0].Path != "dist" ||
		list[2] != (transfer.Entry{Path: "a.txt", Kind: transfer.KindFile, Size: 3, Run: true}) {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := live.List(t.Context(), "", 2); !errors.Is(err, transfer.ErrTooMany) || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	for _, name := range []string{".git/config", ".git", "../x", "/etc/passwd", "sub/..", "."} {
		if in, _, err := live.Open(t.Context(), name); err == nil {
			in.Close()
			t.Errorf("%q opens", name)
		}
	}
	if e, err := live.Look(t.Context(), "sub/out"); err != nil || e.Kind != transfer.KindLink {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := live.Look(t.Context(), "nothing"); !errors.Is(err, gitd.ErrNotFound) {
		t.Error(err)
	}
	for _, format := range []transfer.Format{transfer.FormatZip, transfer.FormatTar} {
		plan, err := transfer.Find(t.Context(), live, "")
		if err != nil || plan.Left != 1 {
			t.Fatalf("%+v, %v", plan, err)
		}
		var b bytes.Buffer
		if err := transfer.Pack(t.Context(), &b, format, live, plan, "", "app", time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"app/a.txt": "aaa", "app/dist/app": "binary", "app/sub/.gitignore": "*"}
		if got := unpack(t, format, b.Bytes()); !maps.Equal(got, want) {
			t.Errorf("%s: %q", format, got)
		}
	}
	if err := live.Close(); err != nil {
		t.Error(err)
	}
}

// TestPackHostile packs a work tree with a repository in a folder, whose settings would run a program of the person who
// unpacks it, and with names that other systems take for other files.
func TestPackHostile(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"fine": "x", "sub/.git/config": "[core]\n\tfsmonitor = evil\n",
		"sub/.GIT /config": "x",
		"sub/git~1/config": "x", `..\..\evil.bat`: "x", "a\nb": "x", "x\u202etxt.exe": "x", "10:15.log": "x",
		"bad\xff": "x"})
	live, err := transfer.OpenLive(dial(t), root)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	for _, name := range []string{"sub/.git", "sub/.git/config", "sub/.GIT /config"} {
		if _, err := live.Look(t.Context(), name); !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	plan, err := transfer.Find(t.Context(), live, "")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range plan.Files {
		names = append(names, e.Path)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"10:15.log", "fine"}) || plan.Left != 4 {
		t.Errorf("%q, %d left out", names, plan.Left)
	}
	if _, err := transfer.Find(t.Context(), live, "sub/.git"); err == nil {
		t.Error("a folder of git is packed")
	}
}

// TestPackSecrets packs files with the value of a secret, also in a name.
func TestPackSecrets(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{".env": "KEY=correct-horse-battery\n", "fine": "x",
		"correct-horse-battery.txt": "y"})
	live, err := transfer.OpenLive(dial(t), root)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	secrets := new(redact.Secrets)
	secrets.Add(map[string]string{"DEPLOY_KEY": "correct-horse-battery"})
	clean := (&transfer.Spool{Dir: t.TempDir(), Secrets: secrets}).Clean(live)
	for _, format := range []transfer.Format{transfer.FormatZip, transfer.FormatTar} {
		plan, err := transfer.Find(t.Context(), clean, "")
		if err != nil || plan.Left != 1 {
			t.Fatalf("%+v, %v", plan, err)
		}
		var b bytes.Buffer
		if err := transfer.Pack(t.Context(), &b, format, clean, plan, "", "app", time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
		got := unpack(t, format, b.Bytes())
		if len(got) != 2 || got["app/fine"] != "x" || !strings.HasPrefix(got["app/.env"], "KEY=") ||
			strings.Contains(got["app/.env"], "horse") {
			t.Errorf("%s: %q", format, got)
		}
	}
}

// shrunk is a tree whose files end before their size.
type shrunk struct{ transfer.Tree }

func (shrunk) Open(context.Context, string) (io.ReadCloser, int64, error) {
	return io.NopCloser(strings.NewReader("half")), 8, nil
}

// TestPackShorter packs a file that becomes shorter meanwhile. The archive is not a complete one.
func TestPackShorter(t *testing.T) {
	secrets := new(redact.Secrets)
	secrets.Add(map[string]string{"DEPLOY_KEY": "correct-horse-battery"})
	plan := transfer.Plan{Files: []transfer.Entry{{Path: "a", Kind: transfer.KindFile, Size: 8}}}
	for _, tree := range []transfer.Tree{shrunk{},
		(&transfer.Spool{Dir: t.TempDir(), Secrets: secrets}).Clean(shrunk{})} {
		for _, format := range []transfer.Format{transfer.FormatZip, transfer.FormatTar} {
			if err := transfer.Pack(t.Context(), io.Discard, format, tree, plan, "", "app",
				time.Unix(1e9, 0)); !errors.Is(err, gitd.ErrConflict) {
				t.Errorf("%s of %T: %v", format, tree, err)
			}
		}
	}
}

// endless is a container that lists names without an end.
type endless struct{}

func (endless) Filelist(*sftp.Request) (sftp.ListerAt, error) { return endless{}, nil }

func (endless) ListAt(list []fs.FileInfo, _ int64) (int, error) {
	info, err := os.Stat(os.DevNull)
	for i := range list {
		list[i] = info
	}
	return len(list), err
}

// TestLiveEndless lists a folder of a container that does not stop.
func TestLiveEndless(t *testing.T) {
	near, far := net.Pipe()
	server := sftp.NewRequestServer(far, sftp.Handlers{FileList: endless{}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve() // until the client is closed
	}()
	defer func() { <-done }()
	defer server.Close()
	live, err := transfer.OpenLive(near, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if list, err := live.List(t.Context(), "", 10); !errors.Is(err, transfer.ErrTooMany) || len(list) != 10 {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if _, err := transfer.Find(t.Context(), live, ""); err == nil {
		t.Error("the connection goes on")
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, format transfer.Format, b []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	if format == transfer.FormatZip {
		r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			in, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			all[f.Name] = string(content)
		}
		return all
	}
	gz, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(content)
	}
}

// FuzzCheckPath has every path that is accepted stay below its folder, and mean the same file elsewhere.
func FuzzCheckPath(f *testing.F) {
	for _, s := range []string{"a", "a/b.txt", "..", "a/../b", "/etc/passwd", `a\b`, "a\x00b", ".git/config", "a/.GiT",
		"git~1", ".g\u200cit",
		"a\n", "\u202ea", "a.", " a", "a:b", ".git:x", "\xff", strings.Repeat("x", 256), strings.Repeat("a/", 40) + "b",
		"a//b", "./a",
		"Ünïcödé/файл.txt", "-rf", ".ramus-upload-x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if transfer.CheckPath(name) != nil {
			return
		}
		if !filepath.IsLocal(name) || !fs.ValidPath(name) || filepath.Clean(name) != name {
			t.Errorf("%q is not local", name)
		}
		for part := range strings.SplitSeq(name, "/") {
			if strings.EqualFold(part, ".git") || len(part) > transfer.MaxName ||
				strings.TrimSpace(part) != part && strings.TrimRight(part, " ") != part {
				t.Errorf("%q has the part %q", name, part)
			}
		}
		if strings.ContainsAny(name, "\x00\r\n\t\x1b\\\u202e") {
			t.Errorf("%q has a character that nobody sees", name)
		}
	})
}
