package upstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// PartlyError is the error of [Bases.LandAll] if the work of a caller is in some of its repositories, and another one
// refused it although it passed the check. Nothing is taken back by itself, because others may have built on it.
type PartlyError struct {
	// Done has the results in the repositories that have the work, or a pull request for it.
	Done []record.Landed
	// Err is the error of the repository that refused. It is wrapped.
	Err error
}

func (e *PartlyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v; other repositories have the work already: ", e.Err)
	for i, l := range e.Done {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(l.String())
		if l.Merged && !l.UpToDate {
			fmt.Fprintf(&b, " (back: git revert %.10s..%.10s)", l.Old, l.Commit)
		}
	}
	b.WriteString("; the same merge again goes on with the rest")
	return b.String()
}

func (e *PartlyError) Unwrap() error { return e.Err }

// LandAll brings the branches of a caller in several repositories to the places that their policies name. The results are
// in the order of all. First each landing is checked against upstream's newest commit, and nothing is changed. If one is
// refused or has a conflict, none is made. Then pull requests are opened, which merge nothing, then merges are pushed,
// and the merges in this server are last, because nobody else can refuse them.
//
// Two upstreams cannot be changed at one moment. If one refuses after the check, the error is a [PartlyError]. A second
// call goes on, because landed repositories are up to date. One landing is that of [Bases.Land], without a check before.
func (b *Bases) LandAll(ctx context.Context, all []Landing) ([]record.Landed, error) {
	if len(all) == 1 {
		done, err := b.Land(ctx, all[0])
		return []record.Landed{done}, err
	}
	results := make([]record.Landed, len(all))
	conflict := false
	for i, l := range all {
		var err error
		if results[i], err = b.Check(ctx, l); err != nil {
			return nil, fmt.Errorf("nothing was merged in any repository: %w", err)
		}
		conflict = conflict || len(results[i].Conflicts) > 0
	}
	if conflict {
		return results, nil
	}
	var done []record.Landed
	for _, i := range order(results) {
		landed, err := b.Land(ctx, all[i])
		landed.Repo = all[i].Repo.Name()
		if err == nil && len(landed.Conflicts) > 0 {
			// Somebody was faster since the check.
			err = fmt.Errorf("cannot merge %s in %s: %w: others have changed %s meanwhile", all[i].Caller, landed.Repo,
				gitd.ErrConflict, strings.Join(landed.Conflicts, ", "))
		}
		if err != nil && len(done) > 0 {
			err = &PartlyError{Done: done, Err: err}
		}
		if err != nil {
			return nil, err
		}
		results[i] = landed
		done = append(done, landed)
	}
	return results, nil
}

// order returns the indexes of checked landings in the order in which they are made.
func order(checked []record.Landed) []int {
	rank := func(policy string) int {
		return slices.Index([]string{record.MergePull, record.MergePush, record.MergeHere}, policy)
	}
	at := make([]int, len(checked))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int { return cmp.Compare(rank(checked[i].Policy), rank(checked[j].Policy)) })
	return at
}

// Check returns the result that [Bases.Land] would have now, as far as this server can know it. Merged and Commit are
// zero, because nothing is merged. The branch here follows upstream. An upstream may still refuse the push.
func (b *Bases) Check(ctx context.Context, l Landing) (record.Landed, error) {
	fail := func(err error) error {
		return fmt.Errorf("cannot merge %s into %s of %s: %w", l.Caller, l.Into, l.Repo.Name(), err)
	}
	p, err := b.policy(ctx, l)
	if err != nil {
		return record.Landed{}, fail(err)
	}
	out := record.Landed{Repo: l.Repo.Name(), Into: l.Into, Policy: p.name, Upstream: p.up.Location()}
	if p.name == record.MergePull {
		_, err := l.Repo.Resolve(ctx, "refs/heads/"+l.Caller.Branch())
		if err != nil {
			return out, fail(err)
		}
		return out, nil // the forge shows conflicts
	}
	onto, err := l.Repo.Resolve(ctx, "refs/heads/"+l.Into)
	if err == nil && p.name == record.MergePush {
		onto, err = b.newest(ctx, l, p)
	}
	if err != nil {
		return out, fail(err)
	}
	res, err := l.Repo.MergeOnto(ctx, b.request(l), onto)
	if err != nil {
		return out, fail(err)
	}
	out.Old, out.At, out.Conflicts = res.Old, res.At, res.Conflicts
	return out, nil
}

// newest returns the commit of upstream on which a landing would merge.
func (b *Bases) newest(ctx context.Context, l Landing, p policy) (gitd.Hash, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, landWithin,
		fmt.Errorf("the check takes longer than %v: %w", landWithin, gitd.ErrUpstream))
	defer cancel()
	release, err := b.of(l.Repo.Name()).acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	if l.Repo.Shallow() { // a merge needs the history
		if _, err := b.refresh(ctx, Deploy{Repo: l.Repo.Name()}, nil, repair{}); err != nil {
			return "", err
		}
	}
	there, err := l.Repo.FetchUpstream(ctx, p.up, p.branch)
	if err != nil {
		return "", err
	}
	return b.follow(ctx, l.Repo, l.Into, there)
}
