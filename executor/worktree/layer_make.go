package worktree

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gitindex"
	"golang.org/x/sys/unix"
)

// MakeLater has the layer of a commit of a base made in the background.
func (st *Store) MakeLater(repo, branch string, commit gitd.Hash) {
	st.Wish(Wish{Repo: repo, Branch: branch, Commit: commit})
}

// Wish has a layer made in the background. Of the wishes for a repository's work trees, and for each of its ecosystems, only the newest
// is kept. Without a Keeper it does nothing.
func (st *Store) Wish(w Wish) {
	if st.layers != nil {
		st.layers.wish(w)
	}
}

func (s *layerSet) wish(w Wish) {
	l := s.wanted(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := slices.ContainsFunc(s.wishes, func(o Wish) bool { return o.same(w) })
	if asked || s.thereLocked(l) || s.failed[l.dir].After(s.store.Now().Add(-layerPause)) {
		return
	}
	newest := slices.DeleteFunc(s.wishes, func(o Wish) bool { return o.Repo == w.Repo && o.Ecosystem == w.Ecosystem })
	s.wishes = append(newest, w)
	if !s.making {
		s.making = s.store.background(s.work)
	}
}

// work makes the layers that are wished for, one after another.
func (s *layerSet) work() {
	for {
		s.mu.Lock()
		if len(s.wishes) == 0 || s.store.ctx.Err() != nil {
			s.making = false
			s.mu.Unlock()
			return
		}
		w := s.wishes[0]
		s.mu.Unlock()
		if !s.awaitRoom() {
			continue
		}

		err := s.make(s.store.ctx, w)
		s.mu.Lock()
		s.wishes = slices.DeleteFunc(s.wishes, func(o Wish) bool { return o.same(w) })
		if err != nil {
			s.failed[s.wanted(w).dir] = s.store.Now()
		}
		s.mu.Unlock()
		if err != nil && s.store.ctx.Err() == nil {
			s.store.Log.Warn("cannot make a base layer; containers clone, or unpack, for themselves",
				"repo", w.Repo, "layer", s.wanted(w).Name(), "err", err)
		}
	}
}

// awaitRoom waits until a container can be had without making a caller wait for its own. It returns false if the Store is closing.
func (s *layerSet) awaitRoom() bool {
	need := min(2, s.store.Fleet.Capacity)
	for s.store.Fleet.Room() < need {
		select {
		case <-time.After(layerRoom):
		case <-s.store.ctx.Done():
			return false
		}
	}
	return true
}

// Make makes a layer, unless it is there, and returns when it can be bound. Without a Keeper the error is [layer.ErrUnable].
func (st *Store) Make(ctx context.Context, w Wish) error {
	if st.layers == nil {
		return fmt.Errorf("cannot make a base layer: %w", layer.ErrUnable)
	}
	return st.layers.make(ctx, w)
}

// make makes one layer, in a container that nobody has used and nobody will use.
func (s *layerSet) make(ctx context.Context, w Wish) (err error) {
	st := s.store
	began := st.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, layerWithin, fmt.Errorf("it takes longer than %v", layerWithin))
	defer cancel()
	repo, err := st.Git.Repo(w.Repo)
	if err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l := s.wanted(w)
	l.Made = began.UTC()
	if s.there(l) {
		return nil
	}

	folder := filepath.Dir(l.dir)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	staging := filepath.Join(folder, ".new-"+record.NewToken())
	defer func() {
		if err != nil {
			s.remove(staging)
		}
	}()
	if w.Fill != nil {
		err = s.fillDependencies(ctx, w, staging)
	} else {
		err = s.checkOut(ctx, repo, w, l, staging)
	}
	if err != nil {
		return err
	}
	if err := s.weigh(ctx, l, staging); err != nil {
		return err
	}

	if err := l.write(staging); err != nil {
		return err
	}
	if err := syncTree(staging); err != nil {
		return err
	}
	l.used = st.Now()
	s.mu.Lock()
	if err = os.Rename(staging, l.dir); err == nil {
		s.all = append(s.all, l)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.made.Add(1)
	st.Log.Info("made a base layer", "repo", w.Repo, "layer", l.Name(), "files", l.Files, "bytes", l.Bytes, "took",
		st.Now().Sub(began))
	s.evict(l)
	return nil
}

// write writes the layer's record to its folder, dir.
func (l *Layer) write(dir string) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "layer.json"), text, 0o600)
}

// alone mounts a folder at target in a container that nobody has used and nobody will use, and calls fill to fill it. The context of
// fill ends if the folder has too many entries. When alone returns, no process is left that could write there.
func (s *layerSet) alone(ctx context.Context, w Wish, door http.Handler, staging, target string,
	fill func(context.Context, *containers.Host, layer.Binding) error) error {
	st := s.store
	sum := sha256.Sum256([]byte(w.Repo + "\x00" + s.wanted(w).Name()))
	key := "layer:" + hex.EncodeToString(sum[:8])
	// A folder of a killed process may be incomplete.
	if err := st.Fleet.Remove(ctx, key); err != nil {
		return err
	}
	var at layer.Binding
	r := st.request(key, st.Usual().Image, w.Repo)
	r.Door = door
	r.Bind = func(ctx context.Context, p containers.Place) error {
		at = layer.Binding{PID: p.PID, Start: p.Start, Dir: staging, Target: target, UID: p.UID}
		return s.keeper.Bind(ctx, at)
	}
	r.Provision = func(context.Context, *containers.Host) error { return layer.ErrUnable }
	lease, err := st.Fleet.Acquire(ctx, r)
	if err != nil {
		return err
	}

	err = s.watched(ctx, at.Upper(), func(ctx context.Context) error { return fill(ctx, lease.Host, at) })
	lease.Release()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, st.Fleet.Remove(ending, key))
}

