package executor

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
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gitindex"
)

// After a command what it changed in a bound work tree is committed from outside, by
// a look at the upper layer alone: no git is run, in the container or here. That is right as
// long as git inside would do the same, so it is done only where .git is as the
// host knows it. Whatever a command did there (a commit of its own, a branch, a merge, a
// setting) is left to scripts/commit.sh, and looked at afterwards.

// changesMax is how many entries of an upper are looked at.
const changesMax = 100_000

// fast counts what is done from outside, and what was left to containers.
type fast struct {
	binds, snapshots, hashed, salvaged atomic.Int64
	mounted, unpacked                  atomic.Int64 // dependencies

	mu       sync.Mutex // guards fallback
	fallback map[string]int64
}

func (f *fast) fellBack(why string, t *target, err error) {
	f.mu.Lock()
	if f.fallback == nil {
		f.fallback = make(map[string]int64)
	}
	f.fallback[why]++
	f.mu.Unlock()
	t.x.Log.Debug("a work tree goes the portable way", "caller", t.caller, "why", why, "err", err)
}

func (f *fast) reasons() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.fallback)
}

// snapshot commits what a command changed from outside; false when the container has to.
func (t *target) snapshot(ctx context.Context, before gitd.Hash, author gitd.Person, message string) (committed, bool) {
	b := t.binding()
	if b == nil {
		return committed{}, false
	}
	made, why, err := t.snapshotOf(ctx, b, before, author, message)
	if err == nil && why == "" {
		return made, true
	}
	if why == "" {
		why = "error"
	}
	t.x.fast.fellBack("commit: "+why, t, err)
	return committed{}, false
}

func (t *target) snapshotOf(ctx context.Context, b *binding, before gitd.Hash, author gitd.Person, message string) (_ committed, why string, err error) {
	x := t.x
	t.awaitIndex()
	tip, err := t.tip(ctx)
	if err != nil {
		return committed{}, "", err
	}
	if t.knownTip() != before || tip != before {
		return committed{}, "pushed", nil
	}
	changes, err := x.layers.keeper.Changes(ctx, b.at.Upper(), changesMax)
	if errors.Is(err, layer.ErrTooMany) {
		return committed{}, "large", nil
	}
	if err != nil {
		return committed{}, "", err
	}
	b.mu.Lock()
	sure, state := b.sure, b.state
	b.mu.Unlock()
	if !sure || gitState(changes) != state {
		return committed{}, "git inside", nil
	}
	if slices.ContainsFunc(changes, func(c layer.Change) bool { return c.Closed && !inGit(c.Path) }) {
		return committed{}, "closed", nil // git would make it readable first
	}
	snap, err := t.repo.Snapshot(ctx, b.overlayOf(x.layers, changes, before), gitd.NewCommit{Parents: []gitd.Hash{before},
		Author: x.author(author), Committer: x.Bot, When: x.Now().UTC(), Message: message})
	switch {
	case errors.Is(err, gitd.ErrPortable):
		return committed{}, "needs git", nil
	case err != nil:
		return committed{}, "", err
	case len(snap.Leaks) > 0:
		return committed{}, "secret", nil // which is taken out of the work tree too, and journalled
	}
	defer snap.Pack.Close()
	x.fast.hashed.Add(int64(snap.Hashed))
	if snap.Commit != "" {
		if w := t.atWork(); w != nil {
			w.l.foresee(snap.Commit)
		}
		if err := t.place(ctx, b, before, snap, message); err != nil {
			return committed{}, "", err
		}
		tip = snap.Commit
		t.setKnown(tip)
		t.branchLater(b.advance(snap.Changed))
		t.indexLater(ctx, b, changes)
	}
	x.fast.snapshots.Add(1)
	left, err := x.layers.keeper.Changes(ctx, b.left, 1)
	t.left = nil
	return committed{tip: tip, at: tip, artifacts: len(left) > 0 || err != nil}, "", nil
}

