package provenance

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// findSquashes adds the squashes among commits to the grafts, and reports whether there are any.
func (s *search) findSquashes(ctx context.Context, commits []gitd.Commit) (found bool, err error) {
	foreign := 0
	for _, c := range commits {
		if len(c.Parents) != 1 || c.Trailer(record.TrailerStep) != "" {
			continue
		}
		tip, err := s.squashed(ctx, c)
		if err != nil {
			return found, err
		}
		if tip == "" && foreign < maxForeign {
			foreign++
			if tip, err = s.alike(ctx, c); err != nil {
				return found, err
			}
		}
		if tip == "" {
			continue
		}
		apart, err := s.apart(ctx, c.Hash, tip)
		if err != nil {
			return found, err
		}
		if apart {
			s.grafts[c.Hash] = []gitd.Hash{c.Parents[0], tip}
			found = true
		}
	}
	return found, nil
}

// squashed returns the commit whose changes a squash names to have. Returns "" if it is not part of visible work,
// because everybody who pushes a commit chooses its trailers.
func (s *search) squashed(ctx context.Context, c gitd.Commit) (gitd.Hash, error) {
	tip := gitd.Hash(c.Trailer(gitd.TrailerSquashed))
	if gitd.CheckHash(tip) != nil {
		return "", nil
	}
	if _, err := s.q.Repo.TreeOf(ctx, tip); errors.Is(err, gitd.ErrNotFound) {
		return "", nil // its branch was deleted, and nothing else kept it
	} else if err != nil {
		return "", err
	}
	runs, err := s.changing(ctx)
	if err != nil {
		return "", err
	}
	for _, r := range runs {
		if r.Head == tip {
			return tip, nil
		}
	}
	seen := map[string]bool{}
	for _, r := range runs { // somebody pushed to the branch after its last run
		if seen[r.Branch] {
			continue
		}
		seen[r.Branch] = true
		if now, err := s.q.Repo.Resolve(ctx, "refs/heads/"+r.Branch); err == nil && now == tip {
			return tip, nil
		}
	}
	return "", nil
}

// alike returns the last commit of a visible run whose whole work a commit has. Returns "" if there is none. A forge
// squashes a branch without a trace in the commit.
func (s *search) alike(ctx context.Context, c gitd.Commit) (gitd.Hash, error) {
	runs, err := s.changing(ctx)
	if err != nil {
		return "", err
	}
	has, err := WorkOfCommit(ctx, s.q.Repo, c)
	if err != nil || has.IsZero() {
		return "", err
	}
	for _, r := range runs {
		work, known := s.works[r.Head]
		if !known {
			if work, err = WorkOfRun(ctx, s.q.Repo, r); err != nil {
				return "", err
			}
			s.works[r.Head] = work
		}
		if r.Head != c.Hash && has.Is(work) {
			return r.Head, nil
		}
	}
	return "", nil
}

// Work identifies the whole work of a branch by its result: the files of its last commit, and the changes that lead
// there. The zero value is no work.
type Work struct {
	tree    gitd.Hash
	changes [sha256.Size]byte // zero if there are too many
}

// IsZero reports whether w is no work.
func (w Work) IsZero() bool { return w == Work{} }

// Is reports whether one commit with the work w has the work o of a branch: the same files, or changes of the same
// files to the same contents.
func (w Work) Is(o Work) bool {
	if w.IsZero() || o.IsZero() {
		return false
	}
	return w.tree == o.tree || w.changes == o.changes && w.changes != [sha256.Size]byte{}
}

// WorkOfCommit returns the work of a commit with one parent. Returns no work if it changes nothing, or more than 5000
// files.
func WorkOfCommit(ctx context.Context, repo *gitd.Repo, c gitd.Commit) (Work, error) {
	w, err := workBetween(ctx, repo, c.Parents[0], c.Hash)
	if err != nil || w.changes == [sha256.Size]byte{} {
		return Work{}, err
	}
	return w, nil
}

// WorkOfRun returns the work of the branch of a run until the run's end. Returns no work if its commits are gone.
func WorkOfRun(ctx context.Context, repo *gitd.Repo, r record.Run) (Work, error) {
	if r.BaseCommit == "" || r.Head == "" {
		return Work{}, nil
	}
	w, err := workBetween(ctx, repo, r.BaseCommit, r.Head)
	if errors.Is(err, gitd.ErrNotFound) {
		return Work{}, nil
	}
	return w, err
}

// workBetween returns the work that leads from one commit to another one.
func workBetween(ctx context.Context, repo *gitd.Repo, from, to gitd.Hash) (w Work, err error) {
	if w.tree, err = repo.TreeOf(ctx, to); err != nil {
		return w, err
	}
	changes, err := repo.Compare(ctx, from, to, maxChanges)
	if errors.Is(err, gitd.ErrTooLarge) || err == nil && len(changes) == 0 {
		return w, nil
	}
	if err != nil {
		return w, err
	}
	sum := sha256.New()
	for _, c := range changes { // sorted by path, which has no NUL
		fmt.Fprintf(sum, "%s\x00%o %s\x00", c.Path, c.NewMode, c.New)
	}
	sum.Sum(w.changes[:0])
	return w, nil
}

// apart reports whether neither of two commits is in the history of the other. A graft between others would change
// nothing, or make a circle.
func (s *search) apart(ctx context.Context, a, b gitd.Hash) (bool, error) {
	for _, pair := range [][2]gitd.Hash{{a, b}, {b, a}} {
		if below, err := s.q.Repo.Descends(ctx, pair[0], pair[1]); err != nil || below {
			return false, err
		}
	}
	return true, nil
}

// through returns the squashes that lead from the file to a commit, those that are ancestors of the file's commit
// first.
func (s *search) through(ctx context.Context, commit gitd.Hash) (list []gitd.Hash, err error) {
	if len(s.grafts) == 0 {
		return nil, nil
	}
	if plain, err := s.q.Repo.Descends(ctx, s.at, commit); err != nil || plain {
		return nil, err
	}
	for squash, parents := range s.grafts {
		inside, err := s.q.Repo.Descends(ctx, parents[1], commit)
		if err != nil {
			return nil, err
		}
		if inside {
			list = append(list, squash)
		}
	}
	slices.Sort(list)
	return list, nil
}
