// Package golden compares results of tests with files, below testdata/golden or elsewhere. With the flag -update a test writes the
// files instead.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the results of tests to files instead of comparing them")

// Compare fails the test if got differs from the file testdata/golden/NAME of the package under test.
func Compare(t testing.TB, name, got string) {
	t.Helper()
	CompareFile(t, filepath.Join("testdata", "golden", name), got)
}

// CompareFile is [Compare] for any file, by a path relative to the package under test.
func CompareFile(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", file, got, want)
	}
}
