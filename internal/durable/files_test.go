package durable

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestFiles checks that the error of every file is returned.
func TestFiles(t *testing.T) {
	open := func(closed bool) *os.File {
		t.Helper()
		f, err := os.Create(filepath.Join(t.TempDir(), "a"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if closed {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	for _, closed := range [][]bool{{}, {false}, {true}, {false, false, false}, {true, false}, {false, true}, {false, false, true}} {
		var files []*os.File
		want := false
		for _, c := range closed {
			files, want = append(files, open(c)), want || c
		}
		if err := Files(files...); (err != nil) != want || want && !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%v: %v", closed, err)
		}
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	if err := Folder(dir); err != nil {
		t.Error(err)
	}
	if err := Folder(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// TestBootID checks that a boot has one id, if the kernel provides it.
func TestBootID(t *testing.T) {
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err != nil {
		t.Skip("cannot run here: ", err)
	}
	if a, b := BootID(), BootID(); len(a) < 16 || !bytes.Equal(a, b) {
		t.Errorf("%q, %q", a, b)
	}
}
