package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Refs begins the refs of verdicts, refs/ramus/replays/CALLER/RUN.
const Refs = "refs/ramus/replays"

const (
	verdictFile  = "verdict.json"
	verdictBytes = 32 << 20
	verdictSaves = 5 // attempts, while others write
)

// Result is the result of a replay.
type Result string

// The results.
const (
	Same    Result = "same"    // each time the outcome was equal
	Differs Result = "differs" // at least once it was not
	Left    Result = "left"    // it was not run again
	// The results of a run. A run is reproducible if all its commands are the same. It is partly so if none differs,
	// and some were left.
	Reproducible Result = "reproducible"
	Partly       Result = "partly"
)

// Checked is a command with its result.
type Checked struct {
	Command
	Result Result  `json:"result,omitempty"` // empty if it has not run
	Tries  []Tried `json:"tries,omitempty"`
	// Differences are those of the first try that differs.
	Differences []Difference `json:"differences,omitempty"`
}

// Tried is one time that a command was run again.
type Tried struct {
	Run        string `json:"run"` // CALLER/RUN
	DurationMS int64  `json:"duration_ms"`
	Differs    bool   `json:"differs,omitempty"`
}

// Verdict has the results of the commands of a run.
type Verdict struct {
	Run      string      `json:"run"` // CALLER/RUN
	Time     time.Time   `json:"time,omitzero"`
	By       gitd.Person `json:"by,omitzero"`
	Result   Result      `json:"result,omitempty"` // empty for a plan
	Commands []Checked   `json:"commands"`
}

// Planned returns a verdict without results, except that of the commands that are left out.
func Planned(r record.Run, commands []Command) Verdict {
	v := Verdict{Run: r.Name(), Commands: make([]Checked, len(commands))}
	for i, c := range commands {
		if v.Commands[i].Command = c; c.Why != "" {
			v.Commands[i].Result = Left
		}
	}
	return v
}

// Count returns the number of commands with a result.
func (v Verdict) Count(r Result) int {
	n := 0
	for _, c := range v.Commands {
		if c.Result == r {
			n++
		}
	}
	return n
}

// judge sets the result of the run.
func (v *Verdict) judge() {
	switch {
	case v.Count(Differs) > 0:
		v.Result = Differs
	case v.Count(Same) == len(v.Commands):
		v.Result = Reproducible
	default:
		v.Result = Partly
	}
}

// takeResults fills in the results of an earlier verdict for the commands that were not asked for.
func (v *Verdict) takeResults(earlier Verdict) {
	known := make(map[string]Checked, len(earlier.Commands))
	for _, c := range earlier.Commands {
		known[c.Step] = c
	}
	for i, c := range v.Commands {
		if old, have := known[c.Step]; have && c.Why == notAsked {
			v.Commands[i] = old
		}
	}
	v.judge()
}

// ref returns the ref of the verdict about a run.
func ref(r record.Run) string { return Refs + "/" + r.Caller.Slug() + "/" + r.ID }

// Read returns the verdict about a run. Returns [gitd.ErrNotFound] if it was not replayed.
func Read(ctx context.Context, repo *gitd.Repo, r record.Run) (Verdict, error) {
	v, _, err := read(ctx, repo, r)
	return v, err
}

func read(ctx context.Context, repo *gitd.Repo, r record.Run) (v Verdict, at gitd.Hash, err error) {
	if at, err = repo.Resolve(ctx, ref(r)); err != nil {
		return v, "", err
	}
	text, err := repo.ReadFile(ctx, string(at), verdictFile, verdictBytes)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		return v, at, fmt.Errorf("cannot read the verdict at %s: %w", ref(r), err)
	}
	return v, at, nil
}

// keep adds the results of an earlier verdict to v, and keeps it, durably.
func (p *Replayer) keep(ctx context.Context, r record.Run, v *Verdict) error {
	for try := 1; ; try++ {
		earlier, old, err := read(ctx, p.Repo, r)
		if err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
		v.takeResults(earlier)
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return err
		}
		commit, err := p.Repo.WriteCommit(ctx, gitd.NewCommit{Put: []gitd.File{{Path: verdictFile, Content: append(text, '\n')}},
			Author: p.Bot, When: v.Time, Message: fmt.Sprintf("Replay of %s: %s", r.Name(), v.Result)})
		if err != nil {
			return err
		}
		err = p.Repo.Update(ctx, gitd.RefUpdate{Name: ref(r), New: commit, Old: &old})
		if !errors.Is(err, gitd.ErrConflict) || try == verdictSaves {
			return err
		}
	}
}
