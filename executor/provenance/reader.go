package provenance

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of an answer.
const (
	maxCauses   = 2000    // of which the steps are looked for
	maxRounds   = 3       // of squashes of branches that have squashes
	maxForeign  = 50      // commits without trailers that are compared with the work of runs
	maxCompared = 200     // runs that such a commit is compared with
	maxChanges  = 5000    // of a branch that is compared
	maxOutput   = 2 << 10 // of a stream, in bytes
	maxPrompt   = 4 << 10 // in bytes
	maxPrompts  = 20
	maxChecks   = 20
	maxLater    = 10 // later runs of the caller that are searched for checks
)

// Runs are the runs of a server.
type Runs interface {
	// Find returns the run of a caller with this id, in any repository.
	Find(c record.Caller, id string) (record.Run, bool)
	// OfCaller returns the runs of a caller, the oldest first.
	OfCaller(c record.Caller) []record.Run
	// Runs returns runs, the newest first.
	Runs(ctx context.Context, f record.Filter) ([]record.Run, error)
	// Events returns the journal of a run.
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
}

// Reader answers questions. Methods are safe for concurrent use.
type Reader struct{ Runs Runs }

// Explain answers a question. Returns [gitd.ErrNotFound] if there is no such file or line.
func (r *Reader) Explain(ctx context.Context, q Question) (Answer, error) {
	a, err := r.explain(ctx, q)
	if err != nil {
		return a, fmt.Errorf("cannot explain %.200q: %w", q.Path, err)
	}
	return a, nil
}

func (r *Reader) explain(ctx context.Context, q Question) (Answer, error) {
	a := Answer{Repo: q.Repo.Name(), Path: q.Path, Lines: []Line{}, Causes: []Cause{}}
	var err error
	if a.Commit, err = q.Repo.Resolve(ctx, q.Rev); err != nil {
		return a, err
	}
	if q.Sees == nil {
		q.Sees = func(record.Run) bool { return true }
	}
	s := &search{reader: r, q: q, at: a.Commit, journals: map[string][]record.Event{}, tasks: map[record.Caller]task{}}
	lines, err := s.blame(ctx)
	if err != nil {
		return a, err
	}

	place := map[gitd.Hash]int{}
	for _, l := range lines {
		at, known := place[l.Commit]
		if !known {
			at = len(a.Causes)
			place[l.Commit] = at
			a.Causes = append(a.Causes, s.cause(l))
		}
		a.Lines = append(a.Lines, Line{Line: l.Line, Was: l.Was, Path: l.Path, Text: l.Text, Cause: at})
	}
	for i := range a.Causes[:min(len(a.Causes), maxCauses)] {
		if err := s.addStep(ctx, &a.Causes[i]); err != nil {
			return a, err
		}
	}
	return a, nil
}

// ExplainCommit returns the cause of a commit, as if it were that of a line.
func (r *Reader) ExplainCommit(ctx context.Context, repo *gitd.Repo, commit gitd.Hash,
	sees func(record.Run) bool) (Cause, error) {
	if sees == nil {
		sees = func(record.Run) bool { return true }
	}
	s := &search{reader: r, q: Question{Repo: repo, Sees: sees}, at: commit, commits: map[gitd.Hash]gitd.Commit{},
		journals: map[string][]record.Event{}, tasks: map[record.Caller]task{}}
	_, err := s.readCommits(ctx, []gitd.BlamedLine{{Commit: commit}})
	c := s.cause(gitd.BlamedLine{Commit: commit})
	if err == nil {
		err = s.addStep(ctx, &c)
	}
	if err != nil {
		return c, fmt.Errorf("cannot explain the commit %s: %w", commit, err)
	}
	return c, nil
}

// search is the work at one question.
type search struct {
	reader  *Reader
	q       Question
	at      gitd.Hash // at which the file is read
	commits map[gitd.Hash]gitd.Commit
	// grafts has the squashes and their parents, as git is to take them.
	grafts map[gitd.Hash][]gitd.Hash
	// runs are the visible runs of the repository that changed something, the newest first. They are read once.
	runs     []record.Run
	haveRuns bool
	works    map[gitd.Hash]Work        // of these runs, by their last commits
	foreign  int                       // commits without trailers that were looked for inside of steps
	journals map[string][]record.Event // by name of the run
	tasks    map[record.Caller]task
}

// blame returns the lines with their commits. It runs git once, and once more for each level of squashes.
func (s *search) blame(ctx context.Context) ([]gitd.BlamedLine, error) {
	s.commits, s.grafts, s.works = map[gitd.Hash]gitd.Commit{}, map[gitd.Hash][]gitd.Hash{}, map[gitd.Hash]Work{}
	for round := 0; ; round++ {
		lines, err := s.q.Repo.Blame(ctx, string(s.at), s.q.Path,
			gitd.BlameOptions{From: s.q.From, To: s.q.To, Grafts: s.grafts})
		if err != nil {
			return nil, err
		}
		fresh, err := s.readCommits(ctx, lines)
		if err != nil || round == maxRounds {
			return lines, err
		}
		found, err := s.findSquashes(ctx, fresh)
		if err != nil || !found {
			return lines, err
		}
	}
}

// readCommits reads the commits of lines that were not read yet, and returns them in the order of the lines.
func (s *search) readCommits(ctx context.Context, lines []gitd.BlamedLine) ([]gitd.Commit, error) {
	var missing []gitd.Hash
	for _, l := range lines {
		if _, have := s.commits[l.Commit]; !have {
			s.commits[l.Commit] = gitd.Commit{}
			missing = append(missing, l.Commit)
		}
	}
	list, err := s.q.Repo.Commits(ctx, missing)
	for _, c := range list {
		s.commits[c.Hash] = c
	}
	return list, err
}

// cause returns the cause of a line without its step.
func (s *search) cause(l gitd.BlamedLine) Cause {
	c := s.commits[l.Commit]
	return Cause{Commit: l.Commit, Subject: c.Subject, Author: c.Author, When: c.When, First: l.First}
}

// events returns the journal of a run. It is read once.
func (s *search) events(ctx context.Context, r record.Run) ([]record.Event, error) {
	if events, have := s.journals[r.Name()]; have {
		return events, nil
	}
	var events []record.Event
	for e, err := range s.reader.Runs.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		e.Data = slices.Clone(e.Data)
		events = append(events, e)
	}
	s.journals[r.Name()] = events
	return events, nil
}

// changing returns the visible runs of the repository that changed something, the newest first.
func (s *search) changing(ctx context.Context) ([]record.Run, error) {
	if s.haveRuns {
		return s.runs, nil
	}
	list, err := s.reader.Runs.Runs(ctx, record.Filter{Repo: s.q.Repo.Name(), Max: maxCompared,
		Keep: func(r record.Run) bool {
			return !r.Passive() && r.Changed() && r.Head != "" && s.q.Sees(r)
		}})
	s.runs, s.haveRuns = list, err == nil
	return list, err
}
