package history

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

const (
	// MaxCommits bounds the commits that a walk within one request reads.
	MaxCommits = 4000
	// maxCommitBytes bounds their bytes. A commit may have any number of parents, also the same one many times.
	maxCommitBytes = 32 << 20
	// maxRebuilt bounds the work of reading objects, see [pack.Files.Rebuilt]. A small object may be the end of a long
	// chain of large deltas. The work of other requests counts, too.
	maxRebuilt = 512 << 20
)

// ErrLarge means that native git does the work better.
var ErrLarge = fmt.Errorf("too much for a small pack: %w", object.ErrTooLarge)

// Range is the commits that some commits reach and others do not.
type Range struct {
	Commits []Commit                    // parents before children
	Trees   map[object.Hash]object.Hash // of Commits and of all their parents
	// Reached has those of the other commits that the commits descend from.
	Reached map[object.Hash]bool
}

// Commit is a commit of a [Range].
type Commit struct {
	Hash, Tree object.Hash
	Parents    []object.Hash
}

// IsComplete reports whether the commits of a repository alone determine its history. They do not in a
// shallow repository and in one with grafts. The name h tells how objects are named. IsComplete reports
// false for SHA-256.
func IsComplete(repo string, h object.Hash) bool {
	if len(h) != 40 {
		return false
	}
	for _, file := range []string{"shallow", "info/grafts"} {
		if _, err := os.Lstat(filepath.Join(repo, file)); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

// The marks of a commit on a walk.
const (
	markWanted = 1 // a wanted commit reaches it
	markKnown  = 2 // a known commit reaches it
)

// markedCommit is a commit on a walk.
type markedCommit struct {
	Commit
	time   int64
	marks  byte
	queued bool // its parents are to be marked
	// entered means that the parents were pushed, and listed that the commit has its position.
	entered, listed bool
}

// rangeWalk marks commits from the newest to the oldest, as git does.
type rangeWalk struct {
	objects *pack.Reader
	max     int   // commits that may be read
	bytes   int   // of the commits that were read
	until   int64 // the work at which the walk ends
	read    map[object.Hash]*markedCommit
	queue   commitQueue
	open    int // commits in the queue that are not known
}

// Between returns the commits that want reaches and have does not. If the clocks of committers were wrong,
// it may return some that have reaches as well. Reached is exact, because a commit that descends from a
// known one cannot be taken for its ancestor. Returns [ErrLarge] if more than max commits or 32 MiB would be read, or
// if reading takes too much work.
func Between(ctx context.Context, objects *pack.Reader, want, have []object.Hash, max int) (*Range, error) {
	w := &rangeWalk{objects: objects, max: max, read: map[object.Hash]*markedCommit{},
		until: objects.Packs.Rebuilt() + maxRebuilt}
	for _, h := range have {
		if err := w.mark(ctx, h, markKnown); err != nil {
			return nil, err
		}
	}
	for _, h := range want {
		if err := w.mark(ctx, h, markWanted); err != nil {
			return nil, err
		}
	}
	if err := w.markParents(ctx); err != nil {
		return nil, err
	}

	r := &Range{Commits: w.listCommits(want), Trees: make(map[object.Hash]object.Hash, len(w.read)),
		Reached: map[object.Hash]bool{}}
	for h, c := range w.read {
		r.Trees[h] = c.Tree
	}
	for _, h := range have {
		r.Reached[h] = w.read[h].marks&markWanted != 0
	}
	return r, nil
}

// mark adds marks to a commit, and queues it if they are new.
func (w *rangeWalk) mark(ctx context.Context, h object.Hash, marks byte) error {
	c := w.read[h]
	if c == nil {
		if len(w.read) == w.max {
			return ErrLarge
		}
		var err error
		if c, err = w.readCommit(ctx, h); err != nil {
			return err
		}
		w.read[h] = c
	}
	if c.marks&marks == marks {
		return nil
	}

	if c.queued && c.marks&markKnown == 0 && marks&markKnown != 0 {
		w.open--
	}
	c.marks |= marks
	if !c.queued {
		c.queued = true
		heap.Push(&w.queue, c)
		if c.marks&markKnown == 0 {
			w.open++
		}
	}
	return nil
}

// readCommit reads a commit. The result shares no memory with the object, most of which is not needed.
func (w *rangeWalk) readCommit(ctx context.Context, h object.Hash) (*markedCommit, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	data, raw, err := w.objects.RawCommit(ctx, h)
	if errors.Is(err, object.ErrTooLarge) {
		err = ErrLarge
	}
	if err != nil {
		return nil, err
	}
	if w.bytes += len(data); w.bytes > maxCommitBytes || w.objects.Packs.Rebuilt() > w.until {
		return nil, ErrLarge
	}
	c := &markedCommit{Commit: Commit{Hash: h, Tree: cloneHash(raw.Tree)}, time: raw.CommitterTime()}
	for _, p := range raw.Parents {
		c.Parents = append(c.Parents, cloneHash(p))
	}
	return c, nil
}

func cloneHash(h object.Hash) object.Hash { return object.Hash(strings.Clone(string(h))) }

// markParents passes the marks on until all commits in the queue are known.
func (w *rangeWalk) markParents(ctx context.Context) error {
	for w.open > 0 {
		c := heap.Pop(&w.queue).(*markedCommit)
		c.queued = false
		if c.marks&markKnown == 0 {
			w.open--
		}
		for _, p := range c.Parents {
			if err := w.mark(ctx, p, c.marks); err != nil {
				return err
			}
		}
	}
	return nil
}

// listCommits returns the commits that are not known, parents before children. It does not recurse,
// because a history may be a line of thousands.
func (w *rangeWalk) listCommits(want []object.Hash) []Commit {
	var list []Commit
	var stack []*markedCommit
	for _, h := range want {
		stack = append(stack, w.read[h])
	}
	for len(stack) > 0 {
		c := stack[len(stack)-1]
		if c.marks&markKnown != 0 || c.listed {
			stack = stack[:len(stack)-1]
			continue
		}
		if !c.entered {
			c.entered = true
			for _, p := range c.Parents {
				stack = append(stack, w.read[p])
			}
			continue
		}
		c.listed = true
		list = append(list, c.Commit)
		stack = stack[:len(stack)-1]
	}
	return list
}

// commitQueue is a heap of commits, the newest first.
type commitQueue []*markedCommit

func (q commitQueue) Len() int           { return len(q) }
func (q commitQueue) Less(i, j int) bool { return q[i].time > q[j].time }
func (q commitQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *commitQueue) Push(c any)        { *q = append(*q, c.(*markedCommit)) }
func (q *commitQueue) Pop() any {
	old := *q
	c := old[len(old)-1]
	*q = old[:len(old)-1]
	return c
}
