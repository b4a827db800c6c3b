package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gitindex"
	"github.com/ramus-dev/ramus/internal/durable"
)

// A branch that changes much has a layer of its own, so that a new container of its caller need
// not wait until hundreds of files are written: what the branch's tip has otherwise than the base
// layer it lies over, with its objects and its index. The host makes it of the branch's commit
// alone, of nothing that a container has written to its disk, while the caller rests.
// What the branch changes after that is written to the upper as ever.
//
// A branch's layer is not made durable, so it is of no use after the machine was booted anew.

// Bounds of branches' layers.
const (
	branchNear   = 64              // paths that differ: fewer are written as fast as a layer is found
	branchRest   = time.Second / 2 // without a new commit, before one is made
	branchWait   = 10 * time.Second
	branchesMax  = 1000 // of all repositories
	branchWithin = time.Minute
)

// branchWish is a caller whose branch could use a layer.
type branchWish struct {
	t     *target
	asked time.Time // first
	due   time.Time
}

// branchLater has a layer of the caller's branch made in the background, where it
// differs in so many paths from what the caller's work tree lies over.
func (t *target) branchLater(differ int) {
	x, s := t.x, t.x.layers
	if s == nil || differ < cmp.Or(x.branchNear, branchNear) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.closed {
		return
	}
	now := time.Now()
	w := s.branches[t.caller]
	if w == nil {
		w = &branchWish{asked: now}
		if s.branches == nil {
			s.branches = make(map[record.Caller]*branchWish)
		}
		s.branches[t.caller] = w
	}
	w.t, w.due = t, now.Add(cmp.Or(x.branchRest, branchRest))
	if last := w.asked.Add(branchWait); w.due.After(last) {
		w.due = last
	}
	if !s.branching {
		s.branching = true
		x.wg.Go(s.workBranches)
	}
}

// workBranches makes the layers of branches that are wished for, one after another. How
// long a caller rests is told by the machine's clock: nothing that is kept hangs on it.
func (s *layers) workBranches() {
	for {
		s.mu.Lock()
		var next *branchWish
		for _, w := range s.branches {
			if next == nil || w.due.Before(next.due) {
				next = w
			}
		}
		if next == nil || s.x.ctx.Err() != nil {
			s.branching = false
			s.mu.Unlock()
			return
		}
		wait := time.Until(next.due)
		if wait <= 0 {
			delete(s.branches, next.t.caller)
		}
		s.mu.Unlock()
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-s.x.ctx.Done():
			}
			continue
		}
		if err := s.makeBranch(s.x.ctx, next.t); err != nil && s.x.ctx.Err() == nil {
			s.x.Log.Debug("a branch gets no layer of its own", "caller", next.t.caller, "err", err)
		}
	}
}

// branch is the newest layer of a caller's branch; nil when it has none.
func (s *layers) branch(repo string, uid int, slug string) *baseLayer {
	return s.newest(func(l *baseLayer) bool { return l.Branch == slug && l.Repo == repo && l.UID == uid })
}

// branchAt is the layer of a caller's branch at a commit; nil when it is not there.
func (s *layers) branchAt(repo string, commit gitd.Hash, uid int, slug string) *baseLayer {
	return s.newest(func(l *baseLayer) bool {
		return l.Branch == slug && l.Commit == commit && l.Repo == repo && l.UID == uid
	})
}

// makeBranch makes the layer of a caller's branch as it stands now, in the place of the last.
func (s *layers) makeBranch(ctx context.Context, t *target) (err error) {
	x := s.x
	began := x.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, branchWithin, fmt.Errorf("it takes longer than %v", branchWithin))
	defer cancel()
	tip, err := t.tip(ctx)
	if err != nil {
		return err
	}
	base, err := t.repo.Resolve(ctx, "refs/heads/"+t.base)
	if err != nil {
		return err
	}
	uid := x.Fleet.TaskUID()
	under, differ, err := t.fit(ctx, tip, base, s.of(t.repo.Name(), uid))
	if err != nil || under == nil || len(differ) < cmp.Or(x.branchNear, branchNear) {
		return err
	}
	l := &baseLayer{Repo: under.Repo, Commit: tip, Head: tip, Token: "ramus-" + record.NewToken(), Signs: under.Signs, UID: uid, Made: began.UTC(),
		Branch: t.caller.Slug(), Over: under.Commit, Base: base, Boot: string(durable.BootID()), under: under}
	if l.dir = filepath.Join(s.dir, layerFolder(l.Repo), l.name()); s.there(l) {
		return nil
	}
	staging := filepath.Join(filepath.Dir(l.dir), ".new-"+record.NewToken())
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.remove(staging)
		}
	}()
	if !s.hold(under, staging) {
		return fmt.Errorf("the layer of %.12s has just gone: %w", under.Commit, record.ErrNotFound)
	}
	if err := s.fillBranch(ctx, t, l, differ, filepath.Join(staging, "upper")); err != nil {
		return err
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(staging, "layer.json"), text, 0o600)
	}
	if err != nil {
		return err
	}
	l.used = x.Now()
	// In one: between staging's name and its own nobody may take what lies under it.
	s.mu.Lock()
	if err = os.Rename(staging, l.dir); err == nil {
		if s.holdLocked(under, l.dir) {
			s.all = append(s.all, l)
		} else {
			staging = l.dir // to be removed
			err = fmt.Errorf("the layer of %.12s has just gone: %w", under.Commit, record.ErrNotFound)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.branched.Add(1)
	x.Log.Debug("made a branch's layer", "caller", t.caller, "commit", tip, "files", l.Files, "bytes", l.Bytes, "took", x.Now().Sub(began))
	for _, old := range s.unheld(l.Repo) {
		if old.Branch == l.Branch && old != l {
			s.drop(old)
		}
	}
	s.evict(l)
	return nil
}

// fillBranch writes what a branch's layer holds.
func (s *layers) fillBranch(ctx context.Context, t *target, l *baseLayer, differ []gitd.TreeChange, tree string) error {
	left := int64(bindBytes)
	files, why, err := t.fillTree(ctx, l.under, l.Commit, differ, &left)
	var packed []layer.File
	if why == "" && err == nil {
		packed, why, err = t.fillPack(ctx, l.under, l.Commit, l.Base, left)
	}
	if err == nil && why != "" {
		err = fmt.Errorf("%s: %w", why, errors.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	if err := s.keeper.Fill(ctx, tree, l.UID, slices.Concat(files, packed)); err != nil {
		return err
	}
	changes, err := s.keeper.Changes(ctx, tree, changesMax)
	if err != nil {
		return err
	}
	old, err := s.read(ctx, l.under.tree(), ".git/index", gitindex.MaxSize)
	if err != nil {
		return err
	}
	stats := indexStats(changes)
	entries := make([]gitindex.Entry, len(differ))
	for i, c := range differ {
		entries[i] = gitindex.Entry{Path: c.Path, Mode: c.NewMode, Hash: c.New, Stat: stats[c.Path]}
	}
	index, err := gitindex.Rewrite(old, entries, insideUID, l.Token)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Kind == layer.KindFile {
			l.Bytes += c.Size
			l.Files++
		}
	}
	l.Bytes += int64(len(index))
	return s.keeper.Fill(ctx, tree, l.UID, []layer.File{{Path: ".git/index", Kind: layer.KindFile, Data: index}})
}
