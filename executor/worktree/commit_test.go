package worktree

import (
	"slices"
	"strings"
	"testing"
)

// TestParseCommitOutput reads the records of the commit script, in which a container writes names.
func TestParseCommitOutput(t *testing.T) {
	got := parseCommitOutput("left a b\x00tip 0123\x00left c\nd\x00artifacts\x00index 45\x00unknown x\x00loose\x00")
	if got.tip != "0123" || got.index != "45" || !got.artifacts || !got.loose || !slices.Equal(got.left, []string{"a b", "c\nd"}) {
		t.Errorf("%+v", got)
	}
	if got := parseCommitOutput("staged 0123"); got.tip != "0123" || got.loose || got.artifacts {
		t.Errorf("%+v", got)
	}
}

// TestParseRaw reads changed files with their modes, up to the first line that cannot be read.
func TestParseRaw(t *testing.T) {
	const hashes = " 0123 4567 M\x00"
	got := parseRaw(":100644 100755" + hashes + "a\nb\x00:100644 000000" + hashes + "gone\x00:100644 x" + hashes + "bad\x00")
	if want := []change{{"a\nb", 0o100755}, {"gone", 0}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestTooMuch leaves out the largest files first.
func TestTooMuch(t *testing.T) {
	all := []LeftOut{{Path: "small"}, {Path: "large"}, {Path: "middle"}}
	sizes := map[string]int64{"small": 1, "middle": 5, "large": 10}
	for max, want := range map[int64][]string{16: nil, 15: {"large"}, 6: {"large"}, 5: {"large", "middle"},
		0: {"large", "middle", "small"}} {
		var got []string
		for _, l := range tooMuch(all, sizes, 16, max) {
			got = append(got, l.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d bytes: %v, want %v", max, got, want)
		}
	}
}

// TestLeftText names a few files of many.
func TestLeftText(t *testing.T) {
	if got := LeftText([]LeftOut{{"a", "too large"}}); got != `1 file was not committed: "a" (too large)` {
		t.Error(got)
	}
	if got := LeftText(make([]LeftOut, 7)); !strings.HasPrefix(got, "7 files were not committed: ") ||
		!strings.HasSuffix(got, "; and 2 more") {
		t.Error(got)
	}
}
