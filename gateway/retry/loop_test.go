package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

var (
	errDown    = errors.New("down")
	errRefused = errors.New("refused")
)

// TestLoop plays attempts, and checks how many there are and how long the pauses between them.
func TestLoop(t *testing.T) {
	limited := func(after time.Duration) error { return &Temporary{Err: errDown, After: after, Limited: true} }
	temporary := func(after time.Duration) error { return &Temporary{Err: errDown, After: after} }
	const some = -1 // a pause of the loop's own choice, up to its patience
	for _, tt := range []struct {
		name    string
		results []error // of the attempts
		pauses  []time.Duration
		want    error
		asked   string // the attempts after which Done was asked
	}{
		{"at once", []error{nil}, nil, nil, ""},
		{"refused", []error{errRefused}, nil, errRefused, ""},
		{"later", []error{errDown, errDown, nil}, []time.Duration{some, some}, nil, "1 2 "},
		{"refused later", []error{errDown, fmt.Errorf("x: %w", errRefused)}, []time.Duration{some}, errRefused, "1 "},
		{"the server's pause", []error{temporary(7 * time.Second), nil}, []time.Duration{7 * time.Second}, nil, "1 "},
		{"limited with a pause", []error{limited(7 * time.Second), nil}, []time.Duration{7 * time.Second}, nil, ""},
		{"limited", []error{limited(0), limited(0), limited(0), nil},
			[]time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute}, nil, ""},
		{"limited for long", []error{limited(0), limited(0), limited(0), limited(0), limited(0), limited(0), limited(0),
			limited(0), nil},
			[]time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute,
				32 * time.Minute, MaxPause, MaxPause}, nil, ""},
		{"unsure, then limited", []error{errDown, limited(time.Second), nil}, []time.Duration{some, time.Second},
			nil, "1 2 "},
		{"limited, then unsure", []error{limited(time.Second), errDown, nil}, []time.Duration{time.Second, some}, nil, "2 "},
	} {
		n, asked, pauses := 0, "", []time.Duration{}
		loop := &Loop{What: "post", Server: "Forge", Patience: time.Minute, Log: slog.New(slog.DiscardHandler),
			Refused: func(err error) bool { return errors.Is(err, errRefused) },
			Done:    func() (bool, error) { asked += fmt.Sprint(n, " "); return false, nil },
			Sleep:   func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }}
		err := loop.Run(t.Context(), func() error { n++; return tt.results[n-1] })
		if !errors.Is(err, tt.want) || n != len(tt.results) || asked != tt.asked || len(pauses) != len(tt.pauses) {
			t.Errorf("%s: %d attempts, pauses %v, asked after %q, %v", tt.name, n, pauses, asked, err)
			continue
		}
		if err != nil && !strings.HasPrefix(err.Error(), "cannot post: ") {
			t.Errorf("%s: %v", tt.name, err)
		}
		for i, want := range tt.pauses {
			if got := pauses[i]; got != want && (want != some || got < 250*time.Millisecond || got > time.Minute) {
				t.Errorf("%s: pauses %v, want %v", tt.name, pauses, tt.pauses)
			}
		}
	}
	if MaxPause != 61*time.Minute {
		t.Errorf("the longest pause is %v, and an hourly limit has to fit", MaxPause)
	}
}

// TestLoopDone checks that a request that was performed is not made again.
func TestLoopDone(t *testing.T) {
	for name, tt := range map[string]struct {
		done func() (bool, error)
		n    int
		want error
	}{
		"performed":     {func() (bool, error) { return true, nil }, 1, nil},
		"not performed": {func() (bool, error) { return false, nil }, 2, errRefused},
		"unknown":       {func() (bool, error) { return false, errDown }, 1, errDown},
		"harmless":      {nil, 2, errRefused},
	} {
		n := 0
		loop := &Loop{What: "post", Patience: time.Second, Log: slog.New(slog.DiscardHandler), Done: tt.done,
			Refused: func(err error) bool { return errors.Is(err, errRefused) },
			Sleep:   func(context.Context, time.Duration) error { return nil }}
		err := loop.Run(t.Context(), func() error {
			if n++; n == 2 {
				return errRefused
			}
			return errDown
		})
		if n != tt.n || !errors.Is(err, tt.want) {
			t.Errorf("%s: %d attempts, %v", name, n, err)
		}
	}
}

// TestLoopEnds checks that the end of the context ends the loop, and that the error has both reasons.
func TestLoopEnds(t *testing.T) {
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	slept := 0
	loop := &Loop{What: "post", Patience: time.Second, Log: slog.New(slog.DiscardHandler),
		Refused: func(error) bool { return false },
		Sleep:   func(ctx context.Context, _ time.Duration) error { slept++; return context.Cause(ctx) }}
	err := loop.Run(ctx, func() error { cancel(why); return errDown })
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "the last attempt: down") || slept != 0 {
		t.Errorf("during an attempt: %v, %d pauses", err, slept)
	}

	loop.Sleep = func(context.Context, time.Duration) error { slept++; return why }
	err = loop.Run(t.Context(), func() error { return errDown })
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "the last attempt: down") || slept != 1 {
		t.Errorf("during a pause: %v, %d pauses", err, slept)
	}
}

// TestLaneCloses checks how long a lane is closed.
func TestLaneCloses(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var slept []time.Duration
	l := &Lanes{Now: func() time.Time { return now }, Sleep: func(_ context.Context, d time.Duration) error {
		slept = append(slept, d)
		now = now.Add(d)
		return nil
	}}
	enter := func() func(time.Duration) {
		t.Helper()
		leave, err := l.Enter(t.Context(), "a", 2)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	first, second := enter(), enter()
	first(time.Minute)
	second(time.Second) // the longer time counts
	third := enter()
	if len(slept) != 1 || slept[0] != time.Minute {
		t.Errorf("pauses %v", slept)
	}
	third(0)
	enter()(-time.Minute)
	if len(slept) != 1 || len(l.lanes) != 0 {
		t.Errorf("pauses %v, %d lanes", slept, len(l.lanes))
	}
}
