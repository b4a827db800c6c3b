package retry

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestLanes(t *testing.T) {
	now := time.Unix(1700000000, 0)
	slept := time.Duration(0)
	l := &Lanes{Now: func() time.Time { return now }, Sleep: func(ctx context.Context, d time.Duration) error {
		slept += d
		now = now.Add(d)
		return context.Cause(ctx)
	}}
	first, err := l.Enter(t.Context(), "a", 1)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := l.Enter(ctx, "a", 1); !errors.Is(err, why) {
		t.Errorf("a full lane was entered: %v", err)
	}
	if other, err := l.Enter(t.Context(), "b", 1); err != nil {
		t.Error(err)
	} else {
		other(0)
	}
	first(time.Minute)
	if _, err := l.Enter(ctx, "a", 1); !errors.Is(err, why) {
		t.Errorf("a closed lane was entered by who does not wait: %v", err)
	}
	slept = 0
	again, err := l.Enter(t.Context(), "a", 1)
	if err != nil || slept > time.Minute {
		t.Error(err, slept)
	}
	again(0)
	if len(l.lanes) != 0 {
		t.Errorf("%d lanes are left", len(l.lanes))
	}
}

func TestLaneWidth(t *testing.T) {
	l := &Lanes{Now: time.Now, Sleep: Sleep}
	var in, most atomic.Int32
	done := make(chan error)
	for range 40 {
		go func() {
			leave, err := l.Enter(t.Context(), "a", 3)
			if err == nil {
				most.Store(max(most.Load(), in.Add(1)))
				in.Add(-1)
				leave(0)
			}
			done <- err
		}()
	}
	for range 40 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if most.Load() > 3 || len(l.lanes) != 0 {
		t.Errorf("%d were in at once, %d lanes are left", most.Load(), len(l.lanes))
	}
}
