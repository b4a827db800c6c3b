package settings

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// ErrNothing is the error of a proposal that would change nothing.
var ErrNothing = errors.New("there is nothing to propose")

// Propose returns the file that a branch under work suggests for its base: the branch's own file if it differs from the
// base's, with further setup commands. The error is ErrNothing if that is the file of the base. A file of the branch
// with a mistake is an error with all mistakes.
func Propose(ctx context.Context, repo *gitd.Repo, base, branch gitd.Hash, setup []string) ([]byte, error) {
	have, err := textAt(ctx, repo, base)
	if err != nil {
		return nil, err
	}
	text, err := textAt(ctx, repo, branch)
	if err != nil {
		return nil, err
	}
	if text == nil { // the branch never had it, or deleted it
		text = have
	}
	if text, err = environment.AddSetup(text, setup); err != nil {
		return nil, fmt.Errorf("cannot propose the branch's configuration: %w: %w", gitd.ErrInvalid, err)
	}
	if bytes.Equal(text, have) {
		return nil, fmt.Errorf("%w: the branch has the same %s as its base, and no setup command was recorded (`ramus exec --setup`)", ErrNothing, environment.Path)
	}
	return text, nil
}

// textAt returns the file at a commit, or nil if there is none.
func textAt(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) ([]byte, error) {
	text, err := repo.ReadFile(ctx, string(commit), environment.Path, environment.MaxBytes)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil, nil
	}
	return text, err
}
