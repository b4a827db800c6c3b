package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		dir := t.TempDir()
		name := filepath.Join(dir, "file")
		for _, content := range []string{"a longer first content", "second"} {
			if err := Replace(name, []byte(content), lasting); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(name); err != nil || string(b) != content {
				t.Errorf("it has %q, %v", b, err)
			}
			if fi, err := os.Stat(name); err != nil || fi.Mode() != 0o600 {
				t.Errorf("its mode is %v, %v", fi.Mode(), err)
			}
		}
		// A folder cannot be replaced by a file. The old content stays, and no new file does.
		if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Replace(filepath.Join(dir, "folder"), []byte("x"), lasting); err == nil {
			t.Error("a folder was replaced")
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("the folder has %v, %v", entries, err)
		}
		if err := Replace(filepath.Join(dir, "missing", "file"), nil, lasting); err == nil {
			t.Error("a file was written into a folder that does not exist")
		}
	}
}
