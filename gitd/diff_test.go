package gitd

import (
	"slices"
	"strings"
	"testing"
)

// TestPatchSplitter splits git's output at the same places, however it is
// chunked.
func TestPatchSplitter(t *testing.T) {
	list := ":100644 100644 a b M\x00:odd\x00:100644 100644 a b R100\x00old\t\x00\x01new\x00:100644 100644 a b M\x00x\t\x00" +
		"1\t2\t:odd\x000\t0\t\x00old\t\x00\x01new\x003\t4\tx\t\x00"
	patch := "diff --git a/:odd b/:odd\n\x00binary\x00\n"
	for _, c := range []struct{ all, list, patch string }{
		{list + "\x00" + patch, list, patch}, {list, list, ""}, {"", "", ""},
	} {
		for _, size := range []int{1, 2, 3, 7, 1000} {
			var out strings.Builder
			s := &patchSplitter{patch: &out}
			for part := range slices.Chunk([]byte(c.all), size) {
				if n, err := s.Write(part); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if s.list.String() != c.list || out.String() != c.patch {
				t.Errorf("by %d: %q and %q", size, s.list.String(), out.String())
			}
		}
	}
	if changes, err := parseChanges(list); err != nil || len(changes) != 3 || changes[1].OldPath != "old\t" {
		t.Errorf("%+v, %v", changes, err)
	}
}
