package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/grant"
)

// Repair is the way in which a refresh repairs a base that has commits of its own.
type Repair string

// The ways to repair a base.
const (
	RepairNone   Repair = ""       // a base that has diverged is an error
	RepairRebase Repair = "rebase" // replays the base's own commits on upstream's newest commit
	RepairReset  Repair = "reset"  // moves the base to upstream's newest commit, without its own commits
)

// DivergedRefs is the folder of refs that keep the tips of bases from before they were repaired.
const DivergedRefs = grant.OwnRefs + "diverged"

// repairMax bounds the commits of a base that upstream lacks and that a repair handles.
const repairMax = 1000

// RepairFrom is [Server.RefreshFrom] for a base that may have diverged. It repairs the base in the given way.
// [Refreshed.Own] has the outcome of each commit that upstream lacked, and [Refreshed.Kept] is a ref that keeps
// all of them. by is the committer of replayed commits. A commit that conflicts with upstream changes nothing. Then
// the error is [ErrConflict] and names the commit and the files.
func (s *Server) RepairFrom(ctx context.Context, name string, up Upstream, how Repair, by Person, progress io.Writer) (Refreshed, error) {
	switch how {
	case RepairNone, RepairRebase, RepairReset:
	default:
		return Refreshed{}, fmt.Errorf("cannot repair %s: %.40q is neither rebase nor reset: %w", name, how, ErrInvalid)
	}
	r, err := s.Repo(name)
	if err != nil {
		return Refreshed{}, fmt.Errorf("cannot refresh: %w", err)
	}
	res, err := r.refresh(ctx, refreshRequest{from: up, repair: how, by: by}, progress)
	if err != nil {
		return res, fmt.Errorf("cannot refresh %s: %w", name, err)
	}
	return res, nil
}

// repairBase moves a base that has own commits to upstream's commit, with or without its own commits on top.
func (r *Repo) repairBase(ctx context.Context, req refreshRequest, base string, old, upstream Hash) (res Refreshed, err error) {
	res = Refreshed{Branch: base, Old: old, New: upstream, Commit: upstream}
	own, err := r.log(ctx, string(old), LogOptions{Not: string(upstream), Max: repairMax + 1})
	if err != nil {
		return res, err
	}
	if len(own) > repairMax {
		return res, fmt.Errorf("%s has more than %d commits that upstream lacks: rebase it in a clone and push the result there: %w", base, repairMax, ErrTooLarge)
	}
	slices.Reverse(own)
	fate := make(map[Hash]Replayed, len(own))
	if req.repair == RepairRebase {
		m, err := r.mergeOnto(ctx, MergeRequest{From: base, Into: base, Strategy: StrategyRebase, Committer: req.by,
			Account: true}, upstream)
		if err != nil {
			return res, err
		}
		if len(m.Conflicts) > 0 {
			return res, fmt.Errorf("the commit %.12s of %s conflicts with upstream in %s, so nothing was changed: rebase it in a clone and push the result there, "+
				"or leave the base's own commits out with --reset: %w", m.At, base, strings.Join(m.Conflicts, ", "),
				ErrConflict)
		}
		if m.Old != upstream || !m.Merged {
			return res, fmt.Errorf("the base cannot be rebased onto %s: %w", upstream, ErrConflict)
		}
		res.New = m.Commit
		for _, c := range m.Replayed {
			fate[c.Commit] = c
		}
	}
	for _, c := range own {
		what, replayed := fate[c.Hash]
		if !replayed {
			what = Replayed{Commit: c.Hash, Subject: c.Subject, Why: LeftReset}
			if req.repair == RepairRebase {
				what.Why = LeftMerge
			}
		}
		res.Own = append(res.Own, what)
	}
	if res.New == old {
		return res, nil
	}
	res.Kept = DivergedRefs + "/" + base + "/" + string(old)
	err = r.Update(ctx, RefUpdate{Name: "refs/heads/" + base, New: res.New, Old: &old}, RefUpdate{Name: res.Kept, New: old})
	if errors.Is(err, ErrConflict) {
		return res, errors.Join(errMoved, err)
	}
	return res, err
}

// keepOwn handles a base that has commits which the commit of upstream in res does not have. Returns errMoved if the
// base moves meanwhile.
func (r *Repo) keepOwn(ctx context.Context, req refreshRequest, res Refreshed) (Refreshed, error) {
	ahead, err := r.isAncestor(ctx, res.New, res.Old)
	if err != nil {
		return res, err
	}
	if req.repair == RepairReset || req.repair == RepairRebase && !ahead {
		return r.repairBase(ctx, req, res.Branch, res.Old, res.New)
	}
	if ahead {
		res.New = res.Old // upstream has nothing new
		return res, nil
	}
	return res, errDiverged(res.Branch, res.Old, res.New)
}

// checkOnBase returns nil if a commit is reachable from a base at tip, or was before a repair.
func (r *Repo) checkOnBase(ctx context.Context, commit Hash, base string, tip Hash) error {
	err := r.checkOnBranch(ctx, commit, tip)
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	kept, failed := r.Refs(ctx, DivergedRefs+"/"+base)
	if failed != nil {
		return failed
	}
	for _, ref := range kept {
		if r.checkOnBranch(ctx, commit, ref.Hash) == nil {
			return nil
		}
	}
	return err
}

// errDiverged returns the error of a base that has diverged.
func errDiverged(base string, old, upstream Hash) error {
	return fmt.Errorf("%s is at %s, upstream at %s, and neither contains the other: %w", base, old, upstream, ErrDiverged)
}
