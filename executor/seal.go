package executor

import (
	"context"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/gitd"
)

// openChain finishes the seals that a kill interrupted.
func (x *Executor) openChain(ctx context.Context) error {
	x.Chain.Bot, x.Chain.Now = x.Bot, x.Now
	repos, err := x.Git.Repos(ctx)
	if err != nil {
		return err
	}
	for _, repo := range repos {
		if err := x.Chain.Finish(ctx, repo); err != nil {
			// The repository is damaged, and the others are not.
			x.Log.Error("cannot finish the last seal", "repo", repo.Name(), "err", err)
		}
	}
	return nil
}

// Verification asks for a check of seals.
type Verification struct {
	Repo *gitd.Repo
	// Run limits the check to one run. The zero value means all.
	Run record.Run
	// Since is a link that the chain had. Empty means none.
	Since gitd.Hash
	// Sees reports whether the runs of a caller, by its slug, are shown. Nil means all.
	Sees func(slug string) bool
}

// Verify compares the runs of a repository with the chain of their seals, and their files with their manifests. It reads
// all of them. Faults are in the report, and an error means that the check was not possible.
func (x *Executor) Verify(ctx context.Context, v Verification) (seal.Report, error) {
	if err := x.life.err(); err != nil {
		return seal.Report{}, err
	}
	if len(x.Chain.Signers()) == 0 {
		return seal.Report{}, fmt.Errorf("cannot verify %s: %w: this server has no key for seals", v.Repo.Name(), record.ErrConflict)
	}
	c := seal.Check{Repo: v.Repo, Signers: x.Chain.Signers(), Since: v.Since,
		Open: func(ctx context.Context, f record.ManifestFile) (io.ReadCloser, error) {
			return x.Artifacts.Open(ctx, f)
		}}
	if v.Run.ID != "" {
		c.Ref = record.RunRef(v.Run.Caller, v.Run.ID)
	}
	if v.Sees != nil {
		c.Sees = func(ref string) bool { return v.Sees(seal.CallerOf(ref)) }
	}
	return c.Do(ctx)
}
