package gitd

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestShares checks that pushes divide memory in their order, and that a push that is larger than all of it runs alone.
func TestShares(t *testing.T) {
	s := shares{all: 100}
	first, err := s.take(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.take(gone, 50); !errors.Is(err, context.Canceled) {
		t.Fatalf("a push whose client is gone: %v", err)
	}
	taken := make(chan func())
	go func() {
		give, err := s.take(t.Context(), 1000)
		if err != nil {
			t.Error(err)
		}
		taken <- give
	}()
	select {
	case <-taken:
		t.Fatal("more memory was given away than there is")
	default:
	}
	first()
	give := <-taken
	if s.used != 100 {
		t.Errorf("the largest push has %d of 100", s.used)
	}
	give()
	give()
	if s.used != 0 || len(s.waiting) != 0 {
		t.Errorf("%d bytes are used and %d pushes wait at the end", s.used, len(s.waiting))
	}
}

// TestScanDeltaWork checks that edits of a large file pass, and that chains and copies without end do not.
func TestScanDeltaWork(t *testing.T) {
	const size = 4 << 20
	chain := func(n int, step func(size int) []byte) []byte {
		b := &packBuilder{}
		at := b.at()
		b.object(3, size, make([]byte, size))
		for range n {
			here := b.at()
			b.delta(here-at, step(size))
			at = here
		}
		return b.pack()
	}
	edit := func(size int) []byte { return copying(size, size) }
	for _, c := range []struct {
		name string
		pack []byte
		want string
	}{
		{"edits", chain(40, edit), ""},
		{"a long chain of edits", chain(120, edit), "long chains"},
		{"copies", chain(20, func(size int) []byte { return copying(size, 4*size) }), "copy their bases too often"},
		{"a chain that git never makes", func() []byte {
			b := &packBuilder{}
			at := b.at()
			b.object(3, 5, []byte("hello"))
			for range depthMax + 1 {
				here := b.at()
				b.delta(here-at, copying(5, 5))
				at = here
			}
			return b.pack()
		}(), "a chain of more than 4095 deltas"},
	} {
		st, _, err := scan(c.pack, wide)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if c.want == "" && st.memory() < 2*size {
			t.Errorf("%s: %d bytes are too few", c.name, st.memory())
		}
	}
}