// place makes a commit the branch's tip: first in the container, so that a
// server that dies between the two finds that the container has it, then here.
func (t *target) place(ctx context.Context, b *binding, before gitd.Hash, snap gitd.Snapshot, message string) error {
	x := t.x
	branch := t.caller.Branch()
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
		log, err := x.layers.read(ctx, b.at.Upper(), ".git/"+name, reflogMax)
		if err == nil { // a command may have removed it
			files = append(files, layer.File{Path: ".git/" + name, Kind: layer.KindFile, Data: append(log, line...)})
		}
	}
	for _, ref := range []string{"refs/remotes/origin/", "refs/heads/"} {
		files = append(files, layer.File{Path: ".git/" + ref + branch, Kind: layer.KindFile, Data: []byte(snap.Commit + "\n")})
	}
	// A container that has just ended is no reason to lose what its command did.
	if err := x.layers.keeper.Put(ctx, b.at, files); err != nil && !errors.Is(err, layer.ErrGone) {
		return err
	}
	return t.repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + branch, Old: &before, New: snap.Commit})
}

// reflogMax bounds a log of a branch that is written on, in bytes.
const reflogMax = 1 << 20

// overlayOf is a work tree for gitd.
func (b *binding) overlayOf(s *layers, changes []layer.Change, known gitd.Hash) gitd.Overlay {
	return gitd.Overlay{Under: b.layer.Commit, Known: known, Entries: overlayEntries(changes), Cache: b.cache,
		Open: func(ctx context.Context, path string) (io.ReadCloser, error) {
			return s.keeper.Open(ctx, b.at.Upper(), path)
		}}
}

// overlayEntries are the entries of an upper without those of .git.
func overlayEntries(changes []layer.Change) []gitd.OverlayEntry {
	entries := make([]gitd.OverlayEntry, 0, len(changes))
	for _, c := range changes {
		if inGit(c.Path) {
			continue
		}
		entries = append(entries, gitd.OverlayEntry{Path: c.Path, Kind: byte(c.Kind), Exec: c.Exec, Size: c.Size, Inode: c.Inode,
			MTime: c.MTime, CTime: c.CTime, Link: c.Link, Opaque: c.Opaque, Redirect: c.Redirect})
	}
	return entries
}

func inGit(path string) bool { return path == ".git" || strings.HasPrefix(path, ".git/") }

// gitNoise are parts of .git that change with almost every use and decide nothing.
func gitNoise(c layer.Change) bool {
	name := strings.TrimPrefix(c.Path, ".git/")
	switch name {
	case "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "description", "gc.log":
		return true
	}
	if strings.HasPrefix(name, "logs/") || strings.HasPrefix(name, "hooks/") {
		return true
	}
	// Objects that were added: none of them is needed, but those of the base may not go.
	return strings.HasPrefix(name, "objects/") && c.Kind != layer.KindWhiteout && !c.Opaque && c.Redirect == "" && name != "objects/info/alternates"
}

// gitState is what of .git decides how a commit comes out, as one hash.
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

// plainGit tells whether .git is that of a work tree that stands on its branch and does
// nothing else, and says what is not so.
func (t *target) plainGit(ctx context.Context, b *binding, changes []layer.Change, known gitd.Hash) (odd string, err error) {
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
		"HEAD":                            "ref: refs/heads/" + t.caller.Branch() + "\n",
		"refs/heads/" + t.caller.Branch(): string(known) + "\n",
	} {
		text, err := t.x.layers.read(ctx, b.at.Upper(), ".git/"+name, 1<<20)
		if err != nil || string(text) != want {
			return name, err
		}
	}
	return "", nil
}

// recount takes what .git is now for known, after a binding has brought the work tree to the
// branch's tip, and what was written for files of the tree. With whole the index is written anew:
// it says what the branch's tree says.
func (t *target) recount(ctx context.Context, b *binding, whole bool) error {
	changes, err := t.x.layers.keeper.Changes(ctx, b.at.Upper(), changesMax)
	if err != nil {
		return err
	}
	b.mu.Lock()
	for _, e := range overlayEntries(changes) {
		if c := b.differ[e.Path]; c.NewMode != 0 && e.Kind == byte(layer.KindFile) {
			b.cache.Seen(e, c.New)
		}
	}
	b.mu.Unlock()
	if whole {
		return t.index(ctx, b, changes)
	}
	b.trust(changes)
	return nil
}

// settle looks at a work tree that git inside has brought to a commit.
func (t *target) settle(ctx context.Context, known gitd.Hash, whole bool) {
	b := t.binding()
	if b == nil {
		return
	}
	t.awaitIndex()
	b.doubt()
	odd, err := t.settled(ctx, b, known, whole)
	if err != nil || odd != "" {
		t.x.Log.Debug("the work tree of a caller is left to git", "caller", t.caller, "why", odd, "err", err)
	}
}