// entries returns how many files and folders a layer may have.
func (s *layerSet) entries() int { return cmp.Or(s.store.Layers.Entries, layerEntries) }

// watched ends the context of fill when the tree that fill fills has more entries than a layer may have. Nothing else bounds them
// before they are made, and few bytes of a tarball can make millions. weigh finds those that are made between two looks.
func (s *layerSet) watched(ctx context.Context, tree string, fill func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching, done := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		most := int64(s.entries()) + 1 // the tree's own folder is counted, too
		counted := time.Now()
		free := freeInodes(s.dir)
		spent, due, rest := int64(0), most, layerLook
		for {
			select {
			case <-time.After(rest):
			case <-watching.Done():
				return
			}
			now := freeInodes(s.dir)
			spent, free = spent+max(free-now, 0), now
			// Counting takes time, so it is done about when the disk has lost as many inodes as are left. Files that
			// others remove meanwhile hide some of that.
			if rest = layerLook; spent < due && now >= 0 && time.Since(counted) < layerLookAnyway {
				continue
			}
			began := time.Now()
			// If the tree cannot be counted now, weigh returns the reason.
			used, err := s.keeper.Usage(watching, layer.Storage{Dir: tree}, most)
			if errors.Is(err, layer.ErrTooMany) {
				cancel(err)
			} else if used.Files > most {
				cancel(fmt.Errorf("%w: more than %d files and folders", layer.ErrTooMany, most-1))
			}
			counted = time.Now()
			due, rest = spent+most-used.Files, max(layerLook, layerLookRest*time.Since(began))
		}
	})
	err := fill(ctx)
	done()
	watch.Wait()
	if full := context.Cause(ctx); err != nil && full != nil {
		return full // instead of "context canceled"
	}
	return err
}

// freeInodes returns how many more files a disk can take. It is negative if that is unknown, as for file systems that
// make inodes when they need them.
func freeInodes(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Files == 0 {
		return -1
	}
	return int64(st.Ffree)
}

// checkOut fills a folder with the commit's work tree.
func (s *layerSet) checkOut(ctx context.Context, repo *gitd.Repo, w Wish, l *Layer, staging string) error {
	st := s.store
	git := st.Git.GrantHandler(gitd.Grant{
		Subject: "layer",
		Repo:    w.Repo,
		Read:    []string{"refs/heads/" + w.Branch},
		Scopes:  []string{gitd.ScopeRead},
		Expires: st.Now().AddDate(1, 0, 0), // not a bound, because the grant ends with the connection
	})
	t := st.NewTree(record.Caller{}, repo, w.Branch)
	door := ScratchDoor(repo, git, &egress.Proxy{Tell: func(record.Event) {}}) // the door reaches only the repository
	return s.alone(ctx, w, door, staging, containers.WorkDir,
		func(ctx context.Context, h *containers.Host, at layer.Binding) error {
			env := slices.Concat(st.Identity.Env(st.Identity.Bot), st.Identity.signing(), []string{
				"RAMUS_BRANCH=" + w.Branch, "RAMUS_REMOTE=" + t.remote(), "RAMUS_TIP=" + string(w.Commit)})
			out, err := t.script(ctx, h, layerScript, env, nil)
			if err != nil {
				return err
			}
			head, signs, _ := strings.Cut(strings.TrimSpace(out.stdout), " ")
			l.Head, l.Signs, l.Token = gitd.Hash(head), signs != "", "ramus-"+record.NewToken()
			if err := gitd.CheckHash(l.Head); err != nil {
				return err
			}
			return s.announce(ctx, l, at)
		})
}

// fillDependencies fills a folder with the dependencies of a wish.
func (s *layerSet) fillDependencies(ctx context.Context, w Wish, staging string) error {
	return s.alone(ctx, w, http.NotFoundHandler(), staging, w.Target,
		func(ctx context.Context, h *containers.Host, _ layer.Binding) error {
			return w.Fill(ctx, h)
		})
}

// announce gives the layer's index the token by which git asks for changes since then.
func (s *layerSet) announce(ctx context.Context, l *Layer, at layer.Binding) error {
	old, err := s.read(ctx, at.Upper(), ".git/index", gitindex.MaxSize)
	if err != nil {
		return err
	}
	text, err := gitindex.Rewrite(old, nil, insideUID, l.Token)
	if err != nil {
		return err
	}
	return s.keeper.Put(ctx, at, []layer.File{{Path: ".git/index", Kind: layer.KindFile, Data: text}})
}

// weigh counts the files and bytes of a layer. It returns an error if the layer could not be used.
func (s *layerSet) weigh(ctx context.Context, l *Layer, staging string) error {
	tree := filepath.Join(staging, "upper")
	changes, err := s.keeper.Changes(ctx, tree, s.entries())
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Kind == layer.KindFile {
			l.Bytes += c.Size
			l.Files++
		}
	}
	if strings.HasSuffix(l.Ecosystem, InstalledSuffix) {
		return checkInstalled(changes)
	}
	if l.Ecosystem != "" {
		return nil
	}
	index, err := s.read(ctx, tree, ".git/index", gitindex.MaxSize)
	if err != nil {
		return err
	}
	return gitindex.Check(index)
}

// read reads a file of a tree that containers write, or wrote, of at most max bytes.
func (s *layerSet) read(ctx context.Context, tree, path string, max int64) ([]byte, error) {
	f, err := s.keeper.Open(ctx, tree, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(text)) > max {
		err = fmt.Errorf("%s has more than %d bytes: %w", path, max, gitd.ErrTooLarge)
	}
	return text, err
}

// syncTree makes all writes to a file system durable. So a layer that exists is complete, even after a crash of the
// machine.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
