package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gitindex"
	gitworktree "github.com/ramus-dev/ramus/gitd/worktree"
)

// The changes of a command in a bound work tree are committed from outside. The host looks at the upper layer alone, and no git is run,
// in the container or here. That is right as long as git inside would do the same, so it is done only if .git is as the host knows it.
// Otherwise a command made a commit, a branch, a merge or a setting. scripts/commit.sh commits such a work tree, and the host looks at
// it afterwards.

// changesMax is how many entries of an upper are looked at.
const changesMax = 100_000

// snapshot commits the changes of a command from outside. It returns false if the container has to.
func (t *Tree) snapshot(ctx context.Context, before gitd.Hash, author gitd.Person, message string) (Committed, bool) {
	b := t.binding()
	if b == nil {
		return Committed{}, false
	}
	made, why, err := t.snapshotOf(ctx, b, before, author, message)
	if err == nil && why == "" {
		return made, true
	}
	if why == "" {
		why = "error"
	}
	t.store.counts.fellBack("commit: "+why, t, err)
	return Committed{}, false
}

func (t *Tree) snapshotOf(ctx context.Context, b *binding, before gitd.Hash, author gitd.Person, message string) (_ Committed, why string, err error) {
	st := t.store
	t.awaitIndex()
	tip, err := t.Tip(ctx)
	if err != nil {
		return Committed{}, "", err
	}
	if t.knownTip() != before || tip != before {
		return Committed{}, "pushed", nil
	}
	changes, err := st.layers.keeper.Changes(ctx, b.at.Upper(), changesMax)
	if errors.Is(err, layer.ErrTooMany) {
		return Committed{}, "large", nil
	}
	if err != nil {
		return Committed{}, "", err
	}
	b.mu.Lock()
	sure, state := b.sure, b.state
	b.mu.Unlock()
	if !sure || gitState(changes) != state {
		return Committed{}, "git inside", nil
	}
	if slices.ContainsFunc(changes, func(c layer.Change) bool { return c.Closed && !inGit(c.Path) }) {
		return Committed{}, "closed", nil // git would make it readable first
	}
	snap, err := t.Repo.Snapshot(ctx, b.overlayOf(st.layers, changes, before), gitd.NewCommit{Parents: []gitd.Hash{before},
		Author: st.Identity.Author(author), Committer: st.Identity.Bot, When: st.Now().UTC(), Message: message})
	switch {
	case errors.Is(err, gitworktree.ErrNeedsGit):
		return Committed{}, "needs git", nil
	case err != nil:
		return Committed{}, "", err
	case len(snap.Leaks) > 0:
		return Committed{}, "secret", nil // it is taken out of the work tree too, and journalled
	}
	defer snap.Pack.Close()
	st.counts.hashed.Add(int64(snap.Hashed))
	if snap.Commit != "" {
		if t.Hooks.Foresee != nil {
			t.Hooks.Foresee(snap.Commit)
		}
		if err := t.placeCommit(ctx, b, before, snap, message); err != nil {
			return Committed{}, "", err
		}
		tip = snap.Commit
		t.setKnown(tip)
		t.branchLater(b.advance(snap.Changed))
		t.indexLater(ctx, b, changes)
	}
	st.counts.snapshots.Add(1)
	left, err := st.layers.keeper.Changes(ctx, b.left, 1)
	t.left = nil
	return Committed{Tip: tip, At: tip, Artifacts: len(left) > 0 || err != nil}, "", nil
}

