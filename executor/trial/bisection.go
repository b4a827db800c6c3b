package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/gitd"
)

// Bisection is the search for the first bad commit.
type Bisection struct {
	Repo *gitd.Repo
	// Good and Bad are commits. Good is in the history of Bad.
	Good, Bad gitd.Hash
	// Width is how many commits are tried at once. The default is 4, the most is [bisect.MaxWidth].
	Width int
	Trier *Trier
	Book  *Book
	// Tell is called with each step forward, by one goroutine. Nil means that nothing is called.
	Tell func(Progress)
}

// Progress is a step forward of a search.
type Progress struct {
	Round int   `json:"round"` // from 1
	Left  int   `json:"left"`  // steps that may be the first bad one, when the round began
	Tries []Try `json:"tries"` // of the round; without results when it begins
	Ended bool  `json:"ended"` // the round
}

// Plan describes a search that has not begun.
type Plan struct {
	Good  gitd.Hash `json:"good"`
	Bad   gitd.Hash `json:"bad"`
	Steps int       `json:"steps"`
	Width int       `json:"width"`
	// Rounds is the most rounds that a line of these steps needs, if none is skipped.
	Rounds int `json:"rounds"`
	Known  int `json:"known"` // steps whose trees have results
}

// Found is the answer of a search.
type Found struct {
	Plan Plan `json:"plan"`
	// First is the first bad commit. It is nil if several are left, because the others could not be tried.
	First  *bisect.Step  `json:"first,omitempty"`
	Left   []bisect.Step `json:"left"`
	Try    *Try          `json:"try,omitempty"` // of First
	Rounds int           `json:"rounds"`
	Tries  int           `json:"tries"` // commands that ran
}

// Planned returns the answer of a search that has not begun.
func Planned(p Plan) Found { return Found{Plan: p, Left: []bisect.Step{}} }

// maxTries bounds the commands of one search.
const maxTries = 400

// readSteps reads the steps.
func (b *Bisection) readSteps(ctx context.Context) (*bisect.Search, Plan, error) {
	if b.Width == 0 {
		b.Width = 4
	}
	p := Plan{Good: b.Good, Bad: b.Bad, Width: b.Width}
	if b.Width < 1 || b.Width > bisect.MaxWidth {
		return nil, p, fmt.Errorf("%d commits at once: want 1 to %d: %w", b.Width, bisect.MaxWidth, gitd.ErrInvalid)
	}
	below, err := b.Repo.Descends(ctx, b.Bad, b.Good)
	if err != nil {
		return nil, p, err
	}
	if !below {
		return nil, p, b.explainApart(ctx)
	}
	log, err := b.Repo.Log(ctx, string(b.Bad), gitd.LogOptions{Not: string(b.Good), Max: bisect.MaxSteps + 1,
		Topo: true})
	if err != nil {
		return nil, p, err
	}
	var steps []bisect.Step
	for _, c := range slices.Backward(log) {
		steps = append(steps, bisect.Step{Commit: c.Hash, Tree: c.Tree, Parents: c.Parents})
	}
	known := b.Book.Known()
	search, err := bisect.New(steps, known)
	if err != nil {
		return nil, p, err
	}
	p.Steps = len(steps)
	for left := p.Steps; left > 1; left = (left + b.Width) / (b.Width + 1) {
		p.Rounds++
	}
	for _, st := range steps {
		if _, have := known[st.Tree]; have {
			p.Known++
		}
	}
	return search, p, nil
}

// explainApart returns the error about a good commit that is not in the history of the bad one.
func (b *Bisection) explainApart(ctx context.Context) error {
	base, err := b.Repo.MergeBase(ctx, string(b.Good), string(b.Bad))
	if err != nil {
		return err
	}
	return fmt.Errorf("the good commit %.10s is not in the history of the bad one; both come from %.10s, which may "+
		"be named as the good one: %w", b.Good, base, gitd.ErrInvalid)
}

// Plan returns the plan of [Bisection.Run], and tries nothing.
func (b *Bisection) Plan(ctx context.Context) (Plan, error) {
	_, p, err := b.readSteps(ctx)
	if err != nil {
		return p, fmt.Errorf("cannot bisect: %w", err)
	}
	return p, nil
}

