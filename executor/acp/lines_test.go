package acp

import (
	"context"
	"errors"
	"testing"
)

// TestBetween waits for updates that are being handled.
func TestBetween(t *testing.T) {
	l := &lines{notes: make(chan struct{}, maxNotes)}
	pass := func(bytes int64, update bool) {
		l.taken += bytes
		if update {
			l.notes <- struct{}{}
		}
		l.pass(update)
	}
	between := func(ctx context.Context, ended chan struct{}) (at int64, err error) {
		at = -1
		err = l.between(ctx, ended, func(n int64) { at = n })
		return at, err
	}
	pass(5, false)
	if at, err := between(t.Context(), nil); at != 5 || err != nil {
		t.Errorf("%d, %v", at, err)
	}
	pass(7, true)
	ended := make(chan struct{})
	close(ended)
	if at, err := between(t.Context(), ended); at != -1 || !errors.Is(err, ErrEnded) {
		t.Errorf("%d, %v", at, err)
	}
	late := errors.New("late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	if at, err := between(ctx, nil); at != -1 || !errors.Is(err, late) {
		t.Errorf("%d, %v", at, err)
	}
	done := make(chan int64)
	go func() {
		at, _ := between(t.Context(), nil)
		done <- at
	}()
	select {
	case at := <-done:
		t.Errorf("at %d an update is being handled", at)
	default:
	}
	pass(3, false)
	l.handled(true)
	if at := <-done; at != 15 {
		t.Errorf("%d", at)
	}
}
