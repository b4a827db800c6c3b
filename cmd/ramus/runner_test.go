package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

// pack compresses a program as make build does.
func pack(t *testing.T, program string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(program)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpackRunner(t *testing.T) {
	t.Parallel()
	was := runnerProgram
	t.Cleanup(func() { runnerProgram = was })
	data := t.TempDir()
	runnerProgram = nil
	if path, err := unpackRunner(data); path != "" || err != nil {
		t.Errorf("nothing is unpacked to %q, %v", path, err)
	}
	runnerProgram = pack(t, "one")
	one, err := unpackRunner(data)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(one)
	if err != nil || before.Mode().Perm() != 0o755 {
		t.Fatalf("%v, %v", before, err)
	}
	if again, err := unpackRunner(data); again != one || err != nil {
		t.Errorf("%q and %q, %v", one, again, err)
	}
	if now, err := os.Stat(one); err != nil || !os.SameFile(before, now) {
		t.Errorf("it was written again: %v", err)
	}
	// Another version replaces it, and a damaged file does not stay.
	runnerProgram = pack(t, "two")
	two, err := unpackRunner(data)
	if err != nil || two == one {
		t.Fatalf("%q, %v", two, err)
	}
	for _, damaged := range []string{"tw", "twx", "two\x00", ""} {
		if err := os.WriteFile(two, []byte(damaged), 0o755); err != nil {
			t.Fatal(err)
		}
		if path, err := unpackRunner(data); path != two || err != nil {
			t.Errorf("%q, %v", path, err)
		}
		if text, err := os.ReadFile(two); string(text) != "two" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(two)); len(left) != 1 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
}