// Run searches. The results of a round are durable before the next one begins.
func (b *Bisection) Run(ctx context.Context) (Found, error) {
	f, err := b.run(ctx)
	if err != nil {
		return f, fmt.Errorf("cannot bisect: %w", err)
	}
	return f, nil
}

func (b *Bisection) run(ctx context.Context) (Found, error) {
	search, p, err := b.readSteps(ctx)
	f := Found{Plan: p}
	if err != nil {
		return f, err
	}
	for round := search.Next(b.Width); len(round) > 0; round = search.Next(b.Width) {
		if f.Tries += len(round); f.Tries > maxTries {
			return f, fmt.Errorf("more than %d commits were tried: %w", maxTries, gitd.ErrTooLarge)
		}
		tries, err := b.tryAll(ctx, Progress{Round: search.Rounds(), Left: len(search.Left())}, round)
		if err != nil {
			return f, err
		}
		for _, t := range tries {
			if err := search.Mark(t.Commit, t.Result); err != nil {
				return f, err
			}
		}
	}
	f.Rounds, f.Left = search.Rounds(), search.Left()
	first, ok := search.Found()
	if !ok {
		return f, nil
	}
	f.First = &first
	return f, b.confirm(ctx, &f)
}

// confirm tries the bad and the good commit if they were only said to be bad and good and decide on the answer.
// Otherwise a command that always fails, or never does, would blame a commit.
func (b *Bisection) confirm(ctx context.Context, f *Found) error {
	var open []bisect.Step
	if _, tried := b.Book.Try(f.First.Tree); !tried {
		open = append(open, *f.First)
	}
	if slices.Contains(f.First.Parents, b.Good) {
		tree, err := b.Repo.TreeOf(ctx, b.Good)
		if err != nil {
			return err
		}
		if _, tried := b.Book.Try(tree); !tried {
			open = append(open, bisect.Step{Commit: b.Good, Tree: tree})
		}
	}
	if len(open) > 0 {
		f.Rounds++
		f.Tries += len(open)
		if _, err := b.tryAll(ctx, Progress{Round: f.Rounds, Left: 1}, open); err != nil {
			return err
		}
	}
	if t, tried := b.Book.Try(f.First.Tree); tried {
		if t.Result == bisect.Good {
			return fmt.Errorf("the bad commit %.10s is good: %w", f.First.Commit, bisect.ErrContradiction)
		}
		f.Try = &t
	}
	if slices.Contains(f.First.Parents, b.Good) {
		tree, err := b.Repo.TreeOf(ctx, b.Good)
		if err != nil {
			return err
		}
		if t, tried := b.Book.Try(tree); tried && t.Result == bisect.Bad {
			return fmt.Errorf("the good commit %.10s is bad: %w", b.Good, bisect.ErrContradiction)
		}
	}
	return nil
}

// tryAll tries the steps of a round at once, and keeps the results. If a try fails, the others are cancelled and
// awaited.
func (b *Bisection) tryAll(ctx context.Context, p Progress, round []bisect.Step) ([]Try, error) {
	for _, st := range round {
		p.Tries = append(p.Tries, Try{Commit: st.Commit, Tree: st.Tree})
	}
	b.tellProgress(p)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tries, errs := make([]Try, len(round)), make([]error, len(round))
	var all sync.WaitGroup
	for i, st := range round {
		all.Go(func() {
			if tries[i], errs[i] = b.Trier.Try(ctx, st); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	all.Wait()
	var done []Try
	for i, t := range tries {
		if errs[i] == nil {
			done = append(done, t)
		}
	}
	if len(done) > 0 {
		// Also after a cancellation, because the next search begins with them.
		if err := b.Book.Add(context.WithoutCancel(ctx), done); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, context.Cause(ctx)
	}
	p.Tries, p.Ended = tries, true
	b.tellProgress(p)
	return tries, nil
}

func (b *Bisection) tellProgress(p Progress) {
	if b.Tell != nil {
		b.Tell(p)
	}
}
