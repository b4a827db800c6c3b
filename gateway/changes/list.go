package changes

import (
	"context"
	"sync"

	"github.com/ramus-dev/ramus/gitd"
)

// maxListed bounds the changes that are kept in memory. One is about 300 bytes.
const maxListed = 60_000

// lists keeps the lists of changes between commits, which never change. The zero value is empty.
type lists struct {
	mu    sync.Mutex // guards the rest
	by    map[listKey][]gitd.Change
	count int // changes in by
}

type listKey struct {
	repo     string
	from, to gitd.Hash
}

// read returns the changes between two commits, which the caller does not change.
func (l *lists) read(ctx context.Context, r *gitd.Repo, from, to gitd.Hash) ([]gitd.Change, error) {
	key := listKey{r.Dir(), from, to}
	l.mu.Lock()
	list, ok := l.by[key]
	l.mu.Unlock()
	if ok {
		return list, nil
	}
	list, err := r.Changed(ctx, string(from), string(to), false)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil || l.count+len(list) > maxListed {
		l.by, l.count = map[listKey][]gitd.Change{}, 0
	}
	if _, ok := l.by[key]; !ok && len(list) <= maxListed {
		l.by[key] = list
		l.count += len(list) + 1
	}
	return list, nil
}
