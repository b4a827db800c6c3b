package executor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// review is the changes of a run as its record has them: the names of the files, and a patch in a file. The review of a command
// begins as soon as its commit is known, while the commit is still being made durable. So git runs during the waits for the disk
// instead of after them.
type review struct {
	start, head gitd.Hash
	done        chan struct{} // closed when all below may be read

	changed []gitd.Change
	cut     bool // the patch is not whole
	err     error
}

// foresee begins the review of a run that will end at head, if nothing happens.
func (l *liveRun) foresee(head gitd.Hash) {
	if l.Initial.Kind != record.KindExec {
		return // other runs may continue
	}
	r := l.Snapshot()
	r.Head = head
	l.Lock()
	defer l.Unlock()
	if l.review != nil {
		return
	}
	v := &review{start: r.Start, head: head, done: make(chan struct{})}
	l.review = v
	l.x.wg.Go(func() {
		ctx, cancel := context.WithTimeout(l.x.ctx, worktree.Housekeeping)
		defer cancel()
		l.write(ctx, v, r)
	})
}

// reviewed returns the review of a run as it is now.
func (l *liveRun) reviewed(ctx context.Context, r record.Run) *review {
	l.Lock()
	v := l.review
	l.Unlock()
	if v != nil {
		<-v.done // the file is one
		if v.start == r.Start && v.head == r.Head && v.err == nil {
			return v
		}
	}
	v = &review{start: r.Start, head: r.Head, done: make(chan struct{})}
	l.write(ctx, v, r)
	return v
}

// write does a review.
func (l *liveRun) write(ctx context.Context, v *review, r record.Run) {
	defer close(v.done)
	f, err := os.Create(l.x.folder.Diff(r))
	if err != nil {
		v.err = fmt.Errorf("cannot keep the diff: %w", err)
		return
	}
	w := &text.Limit{W: f, Left: maxDiff}
	clean := l.x.Secrets.Writer(w)
	if r.Changed() {
		// The base may hold a secret, and a commit of ours may not.
		v.changed, err = l.target.Repo.Review(ctx, string(r.Start), string(r.Head), clean)
		err = errors.Join(err, clean.Flush())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		v.err = fmt.Errorf("cannot keep the diff: %w", err)
	}
	v.cut = w.Cut
}
