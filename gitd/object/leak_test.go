package object

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/redact"
)

func TestLeakWhere(t *testing.T) {
	h := Hash(strings.Repeat("12", 20))
	for want, l := range map[string]Leak{
		"K in the name of a ref":           {Secret: "K", Kind: "ref"},
		"K in the name of a file":          {Secret: "K", Kind: "tree", Object: h},
		`K in the name of a file in "a/b"`: {Secret: "K", Kind: "tree", Object: h, Path: "a/b"},
		`K in "a/b"`:                       {Secret: "K", Kind: "blob", Object: h, Path: "a/b"},
		"K in a blob":                      {Secret: "K", Kind: "blob"},
		"K in commit 121212121212":         {Secret: "K", Kind: "commit", Object: h},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestLeakText(t *testing.T) {
	var leaks []Leak
	for _, name := range []string{"A", "A", "B", "C", "D", "E"} {
		leaks = append(leaks, Leak{Secret: name, Kind: "ref"})
	}
	if got := LeakText(leaks); strings.Count(got, "A in ") != 1 || strings.Contains(got, " more;") ||
		!strings.Contains(got, "E in the name of a ref;") {
		t.Error(got)
	}
	leaks = append(leaks, Leak{Secret: "F", Kind: "ref"}, Leak{Secret: "G", Kind: "ref"})
	if got := LeakText(leaks); strings.Contains(got, "F in ") || !strings.Contains(got, "E in the name of a ref and 2 more;") {
		t.Error(got)
	}
}

func TestCleanPath(t *testing.T) {
	secrets, err := redact.New(map[string]string{"HORSE": "correct-horse-battery"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := CleanPath(secrets, "a\n\x7f\xff/correct-horse-battery"), "a???/[secret HORSE]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := CleanPath(secrets, strings.Repeat("long/", 100)); len(got) > 310 {
		t.Errorf("%d bytes", len(got))
	}
}
