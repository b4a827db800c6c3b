package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sample = `package p

import "strings"

func f(a, b int, s string) bool {
	for i := 0; i < a; i++ {
		if !strings.Contains(s, "x"+s) && a == b {
			continue
		}
	}
	return true
}
`

// TestFindFaults lists every fault of a file, and plants each.
func TestFindFaults(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	faults, err := findFaults(dir, []string{"p.go"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range faults {
		got = append(got, f.String())
		text, err := f.plant()
		if err != nil {
			t.Fatal(err)
		}
		if undone := string(text[:f.offset]) + f.old + string(text[f.offset+len(f.new):]); undone != sample {
			t.Errorf("%s: more than the token has changed: %s", f, text)
		}
	}
	want := []string{
		"p.go:6: <= for < in: for i := 0; i < a; i++ {",
		"p.go:6: >= for < in: for i := 0; i < a; i++ {",
		"p.go:6: -- for ++ in: for i := 0; i < a; i++ {",
		`p.go:7: || for && in: if !strings.Contains(s, "x"+s) && a == b {`,
		`p.go:7:  for ! in: if !strings.Contains(s, "x"+s) && a == b {`,
		`p.go:7: != for == in: if !strings.Contains(s, "x"+s) && a == b {`,
		"p.go:8: break for continue in: continue",
		"p.go:11: false for true in: return true",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestTryPackage plants faults in a module whose tests notice some of them.
func TestTryPackage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.org/m\n\ngo 1.25\n",
		"m.go":      "package m\n\nfunc Less(a, b int) bool { return a < b }\n\nfunc Unseen() bool { return true }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestLess(t *testing.T) {\n\tif Less(1, 1) || !Less(1, 2) || Less(2, 1) {\n\t\tt.Error()\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	packages, err := listPackages(t.Context(), []string{"./..."})
	if err != nil || len(packages) != 1 {
		t.Fatal(packages, err)
	}
	got, err := tryPackage(t.Context(), packages[0], 0, 1, 2, nil)
	if err != nil || got.noticed != 2 || got.missed != 1 || len(got.survivors) != 1 || got.survivors[0].line != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
	known := map[string]bool{got.survivors[0].key(): true}
	if got, err := tryPackage(t.Context(), packages[0], 0, 1, 2, known); err != nil || got.missed != 0 || got.equivalent != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
}