// placeCommit makes a commit the branch's tip, first in the container and then here. A server that dies between the two finds that the
// container has it.
func (t *Tree) placeCommit(ctx context.Context, b *binding, before gitd.Hash, snap gitworktree.Snapshot, message string) error {
	st := t.store
	branch := t.Caller.Branch()
	var files []layer.File
	if snap.Pack != nil {
		packed, err := packFiles(snap.Pack, 1<<30)
		if err != nil {
			return err
		}
		files = packed
	}
	subject, _, _ := strings.Cut(message, "\n")
	line := t.reflog(string(before), snap.Commit, "commit: "+subject)
	for _, name := range []string{"logs/HEAD", "logs/refs/heads/" + branch} {
		log, err := st.layers.read(ctx, b.at.Upper(), ".git/"+name, reflogMax)
		if err == nil { // a command may have removed it
			files = append(files, layer.File{Path: ".git/" + name, Kind: layer.KindFile, Data: append(log, line...)})
		}
	}
	for _, ref := range []string{"refs/remotes/origin/", "refs/heads/"} {
		files = append(files, layer.File{Path: ".git/" + ref + branch, Kind: layer.KindFile,
			Data: []byte(snap.Commit + "\n")})
	}
	// The work of a command is not lost if its container has just ended.
	if err := st.layers.keeper.Put(ctx, b.at, files); err != nil && !errors.Is(err, layer.ErrGone) {
		return err
	}
	return t.Repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + branch, Old: &before, New: snap.Commit})
}

// reflogMax bounds a log of a branch that is extended, in bytes.
const reflogMax = 1 << 20

// overlayOf returns the work tree as gitd takes it.
func (b *binding) overlayOf(s *layerSet, changes []layer.Change, known gitd.Hash) gitworktree.Overlay {
	return gitworktree.Overlay{Lower: b.layer.Commit, Indexed: known, Entries: overlayEntries(changes), Cache: b.cache,
		Open: func(ctx context.Context, path string) (io.ReadCloser, error) {
			return s.keeper.Open(ctx, b.at.Upper(), path)
		}}
}

// overlayEntries returns the entries of an upper without those of .git.
func overlayEntries(changes []layer.Change) []gitworktree.OverlayEntry {
	entries := make([]gitworktree.OverlayEntry, 0, len(changes))
	for _, c := range changes {
		if inGit(c.Path) {
			continue
		}
		entries = append(entries, gitworktree.OverlayEntry{Path: c.Path, Kind: byte(c.Kind), Exec: c.Exec, Size: c.Size,
			Inode: c.Inode,
			MTime: c.MTime, CTime: c.CTime, Link: c.Link, Opaque: c.Opaque, Redirect: c.Redirect})
	}
	return entries
}

func inGit(path string) bool { return path == ".git" || strings.HasPrefix(path, ".git/") }

// gitNoise reports whether a change is of a part of .git that changes with almost every use and decides nothing.
func gitNoise(c layer.Change) bool {
	name := strings.TrimPrefix(c.Path, ".git/")
	switch name {
	case "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "description", "gc.log":
		return true
	}
	if strings.HasPrefix(name, "logs/") || strings.HasPrefix(name, "hooks/") {
		return true
	}
	// No object that was added is needed, but those of the base may not be removed.
	return strings.HasPrefix(name, "objects/") && c.Kind != layer.KindWhiteout && !c.Opaque && c.Redirect == "" &&
		name != "objects/info/alternates"
}