func (t *target) settled(ctx context.Context, b *binding, known gitd.Hash, whole bool) (odd string, err error) {
	changes, err := t.x.layers.keeper.Changes(ctx, b.at.Upper(), changesMax)
	if err != nil {
		return "", err
	}
	if odd, err := t.plainGit(ctx, b, changes, known); odd != "" || err != nil {
		return odd, err
	}
	// Git inside would not tell of files that it was told not to look at.
	if text, err := t.x.layers.read(ctx, b.at.Upper(), ".git/index", gitindex.MaxSize); err == nil {
		if err := gitindex.Check(text); err != nil {
			return "index", err
		}
	}
	differ, err := t.repo.Compare(ctx, b.layer.Commit, known, bindChanges)
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

// trust takes .git for known as it is.
func (b *binding) trust(changes []layer.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sure, b.state = true, gitState(changes)
}

// doubt leaves the work tree to git until it is settled.
func (b *binding) doubt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sure = false
}

// advance notes how the branch's tree has changed, and tells in how many paths it differs now.
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

// indexRest is how long nobody may need an index before it is written. It can have
// megabytes, and a file system that keeps a journal may have whoever waits for a few bytes
// wait for these, too: the record of the run that is just ending first of all.
const indexRest = 20 * time.Millisecond

// indexWrite is an index that is to be written.
type indexWrite struct {
	needed sync.Once
	now    chan struct{} // closed when somebody needs it
	done   chan struct{} // closed when it is written
}

// indexLater writes the index while nobody needs it: whoever starts something in the
// container waits for it. The run that asks is at work as long as it takes to begin.
func (t *target) indexLater(ctx context.Context, b *binding, changes []layer.Change) {
	b.doubt()
	w := &indexWrite{now: make(chan struct{}), done: make(chan struct{})}
	t.mu.Lock()
	t.indexing = w
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), housekeeping)
	t.x.wg.Go(func() {
		defer close(w.done)
		defer cancel()
		rest := time.NewTimer(indexRest)
		defer rest.Stop()
		select {
		case <-w.now:
		case <-rest.C:
		}
		if err := t.index(ctx, b, changes); err != nil && !errors.Is(err, layer.ErrGone) {
			t.x.Log.Debug("the index of a bound work tree is left to git", "caller", t.caller, "err", err)
		}
	})
}

// awaitIndex waits until the work tree's index is right. That takes milliseconds.
func (t *target) awaitIndex() {
	t.mu.Lock()
	w := t.indexing
	t.mu.Unlock()
	if w != nil {
		w.needed.Do(func() { close(w.now) })
		<-w.done
	}
}

// index writes the work tree's index: the layer's, with what the branch changes. Then
// .git is known.
func (t *target) index(ctx context.Context, b *binding, changes []layer.Change) error {
	s := t.x.layers
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

// insideUID is the user of commands as they see it themselves, on every engine.
const insideUID = 1000

// indexStats are what an index says of the files that lie over a layer.
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

// author is who a commit is by.
func (x *Executor) author(p gitd.Person) gitd.Person {
	if p.Name == "" {
		p.Name = x.Bot.Name
	}
	if p.Email == "" {
		p.Email = x.Bot.Email
	}
	return p
}

// seedIndex returns the index of the commit known in the caller's bound work tree: the base
// layer's, with the entries that differ. It returns nil if there is none.
// git reads the files that differ, and trusts the layer's times for all others.
func (t *target) seedIndex(ctx context.Context, known gitd.Hash) []byte {
	b := t.binding()
	if b == nil {
		return nil
	}
	text, err := t.makeSeed(ctx, b, known)
	if err != nil {
		t.x.Log.Debug("git reads all files of a bound work tree", "caller", t.caller, "err", err)
		return nil
	}
	return text
}

func (t *target) makeSeed(ctx context.Context, b *binding, known gitd.Hash) ([]byte, error) {
	old, err := t.x.layers.read(ctx, b.layer.tree(), ".git/index", gitindex.MaxSize)
	if err != nil {
		return nil, err
	}
	changes, err := t.repo.Compare(ctx, b.layer.Commit, known, bindChanges)
	if err != nil {
		return nil, err
	}
	differ := make([]gitindex.Entry, 0, len(changes))
	for _, c := range changes {
		differ = append(differ, gitindex.Entry{Path: c.Path, Mode: c.NewMode, Hash: c.New})
	}
	return gitindex.Rewrite(old, differ, insideUID, "")
}
