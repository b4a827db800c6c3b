// Package layertest is the test suite of [layer.Keeper], with containers of every engine. It reads work trees from
// inside, as commands do, and from outside, and does in them what a hostile command would do. At the end nothing may be
// left.
package layertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
)

// Box is a started container without a bound work tree.
type Box struct {
	PID   int
	Start uint64
	// Dir is the container's private folder, below the Keeper's root.
	Dir string
	// UID is the user of commands on the host.
	UID int
	// Target is the path for its work tree.
	Target string
	// Sh runs a script in the container as the task's user, and returns what it wrote to both its outputs. A status
	// other than 0 is an error.
	Sh func(ctx context.Context, script string) (string, error)
	// Kill ends the container and returns when its processes are gone.
	Kill func()
}

// Run tests a Keeper for the folders below root, which belongs to ramus alone. Each call of start starts a container.
func Run(t *testing.T, k layer.Keeper, root string, start func(t *testing.T) Box) {
	if err := k.Check(t.Context()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	left := func() []string {
		var names []string
		entries, err := os.ReadDir(root)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	s := &suite{T: t, k: k, root: root, start: start}
	// Most tests share a container, each with paths of its own in it.
	s.box = start(t)
	before, mounts, files := left(), mounted(t, root), opened(t)
	defer func() {
		if got := mounted(t, root); got != mounts {
			t.Errorf("%d mounts more on the host than before", got-mounts)
		}
		if got := left(); !slices.Equal(got, before) {
			t.Errorf("folders are left: %q, before %q", got, before)
		}
		// A file that a test stopped waiting for is closed when it arrives. A measurement of the container may have had
		// a folder open before.
		got := opened(t)
		for end := time.Now().Add(time.Minute); len(got) > len(files) && time.Now().Before(end); got = opened(t) {
			time.Sleep(10 * time.Millisecond)
		}
		if len(got) > len(files) {
			t.Errorf("descriptors of folders and files %q, before %q", got, files)
		}
	}()
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"Overlay", testOverlay},
		{"Plain", testPlain},
		{"ReadOnly", testReadOnly},
		{"Order", testOrder},
		{"Names", testNames},
		{"Limits", testLimits},
		{"Refuses", testRefuses},
		{"Nobody", testNobody},
		{"Source", testSource},
		{"Fill", testFill},
		{"Own", testOwn},
		{"Deep", testDeep},
		{"Moving", testMoving},
		{"Cancelled", testCancelled},
		{"Again", testAgain},
	} {
		t.Run(test.name, func(t *testing.T) {
			one := *s
			one.T = t
			test.run(&one)
		})
	}
	s.box.Kill()
}

type suite struct {
	*testing.T
	k     layer.Keeper
	root  string
	start func(t *testing.T) Box
	box   Box
}

// mounted returns the number of mounts of the host below root.
func mounted(t *testing.T, root string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), root)
}

// opened returns the files that this process has open, without sockets and the like, which engines keep.
func opened(t *testing.T) (files []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "/") &&
			!strings.HasPrefix(to, "/proc/") {
			files = append(files, to)
		}
	}
	return files
}

// place makes a folder in the shared container at which a tree can be bound.
func (s *suite) place() Box {
	s.Helper()
	b := s.box
	b.Target = "/tmp/" + s.Name()[strings.LastIndex(s.Name(), "/")+1:] + rand.Text()
	s.sh(b, "mkdir "+b.Target)
	return b
}

// base makes a base layer of folders, whose paths end in "/", and of files, each with its path as content.
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
	// A layer belongs to the commands' user, and nothing in it to ramus.
	if err := s.k.Own(s.Context(), dir, uid); err != nil {
		s.Fatal(err)
	}
	return dir
}

// binding returns a binding with a folder of its own, at b's target.
func (b Box) binding(lowers []string, fill ...layer.File) layer.Binding {
	return layer.Binding{PID: b.PID, Start: b.Start, Lowers: lowers,
		Dir:    filepath.Join(b.Dir, "trees", filepath.Base(b.Target)),
		Target: b.Target, UID: b.UID, Fill: fill}
}

// bind binds a new tree over base layers in a container.
func (s *suite) bind(b Box, lowers []string, fill ...layer.File) layer.Binding {
	s.Helper()
	bound := b.binding(lowers, fill...)
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

// changes lists an upper, one line for each entry.
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
		s.Errorf("got\n\t%q\nwant\n\t%q", got, want)
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
