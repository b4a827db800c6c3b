package provenance

import (
	"context"
	"errors"
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
	changes, err := ChangesOf(ctx, s.q.Repo, c)
	if err != nil || len(changes) == 0 {
		return "", err
	}
	seen := map[gitd.Hash]bool{}
	for _, r := range runs {
		if seen[r.Head] {
			continue
		}
		seen[r.Head] = true
		if same, err := IsSquash(ctx, s.q.Repo, c, changes, r); err != nil {
			return "", err
		} else if same {
			return r.Head, nil
		}
	}
	return "", nil
}

// ChangesOf returns the changes of a commit with one parent. Returns none for a commit with more than 5000 changes,
// which is not compared with runs.
func ChangesOf(ctx context.Context, repo *gitd.Repo, c gitd.Commit) ([]gitd.TreeChange, error) {
	changes, err := repo.Compare(ctx, c.Parents[0], c.Hash, maxChanges)
	if errors.Is(err, gitd.ErrTooLarge) {
		return nil, nil
	}
	return changes, err
}

// IsSquash reports whether a commit has the whole work of the branch of a run: the same tree as the last commit of the
// run, or changes of the same files to the same contents. changes are those of the commit.
func IsSquash(ctx context.Context, repo *gitd.Repo, c gitd.Commit, changes []gitd.TreeChange,
	r record.Run) (bool, error) {
	if r.BaseCommit == "" || r.Head == "" || r.Head == c.Hash {
		return false, nil
	}
	tree, err := repo.TreeOf(ctx, r.Head)
	if errors.Is(err, gitd.ErrNotFound) {
		return false, nil
	}
	if err != nil || tree == c.Tree {
		return err == nil, err
	}
	work, err := repo.Compare(ctx, r.BaseCommit, r.Head, maxChanges)
	if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrTooLarge) {
		return false, nil
	}
	return err == nil && slices.EqualFunc(changes, work, sameResult), err
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

// sameResult reports whether two changes make the same entry of the same path.
func sameResult(a, b gitd.TreeChange) bool {
	return a.Path == b.Path && a.New == b.New && a.NewMode == b.NewMode
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
