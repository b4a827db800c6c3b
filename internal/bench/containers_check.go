package main

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
)

// checkCommand stands for a check of a second that prints a little.
const checkCommand = "sleep 1; git ls-files | wc -l"

// knownChecks measures a check whose result is known, in a container that is there.
func knownChecks(ctx context.Context, b *bench) error {
	h, r, err := b.furnished(ctx, "check", 0, small)
	if err != nil {
		return err
	}
	caller, first := h.name(), ""
	check := func(pure, known bool) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			x, err := h.exec(ctx, caller, r.name, record.Command{Shell: checkCommand, Pure: pure})
			if err != nil {
				return err
			}
			if got := x.result.Reused != nil; got != known {
				return fmt.Errorf("the result was known: %t, want %t", got, known)
			}
			return x.printed(first)
		}
	}
	x, err := h.exec(ctx, caller, r.name, record.Command{Shell: checkCommand, Pure: true})
	if err != nil {
		return err
	}
	first = x.text.String()
	const runs, nothing = "the check runs", "exec true"
	m, err := b.compare(ctx, comparison{metrics: []metric{wall}, sides: []side{
		{name: sideRamus, round: timed(check(true, true))},
		{name: runs, round: timed(check(false, false))},
		{name: nothing, round: timed(func(ctx context.Context, _ int) error {
			x, err := h.exec(ctx, caller, r.name, record.Command{Args: []string{"true"}})
			if err != nil {
				return err
			}
			return x.printed("")
		})},
	}})
	if err != nil {
		return err
	}
	b.add(m, "a check of 1 s whose result is known", wall.what, runs, atMost(0.1))
	b.add(m, "the same", wall.what, nothing, target{})
	return nil
}
