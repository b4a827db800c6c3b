package web

import (
	"context"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of the sizes of commits.
const (
	maxSizes     = 10_000 // in memory
	maxCounted   = 12     // that one page counts; a page that is made again counts the next ones
	countsWithin = 2 * time.Second
)

// commitSizes remembers how many lines commits change. A commit never changes. The zero value is empty.
type commitSizes struct {
	mu sync.Mutex // guards by
	by map[string]string
}

// changeSize returns the number of lines that the commits after parent change, up to a commit, such as "+3 −1". An
// empty parent is the only one of the commit itself. Returns "" if the number is not known: git has to count, which a
// page asks for a few times only.
func (m *talkMaker) changeSize(repo string, parent, commit gitd.Hash) string {
	if parent == commit {
		return ""
	}
	key := repo + " " + string(parent) + " " + string(commit)
	sizes := &m.sources.sizes
	sizes.mu.Lock()
	size, ok := sizes.by[key]
	sizes.mu.Unlock()
	if ok || m.counted >= maxCounted {
		return size
	}
	m.counted++
	size, ok = m.countLines(repo, parent, commit)
	if !ok {
		return ""
	}
	sizes.mu.Lock()
	defer sizes.mu.Unlock()
	if len(sizes.by) >= maxSizes || sizes.by == nil {
		sizes.by = map[string]string{}
	}
	sizes.by[key] = size
	return size
}

// countLines has git count the lines of a change. ok is false if that failed, as for a commit that is gone.
func (m *talkMaker) countLines(repo string, parent, commit gitd.Hash) (size string, ok bool) {
	r, err := m.sources.git.Repo(repo)
	if err != nil {
		return "", false
	}
	ctx, cancel := context.WithTimeout(m.ctx, countsWithin)
	defer cancel()
	if parent == "" {
		c, err := r.Commit(ctx, string(commit))
		if err != nil || len(c.Parents) != 1 { // a merge has changes of others
			return "", false
		}
		parent = c.Parents[0]
	}
	changes, err := r.Changed(ctx, string(parent), string(commit), false)
	if err != nil {
		return "", false
	}
	added, deleted := 0, 0
	for _, c := range changes {
		added, deleted = added+max(c.Added, 0), deleted+max(c.Deleted, 0)
	}
	return lineCounts(added, deleted), true
}
