package gitd

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestByName reads objects by the names in a comparison of trees.
func TestByName(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	c := commit(t, r, "main", "One", "a", "text", "d/e/f", "deep")
	for path, want := range map[string]string{"": "tree", "a": "blob", "d": "tree", "d/e/f": "blob"} {
		e, err := r.Entry(ctx, string(c), path)
		if err != nil || e.Type != want || e.Path != path || e.Size != 0 {
			t.Errorf("%q: %+v, %v", path, e, err)
		}
		b, err := r.Blob(ctx, e.Hash, 4)
		switch {
		case want == "tree" && !errors.Is(err, ErrInvalid):
			t.Errorf("%q: %q, %v", path, b, err)
		case want == "blob" && (err != nil || string(b) != map[string]string{"a": "text", "d/e/f": "deep"}[path]):
			t.Errorf("%q: %q, %v", path, b, err)
		}
		if _, err := r.Blob(ctx, e.Hash, 3); want == "blob" && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{"b", "a/x", "d/e/g"} {
		if e, err := r.Entry(ctx, string(c), path); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %+v, %v", path, e, err)
		}
	}
	if _, err := r.Blob(ctx, Hash(strings.Repeat("1", 40)), 10); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if when, err := r.CommitTime(ctx, c); err != nil || !when.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("%v, %v", when, err)
	}
	if when, err := r.CommitTime(ctx, Hash(strings.Repeat("1", 40))); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v, %v", when, err)
	}
}
