package history

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
)

// TestCompareTreesOrder compares two trees in which a folder and a file have one name.
func TestCompareTreesOrder(t *testing.T) {
	trees := map[object.Hash][]object.Entry{
		"A": {{Name: "d.txt", Mode: object.ModeFile, Hash: "1"}, {Name: "d", Mode: object.ModeFolder, Hash: "D"},
			{Name: "same", Mode: object.ModeFolder, Hash: "S"}, {Name: "x", Mode: object.ModeFile, Hash: "1"}},
		"B": {{Name: "d", Mode: object.ModeFile, Hash: "2"}, {Name: "d.txt", Mode: object.ModeFile, Hash: "1"},
			{Name: "same", Mode: object.ModeFolder, Hash: "S"}, {Name: "x", Mode: object.ModeExecutable, Hash: "1"}},
		"D": {{Name: "y", Mode: object.ModeFile, Hash: "3"}},
	}
	read := func(_ context.Context, h object.Hash) ([]object.Entry, error) {
		if e, ok := trees[h]; ok {
			return e, nil
		}
		return nil, object.ErrNotFound
	}
	add := Change{Path: "d", NewMode: object.ModeFile, New: "2"}
	remove := Change{Path: "d/y", OldMode: object.ModeFile, Old: "3"}
	mode := Change{Path: "x", OldMode: object.ModeFile, NewMode: object.ModeExecutable, Old: "1", New: "1"}
	for _, c := range []struct {
		a, b object.Hash
		max  int
		want []Change
		err  error
	}{
		{"A", "B", 3, []Change{add, remove, mode}, nil},
		{"A", "B", 2, []Change{add, remove}, object.ErrTooLarge},
		{"A", "A", 0, nil, nil},
		{"", "D", 1, []Change{{Path: "y", NewMode: object.ModeFile, New: "3"}}, nil},
		{"D", "", 1, []Change{{Path: "y", OldMode: object.ModeFile, Old: "3"}}, nil},
		{"A", "none", 9, nil, object.ErrNotFound},
		{"none", "A", 9, nil, object.ErrNotFound},
	} {
		got, err := CompareTrees(t.Context(), read, c.a, c.b, c.max)
		if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s and %s: %+v, %v; want %+v, %v", c.a, c.b, got, err, c.want, c.err)
		}
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if _, err := CompareTrees(ctx, read, "A", "B", 9); !errors.Is(err, stopped) {
		t.Error(err)
	}
}

// TestCompareTreesDepth checks that folders that are nested without end are not followed.
func TestCompareTreesDepth(t *testing.T) {
	reads := 0
	read := func(_ context.Context, h object.Hash) ([]object.Entry, error) {
		reads++
		return []object.Entry{{Name: "d", Mode: object.ModeFolder, Hash: h + "x"}}, nil
	}
	if _, err := CompareTrees(t.Context(), read, "", "x", 9); !errors.Is(err, object.ErrTooLarge) || reads != object.MaxDepth+1 {
		t.Errorf("%d folders are read, %v", reads, err)
	}
}
