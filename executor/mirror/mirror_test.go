package mirror

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMirrors retries a copy that fails, less and less often, and stops at Close.
func TestMirrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var fails atomic.Bool
		fails.Store(true)
		m := &Mirrors{Pulled: []string{"app"}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Pull: func(context.Context, string) error {
				calls.Add(1)
				if fails.Load() {
					return errors.New("away")
				}
				return nil
			}}
		m.Changed("app") // before it is open
		m.Open(t.Context())
		at := func(after time.Duration, want int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n := calls.Load(); n != want {
				t.Errorf("%d attempts, want %d", n, want)
			}
		}
		at(0, 1)
		if s, ok := m.Status("app"); !ok || !s.Pending || s.Error != "away" || !s.At.IsZero() || s.Mode != Pull {
			t.Errorf("%+v, %v", s, ok)
		}
		at(5*time.Second, 2)
		at(10*time.Second, 3)
		at(20*time.Second, 4)
		fails.Store(false)
		at(40*time.Second, 5)
		if s, _ := m.Status("app"); s.Pending || s.Error != "" || s.At.IsZero() {
			t.Errorf("%+v", s)
		}
		at(9*time.Minute, 5)
		at(time.Minute, 6)
		if _, ok := m.Status("other"); ok {
			t.Error("a state of no mirror")
		}
		m.Close()
		at(time.Hour, 6)
	})
	var none *Mirrors
	none.Changed("app")
	none.Close()
}
