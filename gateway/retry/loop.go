package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

const (
	// LimitPause is the first pause after a rate limit without a time.
	LimitPause = time.Minute
	// MaxPause bounds the pauses that servers ask for. The longest of them, an hourly limit, lasts an hour.
	MaxPause = time.Hour + time.Minute
)

// Temporary is a failure that may be gone at the next attempt.
type Temporary struct {
	Err   error
	After time.Duration // the pause that the server asks for; 0 if it names none
	// Limited means that a rate limit prevented the request. Otherwise it may have been performed.
	Limited bool
}

func (e *Temporary) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Temporary) Unwrap() error { return e.Err }

// Loop repeats a request until it succeeds, is refused, or its context ends. All fields but Done are required.
type Loop struct {
	// What completes "cannot WHAT" in errors.
	What string
	// Server is the title of the server, for the log.
	Server string
	// Done is called before every attempt after one that may have been performed, and reports whether it was. Nil means
	// that a second attempt does no harm.
	Done func() (bool, error)
	// Refused reports whether an error is the server's answer, which a further attempt would not change. Errors that are
	// not a Temporary are repeated too, because an answer that could not be read may come from a system in between.
	Refused func(error) bool
	// Patience is the longest pause that the loop chooses itself.
	Patience time.Duration
	Sleep    func(ctx context.Context, d time.Duration) error
	Log      *slog.Logger
}

// Run makes the attempts.
func (l *Loop) Run(ctx context.Context, attempt func() error) error {
	unsure := false
	for n := 1; ; n++ {
		if unsure && l.Done != nil {
			if was, err := l.Done(); was || err != nil {
				return err
			}
		}
		err := attempt()
		if err == nil {
			return nil
		}
		if l.Refused(err) {
			return fmt.Errorf("cannot %s: %w", l.What, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("cannot %s: %w (the last attempt: %v)", l.What, context.Cause(ctx), err)
		}

		var failure *Temporary
		if !errors.As(err, &failure) {
			failure = &Temporary{Err: err}
		}
		// Even if this attempt surely had no effect, an earlier one may have.
		unsure = unsure || !failure.Limited
		pause := failure.After
		if pause == 0 && failure.Limited {
			pause = min(LimitPause<<min(n-1, 6), MaxPause)
		} else if pause == 0 {
			pause = Backoff(n, l.Patience)
		}
		l.Log.LogAttrs(ctx, slog.LevelWarn, "a server did not answer; waiting", slog.String("server", l.Server),
			slog.String("to", l.What), slog.Int("attempt", n), slog.Duration("pause", pause), slog.Any("err", err))
		if err := l.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("cannot %s: %w (the last attempt: %v)", l.What, err, failure)
		}
	}
}
