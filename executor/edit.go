package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// editWait is how long an edit waits for the command or the agent that works on the branch.
const editWait = 5 * time.Second

// Edit is a change of files that needs no container.
type Edit struct {
	Caller  record.Caller
	By      gitd.Person
	Message string // without trailers
	// Trailer is a line of the message before that of the caller, such as "Ramus-Remark: ID". Empty means none.
	Trailer string
	// Change returns the files of the new commit, on top of a commit of the branch. It may be called again if the branch moved.
	Change func(ctx context.Context, repo *gitd.Repo, tip gitd.Hash) ([]gitd.File, error)
}

// Edit commits a change to the branch of a caller as the person's. It starts no container; one that is there gets the files before its next
// command. Returns the error of Change, and [record.ErrConflict] if somebody works on the branch for longer than 5 s. The commit is on the
// branch also if Edit returns it together with an error, which is then that of bringing it to an open terminal.
func (x *Executor) Edit(ctx context.Context, e Edit) (gitd.Hash, error) {
	made, err := x.edit(ctx, e)
	if err != nil {
		err = fmt.Errorf("cannot change the branch of %s: %w", e.Caller, err)
	}
	return made, err
}

func (x *Executor) edit(ctx context.Context, e Edit) (gitd.Hash, error) {
	c, err := x.Caller(ctx, e.Caller.String())
	if err != nil {
		return "", err
	}
	repo, err := x.Git.Repo(c.Repo)
	if err != nil {
		return "", err
	}
	last, err := baseOf(ctx, repo, c.Last)
	if err != nil {
		return "", err
	}
	t := x.targets.Of(c.Caller, repo, last)
	waiting, cancel := context.WithTimeoutCause(ctx, editWait,
		fmt.Errorf("%w: a command or an agent works on it; try again when that has ended", record.ErrConflict))
	defer cancel()
	release, err := t.Acquire(waiting)
	if err != nil {
		if ctx.Err() == nil && waiting.Err() != nil {
			return "", context.Cause(waiting)
		}
		return "", err
	}
	defer release()
	if err := x.Shells.Keep(ctx, t, nil); err != nil {
		return "", err
	}
	made, err := x.writeEdit(ctx, repo, c.Caller, e)
	if err != nil {
		return "", err
	}
	return made, x.Shells.Sync(ctx, t)
}

// writeEdit makes the commit of an edit. The turn on the branch is held, so that only a push can move it meanwhile.
func (x *Executor) writeEdit(ctx context.Context, repo *gitd.Repo, c record.Caller, e Edit) (gitd.Hash, error) {
	ref, by := "refs/heads/"+c.Branch(), cleanPerson(x.Secrets, e.By).Or(x.Bot)
	trailers := fmt.Sprintf("%s: %s\n", record.TrailerCaller, c)
	if e.Trailer != "" {
		trailers = e.Trailer + "\n" + trailers
	}
	for attempt := 0; ; attempt++ {
		tip, err := repo.Resolve(ctx, ref)
		if err != nil {
			return "", err
		}
		files, err := e.Change(ctx, repo, tip)
		if err != nil {
			return "", err
		}
		commit, err := repo.WriteCommit(ctx, gitd.NewCommit{From: tip, Put: files, Parents: []gitd.Hash{tip}, Author: by,
			Committer: x.Bot, When: x.Now(), Message: e.Message + "\n\n" + trailers})
		if err != nil {
			return "", err
		}
		err = repo.Update(ctx, gitd.RefUpdate{Name: ref, New: commit, Old: &tip})
		switch {
		case err == nil:
			return commit, nil
		case !errors.Is(err, gitd.ErrConflict) || attempt == 5:
			return "", err
		}
	}
}
