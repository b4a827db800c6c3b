package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUnpackRunner(t *testing.T) {
	was := runnerProgram
	t.Cleanup(func() { runnerProgram = was })
	data := t.TempDir()
	runnerProgram = nil
	if path, err := unpackRunner(data); path != "" || err != nil {
		t.Errorf("nothing is unpacked to %q, %v", path, err)
	}
	runnerProgram = []byte("one")
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
		t.Errorf("it was written anew: %v", err)
	}
	// Another version takes its place, and what was damaged does not stay.
	runnerProgram = []byte("two")
	two, err := unpackRunner(data)
	if err != nil || two == one {
		t.Fatalf("%q, %v", two, err)
	}
	if err := os.WriteFile(two, []byte("tw"), 0o755); err != nil {
		t.Fatal(err)
	}
	if path, err := unpackRunner(data); path != two || err != nil {
		t.Errorf("%q, %v", path, err)
	}
	if text, err := os.ReadFile(two); string(text) != "two" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if left, err := os.ReadDir(filepath.Dir(two)); len(left) != 1 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
}
