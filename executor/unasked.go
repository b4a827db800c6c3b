package executor

import (
	"context"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
)

// CheckUnasked returns why a command may not run without a question to a person, by the rules of a base. An empty base
// means the repository's own. The error wraps [record.ErrInvalid] then. Programs that the command starts by itself are
// not known here. A run with Unasked stops them.
func (x *Executor) CheckUnasked(ctx context.Context, repo *gitd.Repo, base string, c record.Command) error {
	s, err := x.Settings.Read(ctx, repo, base)
	if err != nil {
		return err
	}
	return step.CheckUnasked(s.Rules, c)
}