// gitState returns a hash over the parts of .git that decide the content of a commit.
func gitState(changes []layer.Change) string {
	h := sha256.New()
	for _, c := range changes {
		switch {
		case !inGit(c.Path) || gitNoise(c):
		case c.Kind == layer.KindFolder:
			fmt.Fprintf(h, "%s\x00d%t%s\x00", c.Path, c.Opaque, c.Redirect)
		default:
			fmt.Fprintf(h, "%s\x00%c%d %d %d %d %s\x00", c.Path, c.Kind, c.Inode, c.Size, c.MTime, c.CTime, c.Link)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// plainGit returns the part of .git that is odd, or "" if .git is that of a work tree which is on its branch and in the middle of nothing.
func (t *Tree) plainGit(ctx context.Context, b *binding, changes []layer.Change, known gitd.Hash) (odd string, err error) {
	for _, c := range changes {
		name, ok := strings.CutPrefix(c.Path, ".git/")
		if c.Path == ".git" && (c.Kind != layer.KindFolder || c.Opaque || c.Redirect != "") {
			return ".git", nil
		}
		if !ok || gitNoise(c) {
			continue
		}
		top, _, deep := strings.Cut(name, "/")
		switch top {
		case "HEAD", "config", "index", "packed-refs", "MERGE_MSG", "AUTO_MERGE":
			if c.Kind != layer.KindFile && top[0] >= 'a' || deep {
				return name, nil
			}
		case "refs", "objects", "logs", "hooks", "info":
			// No setting of the container's repository decides how files are committed.
		default:
			return name, nil
		}
	}
	for name, want := range map[string]string{
		"HEAD":                            "ref: refs/heads/" + t.Caller.Branch() + "\n",
		"refs/heads/" + t.Caller.Branch(): string(known) + "\n",
	} {
		text, err := t.store.layers.read(ctx, b.at.Upper(), ".git/"+name, 1<<20)
		if err != nil || string(text) != want {
			return name, err
		}
	}
	return "", nil
}

// recount trusts .git as it is, after a binding has brought the work tree to the branch's tip, and the files that were written. With
// whole the index is written again, as of the branch's tree.
func (t *Tree) recount(ctx context.Context, b *binding, whole bool) error {
	changes, err := t.store.layers.keeper.Changes(ctx, b.at.Upper(), changesMax)
	if err != nil {
		return err
	}
	b.mu.Lock()
	for _, e := range overlayEntries(changes) {
		if c := b.differ[e.Path]; c.NewMode != 0 && e.Kind == byte(layer.KindFile) {
			b.cache.Add(e, c.New)
		}
	}
	b.mu.Unlock()
	if whole {
		return t.index(ctx, b, changes)
	}
	b.trust(changes)
	return nil
}

// settle looks at a work tree that git inside has brought to a commit, and trusts its .git if that is plain. With whole the index is
// written again.
func (t *Tree) settle(ctx context.Context, known gitd.Hash, whole bool) {
	b := t.binding()
	if b == nil {
		return
	}
	t.awaitIndex()
	b.doubt()
	odd, err := t.settled(ctx, b, known, whole)
	if err != nil || odd != "" {
		t.store.Log.Debug("the work tree of a caller is left to git", "caller", t.Caller, "why", odd, "err", err)
	}
}

func (t *Tree) settled(ctx context.Context, b *binding, known gitd.Hash, whole bool) (odd string, err error) {
	changes, err := t.store.layers.keeper.Changes(ctx, b.at.Upper(), changesMax)
	if err != nil {
		return "", err
	}
	if odd, err := t.plainGit(ctx, b, changes, known); odd != "" || err != nil {
		return odd, err
	}
	// Git inside would not report files that its index marks as not to be looked at.
	if text, err := t.store.layers.read(ctx, b.at.Upper(), ".git/index", gitindex.MaxSize); err == nil {
		if err := gitindex.Check(text); err != nil {
			return "index", err
		}
	}
	differ, err := t.Repo.Compare(ctx, b.layer.Commit, known, bindChanges)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	b.differ = make(map[string]gitd.TreeChange, len(differ))
	for _, c := range differ {
		b.differ[c.Path] = c
	}
	b.mu.Unlock()
	t.branchLater(len(differ))
	if whole {
		return "", t.index(ctx, b, changes)
	}
	b.trust(changes)
	return "", nil
}

// trust notes that .git is as the host knows it, in its present state.
func (b *binding) trust(changes []layer.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sure, b.state = true, gitState(changes)
}

// doubt leaves commits of the work tree to git, until it is trusted again.
func (b *binding) doubt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sure = false
}

// advance notes how the branch's tree has changed, and returns in how many paths it differs now.
func (b *binding) advance(changed []gitd.TreeChange) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range changed {
		was, known := b.differ[c.Path]
		if !known {
			b.differ[c.Path] = c
			continue
		}
		was.NewMode, was.New = c.NewMode, c.New
		if was.OldMode == was.NewMode && was.Old == was.New {
			delete(b.differ, c.Path)
		} else {
			b.differ[c.Path] = was
		}
	}
	return len(b.differ)
}

// indexRest is how long nobody may need an index before it is written. It can have megabytes, and a file system that keeps a journal may
// have writers of a few bytes wait for these too, most of all the record of the run that is just ending.
const indexRest = 20 * time.Millisecond

// indexWrite is an index that will be written.
type indexWrite struct {
	needed sync.Once
	now    chan struct{} // closed when somebody needs it
	done   chan struct{} // closed when it is written
}

// indexLater writes the index while nobody needs it. Each command that is started in the container waits for it. The run that asks is at
// work until the wait has begun.
func (t *Tree) indexLater(ctx context.Context, b *binding, changes []layer.Change) {
	b.doubt()
	w := &indexWrite{now: make(chan struct{}), done: make(chan struct{})}
	t.mu.Lock()
	t.indexing = w
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Housekeeping)
	write := func() {
		defer close(w.done)
		defer cancel()
		rest := time.NewTimer(indexRest)
		defer rest.Stop()
		select {
		case <-w.now:
		case <-rest.C:
		}
		if err := t.index(ctx, b, changes); err != nil && !errors.Is(err, layer.ErrGone) {
			t.store.Log.Debug("the index of a bound work tree is left to git", "caller", t.Caller, "err", err)
		}
	}
	if !t.store.background(write) {
		write()
	}
}

