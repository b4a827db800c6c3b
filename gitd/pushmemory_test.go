package gitd

import (
	"context"
	"errors"
	"testing"
)

// TestShares checks that pushes divide memory in their order, and that a push that is larger than all of it runs alone.
func TestShares(t *testing.T) {
	s := shares{all: 100}
	first, err := s.acquire(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.acquire(gone, 50); !errors.Is(err, context.Canceled) {
		t.Fatalf("a push whose client is gone: %v", err)
	}
	taken := make(chan func())
	go func() {
		give, err := s.acquire(t.Context(), 1000)
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
