package recall

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/replay"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// Refs begins the refs of results, refs/ramus/checks/KEY.
const Refs = "refs/ramus/checks"

const (
	resultFile  = "check.json"
	stdoutFile  = "stdout"
	stderrFile  = "stderr"
	resultBytes = 4 << 20
	kept        = 1000 // results of a repository, and a tenth more before the oldest are removed
)

// MaxOutput bounds each output of a result that is kept, in bytes.
const MaxOutput = 8 << 20

// Result is the end of a check.
type Result struct {
	Caller     record.Caller       `json:"caller"`
	Run        string              `json:"run"` // the id within the caller
	Step       string              `json:"step"`
	Time       time.Time           `json:"time"`
	DurationMS int64               `json:"duration_ms"`
	Exit       int                 `json:"exit"`
	Result     workflow.StepResult `json:"result"`
	// Differs is set if the check was different when it was run again.
	Differs bool   `json:"differs,omitempty"`
	Stdout  []byte `json:"-"`
	Stderr  []byte `json:"-"`
}

// Reused returns the place of the result, for records of checks that have the same one.
func (r Result) Reused() *record.Reused {
	return &record.Reused{Run: r.Caller.String() + "/" + r.Run, Step: r.Step, At: r.Time, DurationMS: r.DurationMS}
}

// Book keeps the results of a repository. A person may delete their refs to forget them. Methods are safe for concurrent
// use, also by several servers.
type Book struct {
	Repo *gitd.Repo
	Bot  gitd.Person
	Now  func() time.Time
	// Hides reports whether the work of a caller is hidden from others. Nil hides nothing.
	Hides func(c record.Caller) bool
	// Kept is how many results are kept. 0 means 1000.
	Kept int
}

// Find returns the result of a subject for a caller. Returns [gitd.ErrNotFound] if none may be used.
func (b *Book) Find(ctx context.Context, s Subject, by record.Caller) (Result, error) {
	key, err := s.Key()
	if err != nil {
		return Result{}, err
	}
	r, at, err := b.read(ctx, key)
	if err != nil {
		return Result{}, err
	}
	if r.Differs || b.hides(r.Caller) && r.Caller != by {
		return Result{}, gitd.ErrNotFound
	}
	if _, err := b.Repo.Resolve(ctx, record.RunRef(r.Caller, r.Run)); err != nil {
		return Result{}, err // without its run nobody could look at it
	}
	differs, err := b.differs(ctx, r)
	if err != nil {
		return Result{}, err
	}
	if differs {
		// The verdict goes with the run. This does not.
		r.Differs, r.Stdout, r.Stderr = true, nil, nil
		if err := b.write(ctx, key, r, at); err != nil && !errors.Is(err, gitd.ErrConflict) {
			return Result{}, err
		}
		return Result{}, gitd.ErrNotFound
	}
	for _, f := range []struct {
		name string
		into *[]byte
	}{{stdoutFile, &r.Stdout}, {stderrFile, &r.Stderr}} {
		if *f.into, err = b.Repo.ReadFile(ctx, string(at), f.name, MaxOutput+1); err != nil {
			return Result{}, fmt.Errorf("cannot read the output at %s/%s: %w", Refs, key, err)
		}
	}
	return r, nil
}

func (b *Book) hides(c record.Caller) bool { return b.Hides != nil && b.Hides(c) }

// differs reports whether a result was different when its run was replayed.
func (b *Book) differs(ctx context.Context, r Result) (bool, error) {
	v, err := replay.Read(ctx, b.Repo, record.Run{Caller: r.Caller, ID: r.Run})
	if errors.Is(err, gitd.ErrNotFound) {
		return false, nil
	}
	return slices.ContainsFunc(v.Commands, func(c replay.Checked) bool {
		return c.Step == r.Step && c.Result == replay.Differs
	}), err
}

// read returns the result at a key without its outputs.
func (b *Book) read(ctx context.Context, key string) (r Result, at gitd.Hash, err error) {
	if at, err = b.Repo.Resolve(ctx, Refs+"/"+key); err != nil {
		return r, "", err
	}
	text, err := b.Repo.ReadFile(ctx, string(at), resultFile, resultBytes)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, at, fmt.Errorf("cannot read the result at %s/%s: %w", Refs, key, err)
	}
	return r, at, nil
}

// Keep keeps the result of a subject, durably, and removes the oldest ones. It replaces an earlier one, unless that was
// different when it was run again. A result of a hidden caller, and one that is too large, is not kept.
func (b *Book) Keep(ctx context.Context, s Subject, r Result) error {
	key, err := s.Key()
	if err != nil {
		return err
	}
	if b.hides(r.Caller) || len(r.Stdout) > MaxOutput || len(r.Stderr) > MaxOutput {
		return nil
	}
	earlier, at, err := b.read(ctx, key)
	switch {
	case errors.Is(err, gitd.ErrNotFound):
	case at == "":
		return err
	case err == nil:
		if !earlier.Differs {
			earlier.Differs, err = b.differs(ctx, earlier)
		}
		if err != nil {
			return err
		}
		if earlier.Differs {
			earlier.Stdout, earlier.Stderr = nil, nil
			r = earlier
		}
	}
	err = b.write(ctx, key, r, at)
	if errors.Is(err, gitd.ErrConflict) {
		return nil // somebody else kept the same result
	}
	if err != nil {
		return fmt.Errorf("cannot keep the result of a check: %w", err)
	}
	return b.prune(ctx)
}

func (b *Book) write(ctx context.Context, key string, r Result, old gitd.Hash) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil || len(text) >= resultBytes {
		return err
	}
	name := r.Caller.String() + "/" + r.Run
	commit, err := b.Repo.WriteCommit(ctx, gitd.NewCommit{Author: b.Bot, When: b.Now(),
		Message: fmt.Sprintf("Result of %s of %s\n\n%s: %s\n%s: %s\n%s: %s\n", r.Step, name, record.TrailerCaller, r.Caller,
			record.TrailerRun, r.Run, record.TrailerStep, r.Step),
		Put: []gitd.File{{Path: resultFile, Content: append(text, '\n')}, {Path: stdoutFile, Content: r.Stdout},
			{Path: stderrFile, Content: r.Stderr}}})
	if err != nil {
		return err
	}
	return b.Repo.Update(ctx, gitd.RefUpdate{Name: Refs + "/" + key, New: commit, Old: &old})
}

// prune removes the oldest results if there are too many.
func (b *Book) prune(ctx context.Context) error {
	return b.Repo.PruneRefs(ctx, Refs, cmp.Or(b.Kept, kept))
}
