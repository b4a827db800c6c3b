package tournament

import (
	"context"
	"errors"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Standing is a tournament with its places now.
type Standing struct {
	Record
	Places []Place `json:"places"`
	Ended  bool    `json:"ended"` // all entries
	// Unjudged is why a model that was asked has no opinion.
	Unjudged string `json:"unjudged,omitempty"`
}

// Runs has the runs of callers and their evidence.
type Runs interface {
	OfCaller(c record.Caller) []record.Run
	Manifest(ctx context.Context, run string) (record.Manifest, error)
}

// Look returns the places of a tournament.
func Look(ctx context.Context, repo *gitd.Repo, runs Runs, r Record) (Standing, error) {
	s := Standing{Record: r, Ended: true}
	var results []Result
	for _, e := range r.Entries {
		one, err := look(ctx, repo, runs, r.Plan, e)
		if err != nil {
			return s, err
		}
		s.Ended = s.Ended && one.Ended
		results = append(results, one)
	}
	opinion := r.Opinion
	if opinion != nil && opinion.Of != heads(results) {
		opinion = nil
	}
	s.Opinion = opinion
	s.Places = Rank(results, opinion)
	return s, nil
}

// heads names the entries with their last commits.
func heads(results []Result) string {
	name := ""
	for _, r := range results {
		name += r.Caller.ID() + "@" + string(r.Head) + " "
	}
	return name
}

// look returns the evidence of an entry.
func look(ctx context.Context, repo *gitd.Repo, runs Runs, p Plan, e Entry) (Result, error) {
	out := Result{Entry: e, Ended: e.Refused != "", Error: e.Refused}
	var last record.Run
	for _, r := range runs.OfCaller(e.Caller) {
		if r.Aside() || r.Repo != p.Repo {
			continue
		}
		last = r
		out.Tokens += r.Usage.Tokens()
		if r.Usage != nil {
			out.CostMicros += r.Usage.CostMicros
		}
		if r.Ended() && !r.StartedAt.IsZero() {
			out.DurationMS += r.EndedAt.Sub(r.StartedAt).Milliseconds()
		}
	}
	if last.ID == "" {
		return out, nil
	}
	out.Run, out.State, out.Error, out.Head = last.Name(), last.State, last.Error, last.Head
	tip, err := repo.Resolve(ctx, "refs/heads/"+e.Caller.Branch())
	switch {
	case errors.Is(err, gitd.ErrNotFound):
		out.Dropped = true
	case err != nil:
		return out, err
	default:
		out.Head = tip
	}
	if !last.Ended() {
		return out, nil
	}
	m, err := runs.Manifest(ctx, last.Name())
	if errors.Is(err, record.ErrNotFound) || err == nil && m.State != last.State {
		return out, nil // it is sealed soon
	}
	if err != nil {
		return out, err
	}
	out.Ended, out.Verdict = true, m.Verdict
	if out.Head == last.Head {
		out.Checks = lastChecks(m.Checks)
	} else {
		out.Verdict = record.VerdictUnverified // somebody pushed to the branch since
	}
	for _, c := range out.Checks {
		switch c.Result {
		case record.CheckPassed:
			out.Passed++
		case record.CheckFailed:
			out.Failed++
		}
	}
	if out.Head == "" || out.Head == p.At {
		return out, nil
	}
	changes, err := repo.Changed(ctx, string(p.At), string(out.Head), false)
	if err != nil {
		return out, err
	}
	out.Files = len(changes)
	for _, c := range changes {
		out.Added += abs(c.Added)
		out.Deleted += abs(c.Deleted)
	}
	return out, nil
}

// abs counts a binary file, whose lines are -1, as one line.
func abs(n int) int { return max(n, -n) }

// lastChecks returns the last result of each check of the files at the end. A check of one kind with other parameters is
// another one.
func lastChecks(all []record.ManifestCheck) (list []Check) {
	seen := map[[2]string]bool{}
	for _, c := range slices.Backward(all) {
		id := [2]string{c.Task, c.Command}
		if seen[id] || !c.Current && c.Result.Ran() {
			continue
		}
		seen[id] = true
		list = append(list, Check{Check: c.Check, Result: c.Result, Why: text.Clip(c.Why, 300)})
	}
	slices.Reverse(list)
	return list
}
