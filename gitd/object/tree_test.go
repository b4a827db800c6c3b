package object

import (
	"crypto/sha1"
	"fmt"
	"strings"
	"testing"

	curve "github.com/ramus-dev/ramus/internal/growth"
)

func TestParseTree(t *testing.T) {
	name := strings.Repeat("\x12", 20)
	data := "100644 a\x00" + name + "100755 b\x00" + name + "120000 c\x00" + name + "40000 d\x00" + name +
		"160000 e f\x00" + name
	entries, err := ParseTree([]byte(data), 20)
	if err != nil || len(entries) != 5 {
		t.Fatalf("%v, %v", entries, err)
	}
	var text strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&text, "%o %s %s %q\n", e.Mode, e.Kind(), e.Name, e.Key())
		if e.Hash != Hash(strings.Repeat("12", 20)) {
			t.Errorf("%+v", e)
		}
	}
	const want = "100644 blob a \"a\"\n100755 blob b \"b\"\n120000 blob c \"c\"\n40000 tree d \"d/\"\n160000 commit e f \"e f\"\n"
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", text.String(), want)
	}
	back, err := EncodeTree(entries)
	if err != nil || string(back) != data {
		t.Errorf("%q, %v, want %q", back, err, data)
	}
	for _, damaged := range []string{data[:len(data)-1], "100644 a", "100644", "x a\x00" + name, "100644 \x00" + name,
		" a\x00" + name, "9 a\x00" + name} {
		if entries, err := ParseTree([]byte(damaged), 20); err == nil {
			t.Errorf("%q: %v", damaged, entries)
		}
	}
}

func FuzzParseTree(f *testing.F) {
	f.Add([]byte("100644 a\x00" + strings.Repeat("x", 20) + "40000 b\x00" + strings.Repeat("y", 20)))
	f.Add([]byte("1 \x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := ParseTree(data, 20)
		if err != nil {
			return
		}
		if _, err := EncodeTree(entries); err != nil {
			t.Error(err)
		}
	})
}

// TestTreeGrowth checks that the time to parse a tree grows with it.
func TestTreeGrowth(t *testing.T) {
	curve.Check(t, "tree", func(text []byte) { _, _ = ParseTree(text, sha1.Size) },
		append(curve.Tokens("a", "\x00", "0", " ", "100644 a\x00"+strings.Repeat("1", 20)),
			curve.Case{Name: "names", Each: func(n int) string { return fmt.Sprintf("100644 n%08d\x00%020d", n, n) }})...)
}
