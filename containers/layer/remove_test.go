package layer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func clearAway(dir string) error { return ClearAway(context.Background(), dir) }

func TestRemoveTree(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	inside := filepath.Join(dir, "tree", "a", "b")
	for _, p := range []string{outside, inside} {
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p, "file"), nil, 0o000); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(outside, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{inside, filepath.Dir(inside)} {
		if err := os.Chmod(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(outside, 0o700)
	if err := RemoveTree(filepath.Join(dir, "tree")); err != nil {
		t.Error(err)
	}
	if fi, err := os.Stat(outside); err != nil || fi.Mode().Perm() != 0o500 {
		t.Errorf("what a link points to: %v, %v", fi, err)
	}
	for _, remove := range []func(string) error{RemoveTree, clearAway} {
		if err := remove(filepath.Join(dir, "never was")); err != nil {
			t.Error(err)
		}
	}
}

// A tree deeper than any path is long, with closed folders and files on the way.
func TestRemoveDeepTree(t *testing.T) {
	for name, remove := range map[string]func(string) error{"RemoveTree": RemoveTree, "ClearAway": clearAway} {
		t.Run(name, func(t *testing.T) {
			top := filepath.Join(t.TempDir(), "tree")
			if err := os.Mkdir(top, 0o755); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Open(top, unix.O_PATH|unix.O_CLOEXEC, 0)
			for i := 0; err == nil && i < 1000; i++ {
				mode := uint32(0o755)
				if i%100 == 99 {
					mode = 0o300 // may be entered and written, not read
				}
				if err = unix.Mkdirat(fd, "deep", mode); err != nil {
					break
				}
				if i%50 == 0 {
					if err = unix.Mknodat(fd, "file", unix.S_IFREG, 0); err != nil {
						break
					}
				}
				up := fd
				fd, err = unix.Openat(up, "deep", unix.O_PATH|unix.O_CLOEXEC, 0)
				unix.Close(up)
			}
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(fd)
			if err := remove(top); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is there: %v", err)
			}
		})
	}
}

// Who gives up leaves what is left to the next one.
func TestClearAwayGivenUp(t *testing.T) {
	top := filepath.Join(t.TempDir(), "tree")
	for i := range 3 {
		dir := filepath.Join(top, strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range paceBatch {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(j)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	why := errors.New("given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := pacer{ctx: ctx}
	n := 0
	err := removeFlat(top, func() error {
		if n++; n == paceBatch {
			cancel(why)
		}
		return p.step()
	})
	if !errors.Is(err, why) || n > 2*paceBatch {
		t.Errorf("given up at %d, it ends at %d: %v", paceBatch, n, err)
	}
	if err := ClearAway(ctx, top); !errors.Is(err, why) {
		t.Errorf("it begins although nobody wants it: %v", err)
	}
	if _, err := os.Lstat(top); err != nil {
		t.Error(err)
	}
	if err := ClearAway(t.Context(), top); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}
