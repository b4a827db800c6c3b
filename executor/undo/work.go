package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of a search.
const (
	maxCommits  = 1000   // of a run
	maxHistory  = 10_000 // of the branch since the run began
	maxBlockers = 20
	maxLater    = 20   // runs on the branch of the run
	maxCompared = 1000 // commits that may be squashes of a forge
)

// How is the way in which work got into a branch.
type How string

// The ways.
const (
	Contained How = "merged"   // the branch has the commits themselves
	Copied    How = "rebased"  // the branch has copies
	Squashed  How = "squashed" // the branch has one commit with their changes
)

// Work is the work of a run in a branch.
type Work struct {
	Run     string      `json:"run"`
	Into    string      `json:"into"` // the branch
	Tip     gitd.Hash   `json:"tip"`  // of the branch, when the work was looked for
	How     How         `json:"how"`
	Commits []gitd.Hash `json:"commits"` // to take out, the oldest first
	// As is the commit that has the work, if it was squashed.
	As gitd.Hash `json:"as,omitempty"`
	// Undone is a commit that took the work out before.
	Undone gitd.Hash `json:"undone,omitempty"`
}

// Merged returns the work of a run in a branch. runs are those of its caller. Returns [record.ErrConflict] if the
// branch does not have the work.
func Merged(ctx context.Context, repo *gitd.Repo, r record.Run, runs []record.Run, into string) (Work, error) {
	w, err := merged(ctx, repo, r, runs, into)
	if err != nil {
		return w, fmt.Errorf("cannot find the work of %s in %s: %w", r.Name(), into, err)
	}
	return w, nil
}

func merged(ctx context.Context, repo *gitd.Repo, r record.Run, runs []record.Run, into string) (w Work, err error) {
	w = Work{Run: r.Name(), Into: into}
	if w.Tip, err = repo.Resolve(ctx, "refs/heads/"+into); err != nil {
		return w, err
	}
	own, err := ownCommits(ctx, repo, r)
	if err != nil {
		return w, err
	}
	history, err := repo.Log(ctx, string(w.Tip), gitd.LogOptions{Not: string(r.Start), Max: maxHistory})
	if err != nil {
		return w, err
	}
	for _, c := range history {
		if c.Trailer(record.TrailerUndoes) == r.Name() {
			w.Undone = c.Hash
			break
		}
	}

	in, err := repo.Descends(ctx, w.Tip, r.Head)
	if err != nil {
		return w, err
	}
	if in {
		w.How, w.Commits = Contained, own
		return w, nil
	}
	if w.Commits, err = copies(ctx, repo, own, history); err != nil {
		return w, err
	}
	if len(w.Commits) > 0 {
		w.How = Copied
		return w, nil
	}
	if w.As, err = squash(ctx, repo, r, runs, history); err != nil {
		return w, err
	}
	if w.As == "" {
		return w, fmt.Errorf("it was not merged there: %w", record.ErrConflict)
	}
	w.How, w.Commits = Squashed, own
	return w, nil
}

// squash returns the commit of a history that has the work of a run as a part of a squash, or "". A squash by ramus
// names the last commit of the branch. That of a forge has the whole work of the run, or of a later one on the same
// branch.
func squash(ctx context.Context, repo *gitd.Repo, r record.Run, runs []record.Run,
	history []gitd.Commit) (gitd.Hash, error) {
	var works []provenance.Work // of the branch, when it had the work of the run
	for _, o := range runs {
		if o.Repo != r.Repo || o.Head == "" || len(works) == maxLater {
			continue
		}
		has, err := repo.Descends(ctx, o.Head, r.Head)
		if err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return "", err
		}
		if !has {
			continue
		}
		w, err := provenance.WorkOfRun(ctx, repo, o)
		if err != nil {
			return "", err
		}
		if !slices.Contains(works, w) {
			works = append(works, w)
		}
	}
	compared := 0
	for _, c := range history {
		if tip := gitd.Hash(c.Trailer(gitd.TrailerSquashed)); gitd.CheckHash(tip) == nil {
			has, err := repo.Descends(ctx, tip, r.Head)
			if err != nil && !errors.Is(err, gitd.ErrNotFound) {
				return "", err
			}
			if has {
				return c.Hash, nil
			}
		}
		if len(c.Parents) != 1 || c.Trailer(record.TrailerStep) != "" || compared == maxCompared {
			continue
		}
		compared++
		has, err := provenance.WorkOfCommit(ctx, repo, c)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(works, has.Is) {
			return c.Hash, nil
		}
	}
	return "", nil
}

