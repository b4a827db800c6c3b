package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/addition"
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

// Foresee begins the review of a run that will end at head, if nothing happens.
func (e *Entry) Foresee(head gitd.Hash) {
	if e.run.Initial.Kind != record.KindExec {
		return // other runs may continue
	}
	r := e.run.Snapshot()
	r.Head = head
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.review != nil {
		return
	}
	v := &review{start: r.Start, head: head, done: make(chan struct{})}
	e.review = v
	e.archive.Go(func() {
		ctx, cancel := context.WithTimeout(e.archive.Context, worktree.Housekeeping)
		defer cancel()
		e.write(ctx, v, r)
	})
}

// reviewed returns the review of a run as it is now.
func (e *Entry) reviewed(ctx context.Context, r record.Run) *review {
	e.mu.Lock()
	v := e.review
	e.mu.Unlock()
	if v != nil {
		<-v.done // the file is one
		if v.start == r.Start && v.head == r.Head && v.err == nil {
			return v
		}
	}
	v = &review{start: r.Start, head: r.Head, done: make(chan struct{})}
	e.write(ctx, v, r)
	return v
}

// write does a review.
func (e *Entry) write(ctx context.Context, v *review, r record.Run) {
	defer close(v.done)
	f, err := os.Create(e.archive.Folder.Diff(r))
	if err != nil {
		v.err = fmt.Errorf("cannot keep the diff: %w", err)
		return
	}
	w := &text.Limit{W: f, Left: maxDiff}
	clean := e.archive.Secrets.Writer(w)
	if r.Changed() {
		// The base may hold a secret, and a commit of ours may not.
		v.changed, err = e.repo.Review(ctx, string(r.Start), string(r.Head), clean)
		err = errors.Join(err, clean.Flush())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		v.err = fmt.Errorf("cannot keep the diff: %w", err)
	}
	v.cut = w.Cut
}

// reviewAdditions returns the evidence of a run in its additional repositories.
func (a *Archive) reviewAdditions(ctx context.Context, r record.Run) (addition.Review, error) {
	v := addition.Reviewer{Git: a.Git, Secrets: a.Secrets, Dir: filepath.Join(a.Folder.Output(r), "repos"),
		MaxPatch: maxDiff, MaxList: maxFileList}
	return v.Review(ctx, r.With)
}
