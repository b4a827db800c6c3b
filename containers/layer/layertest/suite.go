// Package layertest is the test that every [layer.Keeper] has to pass, with containers
// of every engine. It looks at a work tree from inside, as commands do, and from
// outside, and builds there what a hostile command would. At its end nothing may be left.
package layertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
)

// Box is a started container that nothing is bound in yet.
type Box struct {
	PID   int
	Start uint64
	// Dir is the container's private folder, below the Keeper's root.
	Dir string
	// UID is who commands are, as the host counts.
	UID int
	// Target is where its work tree belongs.
	Target string
	// Sh runs a script there as the task's user and returns what it wrote to both
	// its outputs; a status other than 0 is an error.
	Sh func(ctx context.Context, script string) (string, error)
	// Kill ends the container and returns when its processes are gone.
	Kill func()
}

// Run tests a Keeper for the folders below root. Each call of start starts a container.
func Run(t *testing.T, k layer.Keeper, root string, start func(t *testing.T) Box) {
	if err := k.Check(t.Context()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"Overlay", testOverlay},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &suite{T: t, k: k, root: root, start: start}
			test.run(s)
		})
	}
}

type suite struct {
	*testing.T
	k     layer.Keeper
	root  string
	start func(t *testing.T) Box
}

// base makes a base layer of paths that end in "/" and files that hold their path.
func (s *suite) base(uid int, paths ...string) string {
	s.Helper()
	dir, err := os.MkdirTemp(s.root, "base ,:\\-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := s.k.Remove(context.Background(), dir); err != nil {
			s.Error(err)
		}
	})
	for _, p := range paths {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(p+".")), 0o755); err != nil {
			s.Fatal(err)
		}
		if !strings.HasSuffix(p, "/") {
			if err := os.WriteFile(filepath.Join(dir, p), []byte(p), 0o644); err != nil {
				s.Fatal(err)
			}
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		s.Fatal(err)
	}
	if err := s.k.Own(s.Context(), dir, uid); err != nil {
		s.Fatal(err)
	}
	return dir
}

// bind gives a new container a tree over base layers.
func (s *suite) bind(b Box, lowers []string, fill ...layer.File) layer.Binding {
	s.Helper()
	bound := layer.Binding{PID: b.PID, Start: b.Start, Lowers: lowers, Dir: filepath.Join(b.Dir, "tree"), Target: b.Target, UID: b.UID, Fill: fill}
	if err := s.k.Bind(s.Context(), bound); err != nil {
		s.Fatal(err)
	}
	return bound
}

func (s *suite) sh(b Box, script string) string {
	s.Helper()
	out, err := b.Sh(s.Context(), script)
	if err != nil {
		s.Fatalf("%s\n%v: %s", script, err, out)
	}
	return out
}

// changes lists an upper, one line an entry.
func (s *suite) changes(b layer.Binding) []string {
	s.Helper()
	list, err := s.k.Changes(s.Context(), b.Upper(), 10_000)
	if err != nil {
		s.Fatal(err)
	}
	var lines []string
	for _, c := range list {
		line := fmt.Sprintf("%c %s", c.Kind, c.Path)
		if c.Exec {
			line += " x"
		}
		if c.Kind == layer.KindFile {
			line += fmt.Sprintf(" %d", c.Size)
		}
		if c.Link != "" {
			line += " -> " + c.Link
		}
		if c.Opaque {
			line += " opaque"
		}
		if c.Redirect != "" {
			line += " was " + c.Redirect
		}
		if c.Inode == 0 || c.MTime == 0 || c.CTime == 0 {
			s.Errorf("%s: %+v", c.Path, c)
		}
		lines = append(lines, line)
	}
	return lines
}

func (s *suite) want(got []string, want ...string) {
	s.Helper()
	if !slices.Equal(got, want) {
		s.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (s *suite) read(b layer.Binding, path string) (string, error) {
	f, err := s.k.Open(s.Context(), b.Upper(), path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	return string(text), err
}

func testOverlay(s *suite) {
	b := s.start(s.T)
	base := s.base(b.UID, "kept", "gone", "dir/a", "dir/b", "old/deep/file", "replaced/x", "empty/")
	at := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	bound := s.bind(b, []string{base},
		layer.File{Path: "dir/c", Kind: layer.KindFile, Data: []byte("new"), Time: at},
		layer.File{Path: "gone", Kind: layer.KindWhiteout},
		layer.File{Path: "link", Kind: layer.KindLink, Data: []byte("dir/c")},
		layer.File{Path: "run", Kind: layer.KindFile, Exec: true, Data: []byte("#!/bin/sh\necho ran\n")},
		layer.File{Path: "made", Kind: layer.KindFolder},
	)
	got := s.sh(b, `find . | LC_ALL=C sort; cat kept link; ./run; stat -c %Y dir/c; id -u; stat -c '%u %a' . made dir/c run; test ! -e gone`)
	if want := ".\n./dir\n./dir/a\n./dir/b\n./dir/c\n./empty\n./kept\n./link\n./made\n./old\n./old/deep\n./old/deep/file\n./replaced\n./replaced/x\n./run\nkeptnewran\n981173106\n1000\n1000 755\n1000 755\n1000 644\n1000 755\n"; got != want {
		s.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.want(s.changes(bound), "d dir", "f dir/c 3", "w gone", "l link -> dir/c", "d made", "f run x 19")

	s.sh(b, `set -e
		echo more >>kept
		mv old renamed; echo y >renamed/deep/added
		rm -r replaced; mkdir replaced; echo z >replaced/y
		rm dir/a; mv dir moved; mv moved renamed/moved
		ln -s /etc/passwd secret; mkfifo pipe; chmod 600 run`)
	s.want(s.changes(bound), "w dir", "w gone", "f kept 9", "l link -> dir/c", "d made", "w old", "o pipe",
		"d renamed was old", "d renamed/deep", "f renamed/deep/added 2", "d renamed/moved was dir", "w renamed/moved/a", "f renamed/moved/c 3",
		"d replaced opaque", "f replaced/y 2", "f run 19", "l secret -> /etc/passwd")

	if err := s.k.Put(s.Context(), bound, []layer.File{
		{Path: "kept", Kind: layer.KindFile, Data: []byte("put")},
		{Path: "a/b/c", Kind: layer.KindFile, Exec: true, Data: []byte("#!/bin/sh\necho put\n")},
		{Path: "link", Kind: layer.KindLink, Data: []byte("kept")},
		{Path: "f", Kind: layer.KindFolder},
	}); err != nil {
		s.Fatal(err)
	}
	if got, want := s.sh(b, "cat link; a/b/c; stat -c '%u %g %a' a a/b kept f; ls -A"),
		"putput\n1000 1000 755\n1000 1000 755\n1000 1000 644\n1000 1000 755\na\nempty\nf\nkept\nlink\nmade\npipe\nrenamed\nreplaced\nrun\nsecret\n"; got != want {
		s.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, err := s.read(bound, "renamed/deep/added"); err != nil || got != "y\n" {
		s.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{"secret", "pipe", "made", "link", "renamed/none", "../upper/kept", "/etc/passwd", "", "made/../kept", "a//b"} {
		if got, err := s.read(bound, path); err == nil {
			s.Errorf("%s: opened, %q", path, got)
		}
	}
	if _, err := s.read(bound, "renamed/none"); !errors.Is(err, fs.ErrNotExist) {
		s.Errorf("what is not there: %v", err)
	}
}
