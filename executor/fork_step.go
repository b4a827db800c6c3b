package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// maxStepRuns bounds the runs of a caller in which a step is looked for.
const maxStepRuns = 200

// aCommit matches names of commits of the usual lengths, which no step is looked for.
var aCommit = pattern.New(`^[0-9a-f]{7,64}$`)

// stepStart is the beginning of a step, at which a fork begins.
type stepStart struct {
	run, step string
	time      time.Time
	parent    gitd.Hash
}

// findStep has a fork that names a step, as STEP or RUN/STEP, begin at the commit from which the last step of this name
// began. It returns nil, and changes nothing, if f names no step.
func (p *plan) findStep(ctx context.Context, of record.Caller, f *record.Fork) (*stepStart, error) {
	name := string(f.Commit)
	if name == "" || aCommit.MatchString(name) {
		return nil, nil
	}
	id, rest, ofRun := strings.Cut(name, "/")
	runs := p.x.OfCaller(of)
	for _, r := range slices.Backward(runs[max(len(runs)-maxStepRuns, 0):]) {
		step := name
		if ofRun && r.ID == id {
			step = rest
		}
		began, err := p.lastStart(ctx, r, step)
		if err != nil {
			return nil, fmt.Errorf("cannot look for step %q in %s: %w", step, r.Name(), err)
		}
		if began != nil {
			f.Commit = began.parent
			return began, nil
		}
	}
	return nil, nil
}

// lastStart returns the last beginning of a step on the run's own branch, or nil.
func (p *plan) lastStart(ctx context.Context, r record.Run, name string) (last *stepStart, err error) {
	for e, err := range p.x.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		if e.Type != record.EventStepStarted || e.Step != name || e.Parent == "" {
			continue
		}
		var st step.Started
		if json.Unmarshal(e.Data, &st) == nil && !st.Caller.IsZero() && st.Caller != r.Caller {
			continue // of a line of a fan-out, which is a caller of its own
		}
		last = &stepStart{run: r.ID, step: name, time: e.Time, parent: e.Parent}
	}
	return last, nil
}

// stateBefore returns the memory of a caller's agents when a step began. state is their newest one. Returns "" if they
// had none. The memory that the step itself left names the step. Otherwise the time decides, to the second.
func stateBefore(ctx context.Context, repo *gitd.Repo, state gitd.Hash, began *stepStart) (gitd.Hash, error) {
	log, err := repo.Log(ctx, string(state), gitd.LogOptions{Max: maxStates})
	if err != nil {
		return "", err
	}
	for i, s := range log {
		if s.Trailer(record.TrailerRun) != began.run || s.Trailer(record.TrailerStep) != began.step {
			continue
		}
		if i+1 < len(log) {
			return log[i+1].Hash, nil
		}
		return "", nil
	}
	return newestUntil(log, began.time), nil
}

// maxStates bounds the states of a memory that are searched.
const maxStates = 1000

// newestUntil returns the newest commit of a log that is not later than a time, or "".
func newestUntil(log []gitd.Commit, when time.Time) gitd.Hash {
	for _, s := range log {
		if !s.When.After(when) {
			return s.Hash
		}
	}
	return ""
}

// ForkStart is the beginning of a fork.
type ForkStart struct {
	Of     string    // the other caller
	Commit gitd.Hash // where it begins
	// Repo and Base are the repository and the base of the other caller.
	Repo, Base string
	// Memory is the memory of the agents at that time. It is empty if they had none.
	Memory gitd.Hash
}

// ForkStart returns where a fork would begin. The commit of f may be the name of a step, see [record.Fork]. Nothing is
// changed.
func (x *Executor) ForkStart(ctx context.Context, f record.Fork) (ForkStart, error) {
	p := &plan{x: x}
	if err := p.setFork(ctx, f); err != nil {
		return ForkStart{}, err
	}
	return ForkStart{Of: p.run.Fork.Of, Commit: p.start, Repo: p.run.Repo, Base: p.run.Base, Memory: p.state}, nil
}
