package worktree

import (
	"cmp"
	"context"
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

// A branch that changes much has a layer of its own, so that a new container of its caller does not wait until hundreds of files are
// written. It holds the difference between the branch's tip and the base layer that it is over, with the branch's objects and its
// index. The host makes it from the branch's commit, never from files that a container has written to its disk, while the caller rests.
// Later changes of the branch are written to the upper.
//
// A branch's layer is not made durable, so it is of no use after the machine was booted again.

// Bounds of branches' layers.
const (
	branchNear   = 64              // paths that differ; fewer cost a new container about 20 ms, and no layer is made after each rest to save that
	branchRest   = time.Second / 2 // without a new commit, before one is made
	branchWait   = 10 * time.Second
	branchesMax  = 1000 // of all repositories
	branchWithin = time.Minute
)

// branchWish is a caller whose branch could use a layer.
type branchWish struct {
	t     *Tree
	asked time.Time // first
	due   time.Time
}

// branchLater has a layer of the caller's branch made in the background, if the branch differs in enough paths from the layer that the
// caller's work tree is over.
func (t *Tree) branchLater(differ int) {
	st, s := t.store, t.store.layers
	if s == nil || differ < cmp.Or(st.Layers.BranchNear, branchNear) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	w := s.branches[t.Caller]
	if w == nil {
		w = &branchWish{asked: now}
		if s.branches == nil {
			s.branches = make(map[record.Caller]*branchWish)
		}
		s.branches[t.Caller] = w
	}
	w.t, w.due = t, now.Add(cmp.Or(st.Layers.BranchRest, branchRest))
	if last := w.asked.Add(branchWait); w.due.After(last) {
		w.due = last
	}
	if !s.branching {
		s.branching = st.background(s.workBranches)
	}
}

// workBranches makes the layers of branches that are wished for, one after another. It takes the time that a caller rests from the
// machine's clock, because nothing that is kept depends on it.
func (s *layerSet) workBranches() {
	for {
		s.mu.Lock()
		var next *branchWish
		for _, w := range s.branches {
			if next == nil || w.due.Before(next.due) {
				next = w
			}
		}
		if next == nil || s.store.ctx.Err() != nil {
			s.branching = false
			s.mu.Unlock()
			return
		}
		wait := time.Until(next.due)
		if wait <= 0 {
			delete(s.branches, next.t.Caller)
		}
		s.mu.Unlock()
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-s.store.ctx.Done():
			}
			continue
		}
		if err := s.makeBranch(s.store.ctx, next.t); err != nil && s.store.ctx.Err() == nil {
			s.store.Log.Debug("a branch gets no layer of its own", "caller", next.t.Caller, "err", err)
		}
	}
}

// branch returns the newest layer of a caller's branch, or nil.
func (s *layerSet) branch(repo string, uid int, slug string) *Layer {
	return s.newest(func(l *Layer) bool { return l.Branch == slug && l.Repo == repo && l.UID == uid })
}

// branchAt returns the layer of a caller's branch at a commit, or nil.
func (s *layerSet) branchAt(repo string, commit gitd.Hash, uid int, slug string) *Layer {
	return s.newest(func(l *Layer) bool {
		return l.Branch == slug && l.Commit == commit && l.Repo == repo && l.UID == uid
	})
}

// makeBranch makes the layer of a caller's branch as it is now, and removes earlier ones.
func (s *layerSet) makeBranch(ctx context.Context, t *Tree) (err error) {
	st := s.store
	began := st.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, branchWithin, fmt.Errorf("it takes longer than %v", branchWithin))
	defer cancel()
	tip, err := t.Tip(ctx)
	if err != nil {
		return err
	}
	base, err := t.Repo.Resolve(ctx, "refs/heads/"+t.Base)
	if err != nil {
		return err
	}
	uid := st.Fleet.TaskUID()
	under, differ, err := t.fit(ctx, tip, base, s.of(t.Repo.Name(), uid))
	if err != nil || under == nil || len(differ) < cmp.Or(st.Layers.BranchNear, branchNear) {
		return err
	}
	l := &Layer{Repo: under.Repo, Commit: tip, Head: tip, Token: "ramus-" + record.NewToken(), Signs: under.Signs,
		UID: uid, Made: began.UTC(),
		Branch: t.Caller.Slug(), Over: under.Commit, Base: base, Boot: string(durable.BootID()), under: under}
	if l.dir = filepath.Join(s.dir, layerFolder(l.Repo), l.Name()); s.there(l) {
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
	if !s.holdLayer(under, staging) {
		return fmt.Errorf("the layer of %.12s has just gone: %w", under.Commit, record.ErrNotFound)
	}
	if err := s.fillBranch(ctx, t, l, differ, filepath.Join(staging, "upper")); err != nil {
		return err
	}
	if err := l.write(staging); err != nil {
		return err
	}
	l.used = st.Now()
	// In one step: between the two names of the folder nobody may take the layer under it.
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
	st.Log.Debug("made a branch's layer", "caller", t.Caller, "commit", tip, "files", l.Files, "bytes", l.Bytes, "took",
		st.Now().Sub(began))
	for _, old := range s.unheld(l.Repo) {
		if old.Branch == l.Branch && old != l {
			s.drop(old)
		}
	}
	s.evict(l)
	return nil
}

// fillBranch writes the files of a branch's layer to tree.
func (s *layerSet) fillBranch(ctx context.Context, t *Tree, l *Layer, differ []gitd.TreeChange, tree string) error {
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
