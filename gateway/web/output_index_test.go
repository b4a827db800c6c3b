package web

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestOutputIndex reads parts of outputs that grow, and compares them with the lines as strings has them.
func TestOutputIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		var x outputIndex
		text := ""
		for range 4 {
			for range random.IntN(800) {
				line := strings.Repeat("x", random.IntN(30))
				switch random.IntN(80) {
				case 0:
					line = fmt.Sprint("::group::", line)
				case 1:
					line = "##[endgroup]"
				}
				text += line + "\n"
			}
			if random.IntN(2) == 0 {
				text += strings.Repeat("half a line ", random.IntN(30_000))
			}
			want := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if text == "" {
				want = nil
			}
			from := int64(1 + random.IntN(len(want)+2))
			to := from + int64(random.IntN(600))
			p, err := x.readPart(strings.NewReader(text), from, to)
			if err != nil || p.total != int64(len(want)) {
				t.Fatalf("%d lines, want %d: %v", p.total, len(want), err)
			}
			part := slices.Clone(want[min(int(from-1), len(want)):min(int(to), len(want))])
			for i := range part {
				part[i] = part[i][:min(len(part[i]), maxShownLine)]
			}
			if !slices.Equal(p.lines, part) {
				t.Fatalf("lines %d to %d of %d: %d lines, want %d", from, to, len(want), len(p.lines), len(part))
			}
			in := int64(0) // the line with the mark of the present group
			for i, line := range want {
				n, ends := int64(i+1), line == "##[endgroup]"
				if strings.HasPrefix(line, "::group::") {
					in = n
				}
				if g := x.group(n); first(g) != in {
					t.Fatalf("line %d is in the group %+v, want that of line %d", n, g, in)
				}
				if ends {
					in = 0
				}
			}
		}
	}
}

// TestFindIn compares the lines that are found with those of strings.
func TestFindIn(t *testing.T) {
	text := "a Needle\nnothing\nNEEDLE needle\n" + strings.Repeat("x", 300<<10) + "needle\nneedle without an end"
	for _, x := range []struct {
		text, words string
		after       int64
		want        string
	}{{text, "NeeDle", 0, "[1 3 5]"}, {text, "NeeDle", 1, "[3 5]"}, {text, "NeeDle", 5, "[]"}, {"É1\né1\n", "É", 0, "[1]"}} {
		list := []int64{}
		if err := findIn(t.Context(), strings.NewReader(x.text), x.words, x.after, func(n int64, _ []byte) bool {
			list = append(list, n)
			return true
		}); err != nil || fmt.Sprint(list) != x.want {
			t.Errorf("%s after %d: %v, want %s: %v", x.words, x.after, list, x.want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := findIn(ctx, strings.NewReader(text), "needle", 0, func(int64, []byte) bool { return true }); err == nil {
		t.Error("the search goes on after its reader left")
	}
}