// awaitIndex waits until the work tree's index is written. That takes milliseconds.
func (t *Tree) awaitIndex() {
	t.mu.Lock()
	w := t.indexing
	t.mu.Unlock()
	if w != nil {
		w.needed.Do(func() { close(w.now) })
		<-w.done
	}
}

// index writes the work tree's index, which is the layer's with the changes of the branch. Then .git is trusted.
func (t *Tree) index(ctx context.Context, b *binding, changes []layer.Change) error {
	s := t.store.layers
	old, err := s.read(ctx, b.layer.tree(), ".git/index", gitindex.MaxSize)
	if err != nil {
		return err
	}
	stats := indexStats(changes)
	b.mu.Lock()
	differ := make([]gitindex.Entry, 0, len(b.differ))
	for path, c := range b.differ {
		differ = append(differ, gitindex.Entry{Path: path, Mode: c.NewMode, Hash: c.New, Stat: stats[path]})
	}
	token := b.issueLocked(slices.Collect(maps.Keys(b.differ)))
	b.mu.Unlock()
	text, err := gitindex.Rewrite(old, differ, insideUID, token)
	if err != nil {
		return err
	}
	if err := s.keeper.Put(ctx, b.at, []layer.File{{Path: ".git/index", Kind: layer.KindFile, Data: text}}); err != nil {
		return err
	}
	if changes, err = s.keeper.Changes(ctx, b.at.Upper(), changesMax); err != nil {
		return err
	}
	b.trust(changes)
	return nil
}

// insideUID is the user of commands as they see it, on every engine.
const insideUID = 1000

// indexStats returns the stats by which an index knows the files that are over a layer.
func indexStats(changes []layer.Change) map[string]gitindex.Stat {
	stats := make(map[string]gitindex.Stat, len(changes))
	for _, c := range changes {
		if c.Kind == layer.KindFile || c.Kind == layer.KindLink {
			size := c.Size
			if c.Kind == layer.KindLink {
				size = int64(len(c.Link))
			}
			stats[c.Path] = gitindex.Stat{CTime: c.CTime, MTime: c.MTime, Inode: c.Inode, Size: size}
		}
	}
	return stats
}

// seedIndex returns the index of the commit known in the caller's bound work tree: the base
// layer's, with the entries that differ. It returns nil if there is none.
// git reads the files that differ, and trusts the layer's times for all others.
func (t *Tree) seedIndex(ctx context.Context, known gitd.Hash) []byte {
	b := t.binding()
	if b == nil {
		return nil
	}
	text, err := t.makeSeed(ctx, b, known)
	if err != nil {
		t.store.Log.Debug("git reads all files of a bound work tree", "caller", t.Caller, "err", err)
		return nil
	}
	return text
}

func (t *Tree) makeSeed(ctx context.Context, b *binding, known gitd.Hash) ([]byte, error) {
	old, err := t.store.layers.read(ctx, b.layer.tree(), ".git/index", gitindex.MaxSize)
	if err != nil {
		return nil, err
	}
	changes, err := t.Repo.Compare(ctx, b.layer.Commit, known, bindChanges)
	if err != nil {
		return nil, err
	}
	differ := make([]gitindex.Entry, 0, len(changes))
	for _, c := range changes {
		differ = append(differ, gitindex.Entry{Path: c.Path, Mode: c.NewMode, Hash: c.New})
	}
	return gitindex.Rewrite(old, differ, insideUID, "")
}