// ownCommits returns the commits of a run on its own branch, the oldest first, without merges.
func ownCommits(ctx context.Context, repo *gitd.Repo, r record.Run) ([]gitd.Hash, error) {
	if r.Head == "" || r.Start == r.Head {
		return nil, fmt.Errorf("it changed nothing: %w", record.ErrInvalid)
	}
	log, err := repo.Log(ctx, string(r.Head), gitd.LogOptions{Not: string(r.Start), Max: maxCommits + 1, First: true})
	if err != nil {
		return nil, err
	}
	if len(log) > maxCommits {
		return nil, fmt.Errorf("it has more than %d commits: %w", maxCommits, gitd.ErrTooLarge)
	}
	var own []gitd.Hash
	for _, c := range slices.Backward(log) {
		if len(c.Parents) < 2 {
			own = append(own, c.Hash)
		}
	}
	if len(own) == 0 {
		return nil, fmt.Errorf("it has merges alone: %w", record.ErrInvalid)
	}
	return own, nil
}

// copies returns the copies of commits in a history, in the order of the commits.
func copies(ctx context.Context, repo *gitd.Repo, own []gitd.Hash,
	history []gitd.Commit) (list []gitd.Hash, err error) {
	commits, err := repo.Commits(ctx, own)
	if err != nil {
		return nil, err
	}
	for _, c := range commits {
		for _, other := range history {
			if other.Subject != c.Subject || other.Author != c.Author || slices.Contains(list, other.Hash) {
				continue
			}
			same, err := repo.IsCopy(ctx, c.Hash, other.Hash)
			if err != nil {
				return nil, err
			}
			if same {
				list = append(list, other.Hash)
				break
			}
		}
	}
	return list, nil
}

// minDigits is the least number of digits that name a commit. `ramus log` prints ten.
const minDigits = 7

// Steps returns the commits of steps of a run, in the order in which they ran. events is the journal. A step is its name,
// its commit, or the first seven digits of that or more. Returns [record.ErrNotFound] if a step made no commit, and
// [record.ErrInvalid] if digits are those of several commits.
func Steps(r record.Run, events []record.Event, steps []string) ([]gitd.Hash, error) {
	var made []record.Event
	for _, e := range events {
		if e.Type == record.EventStepFinished && e.Commit != "" {
			made = append(made, e)
		}
	}
	wanted := map[gitd.Hash]bool{}
	for _, s := range steps {
		found := commitsOf(made, func(e record.Event) bool { return e.Step == s || string(e.Commit) == s })
		if len(found) == 0 && len(s) >= minDigits {
			found = commitsOf(made, func(e record.Event) bool { return strings.HasPrefix(string(e.Commit), s) })
			if len(found) > 1 {
				return nil, fmt.Errorf("%q begins %d commits of %s: %w", s, len(found), r.Name(), record.ErrInvalid)
			}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("step %q of %s made no commit: %w", s, r.Name(), record.ErrNotFound)
		}
		for _, h := range found {
			wanted[h] = true
		}
	}
	return commitsOf(made, func(e record.Event) bool { return wanted[e.Commit] }), nil
}

// commitsOf returns the commits of the events that are wanted, each once.
func commitsOf(events []record.Event, wanted func(record.Event) bool) (list []gitd.Hash) {
	for _, e := range events {
		if wanted(e) && !slices.Contains(list, e.Commit) {
			list = append(list, e.Commit)
		}
	}
	return list
}

// Blocker is a later commit that changed a file in conflict.
type Blocker struct {
	Path    string    `json:"path"`
	Commit  gitd.Hash `json:"commit"`
	Subject string    `json:"subject"`
	Run     string    `json:"run,omitempty"` // as the commit names it
}

// Blockers returns the last commit of each file in conflict between a commit and the tip of a branch.
func Blockers(ctx context.Context, repo *gitd.Repo, tip, since gitd.Hash, conflicts []string) ([]Blocker, error) {
	list := []Blocker{}
	for _, path := range conflicts[:min(len(conflicts), maxBlockers)] {
		log, err := repo.Log(ctx, string(tip), gitd.LogOptions{Not: string(since), Max: 1, Paths: []string{path}})
		if err != nil {
			return nil, err
		}
		for _, c := range log {
			b := Blocker{Path: path, Commit: c.Hash, Subject: c.Subject}
			if caller, id := c.Trailer(record.TrailerCaller), c.Trailer(record.TrailerRun); caller != "" && id != "" {
				b.Run = caller + "/" + id
			}
			list = append(list, b)
		}
	}
	return list, nil
}
