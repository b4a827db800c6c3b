package retry

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestAfter(t *testing.T) {
	now := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "x": 0, "-1": 0, "0": 0, "NaN": 0, "7": 7 * time.Second, " 1.5 ": 1500 * time.Millisecond,
		"1e300": time.Hour, "Inf": time.Hour, "999999999": time.Hour,
		"Tue, 02 Jan 2024 03:04:35 GMT": 30 * time.Second, "Tue, 02 Jan 2024 03:04:00 GMT": 0,
		"Wed, 02 Jan 2030 03:04:35 GMT": time.Hour,
	} {
		if got := After(header, now, time.Hour); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for failures, most := range map[int]time.Duration{-1: 500 * time.Millisecond, 1: 500 * time.Millisecond,
		2: time.Second, 5: 8 * time.Second, 9: time.Minute, 1 << 40: time.Minute} {
		for range 50 {
			if got := Backoff(failures, time.Minute); got < most/2 || got > most {
				t.Errorf("after %d failures: %v, want %v to %v", failures, got, most/2, most)
			}
		}
	}
}

// TestBackoffSpreads checks that the pauses of many clients differ, up to the longest.
func TestBackoffSpreads(t *testing.T) {
	least, most := time.Hour, time.Duration(0)
	for range 2000 {
		d := Backoff(1, time.Minute)
		least, most = min(least, d), max(most, d)
	}
	if least > 260*time.Millisecond || most < 490*time.Millisecond {
		t.Errorf("pauses from %v to %v", least, most)
	}
	if d := Backoff(1, 1); d > 1 {
		t.Errorf("a pause of %v, at most 1ns", d)
	}
}

func TestSleep(t *testing.T) {
	if err := Sleep(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := Sleep(ctx, time.Hour); !errors.Is(err, why) {
		t.Error(err)
	}
}
