package executor

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

//go:embed scripts/layer.sh
var layerScript string

// layerLater has a layer of a commit of a base made in the background.
func (x *Executor) layerLater(repo, branch string, commit gitd.Hash) {
	x.wishFor(wish{repo: repo, branch: branch, commit: commit})
}

// wishFor has a layer made in the background. There is one wish of a repository, and of
// each of its ecosystems, at a time: the newest.
func (x *Executor) wishFor(w wish) {
	s := x.layers
	if s == nil {
		return
	}
	l := s.wanted(w)
	x.mu.Lock()
	defer x.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.closed || s.thereLocked(l) || s.failed[l.dir].After(x.Now().Add(-layerPause)) || slices.Contains(s.wishes, w) {
		return
	}
	s.wishes = append(slices.DeleteFunc(s.wishes, func(o wish) bool { return o.repo == w.repo && o.ecosystem == w.ecosystem }), w)
	if !s.making {
		s.making = true
		x.wg.Go(s.work)
	}
}

// work makes the layers that are wished for, one after another.
func (s *layers) work() {
	for {
		s.mu.Lock()
		if len(s.wishes) == 0 || s.x.ctx.Err() != nil {
			s.making = false
			s.mu.Unlock()
			return
		}
		w := s.wishes[0]
		s.mu.Unlock()
		if !s.awaitRoom() {
			continue
		}
		err := s.make(s.x.ctx, w)
		s.mu.Lock()
		s.wishes = slices.DeleteFunc(s.wishes, func(o wish) bool { return o == w })
		if err != nil {
			s.failed[s.wanted(w).dir] = s.x.Now()
		}
		s.mu.Unlock()
		if err != nil && s.x.ctx.Err() == nil {
			s.x.Log.Warn("cannot make a base layer; containers clone, or unpack, for themselves", "repo", w.repo, "layer", s.wanted(w).name(), "err", err)
		}
	}
}

// awaitRoom waits until a container can be had without making a caller wait for
// its own; false when it is over with waiting, or for wishing.
func (s *layers) awaitRoom() bool {
	need := min(2, s.x.Fleet.Capacity)
	for s.x.Fleet.Room() < need {
		select {
		case <-time.After(layerRoom):
		case <-s.x.ctx.Done():
			return false
		}
	}
	return true
}

// MakeLayer makes the base layer of a branch's tip, and those of its dependencies as far as
// they are in the cache, unless they are there, and returns when they can be bound. Without
// a Keeper it is [layer.ErrUnable].
func (x *Executor) MakeLayer(ctx context.Context, name, branch string) error {
	if x.layers == nil {
		return fmt.Errorf("cannot make a base layer: %w", layer.ErrUnable)
	}
	repo, err := x.Git.Repo(name)
	if err != nil {
		return err
	}
	commit, err := repo.Resolve(ctx, "refs/heads/"+branch)
	if err != nil {
		return err
	}
	if err := x.layers.make(ctx, wish{repo: name, branch: branch, commit: commit}); err != nil {
		return err
	}
	there, _, err := x.stock(ctx, repo, commit)
	for _, s := range there {
		err = errors.Join(err, x.layers.make(ctx, s.wish()))
	}
	return err
}

// make makes one layer, in a container that nobody has used and nobody will.
func (s *layers) make(ctx context.Context, w wish) (err error) {
	x := s.x
	began := x.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, layerWithin, fmt.Errorf("it takes longer than %v", layerWithin))
	defer cancel()
	repo, err := x.Git.Repo(w.repo)
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
	if w.ecosystem != "" {
		err = s.unpack(ctx, repo, w, staging)
	} else {
		err = s.checkOut(ctx, repo, w, l, staging)
	}
	if err != nil {
		return err
	}
	if err := s.weigh(ctx, l, staging); err != nil {
		return err
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(staging, "layer.json"), text, 0o600)
	}
	if err == nil {
		err = syncTree(staging)
	}
	if err != nil {
		return err
	}
	l.used = x.Now()
	s.mu.Lock()
	if err = os.Rename(staging, l.dir); err == nil {
		s.all = append(s.all, l)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.made.Add(1)
	x.Log.Info("made a base layer", "repo", w.repo, "layer", l.name(), "files", l.Files, "bytes", l.Bytes, "took", x.Now().Sub(began))
	s.evict(l)
	return nil
}

// alone mounts a folder at a place in a container that nobody has used and nobody will, for
// fill to be filled; with too much in it the context of fill ends. No process that could write
// there is left when it returns.
func (s *layers) alone(ctx context.Context, w wish, door http.Handler, staging, place string, fill func(context.Context, *containers.Host, layer.Binding) error) error {
	x := s.x
	sum := sha256.Sum256([]byte(w.repo + "\x00" + s.wanted(w).name()))
	key := "layer:" + hex.EncodeToString(sum[:8])
	// One that a killed process left may have been half way.
	if err := x.Fleet.Remove(ctx, key); err != nil {
		return err
	}
	var at layer.Binding
	lease, err := x.Fleet.Acquire(ctx, containers.Request{Key: key, Image: x.Image, Env: x.containerEnv(), Limits: x.Limits,
		Labels: map[string]string{"ramus.repo": w.repo, labelAsked: x.Image},
		Door:   door,
		Warm:   x.warmUp,
		Bind: func(ctx context.Context, p containers.Place) error {
			at = layer.Binding{PID: p.PID, Start: p.Start, Dir: staging, Target: place, UID: p.UID}
			return s.keeper.Bind(ctx, at)
		},
		Provision: func(context.Context, *containers.Host) error { return layer.ErrUnable }})
	if err != nil {
		return err
	}
	err = s.watched(ctx, at.Upper(), func(ctx context.Context) error { return fill(ctx, lease.Host, at) })
	lease.Release()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, x.Fleet.Remove(ending, key))
}

// entries is how many files and folders a layer may have.
func (s *layers) entries() int { return cmp.Or(s.x.layerEntries, layerEntries) }

// watched ends the context of fill when the tree that it fills has more entries than a layer
// may have: nothing else bounds them before they are made, and few bytes of a tarball can
// make millions. What is made between two looks, weigh finds.
func (s *layers) watched(ctx context.Context, tree string, fill func(context.Context) error) error {
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
			// Counting takes time: hardly before the disk has given away as many as are left.
			// What others give back meanwhile hides some of that.
			if rest = layerLook; spent < due && now >= 0 && time.Since(counted) < layerLookAnyway {
				continue
			}
			began := time.Now()
			// Of a tree that cannot be counted now weigh tells why.
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

// freeInodes is how many files a disk can still take; negative where nobody can tell, as
// file systems that make inodes as they need them cannot.
func freeInodes(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Files == 0 {
		return -1
	}
	return int64(st.Ffree)
}

// checkOut fills a folder with the commit's work tree.
func (s *layers) checkOut(ctx context.Context, repo *gitd.Repo, w wish, l *baseLayer, staging string) error {
	x := s.x
	git := x.Git.GrantHandler(gitd.Grant{Subject: "layer", Repo: w.repo, Read: []string{"refs/heads/" + w.branch},
		Scopes:  []string{gitd.ScopeRead},
		Expires: x.Now().AddDate(1, 0, 0)}) // not a bound: the grant ends with the connection
	t := &target{x: x, repo: repo, base: w.branch}
	door := apartDoor(repo, git, &egress.Proxy{Tell: func(record.Event) {}}) // the repository is all it reaches
	return s.alone(ctx, w, door, staging, containers.WorkDir, func(ctx context.Context, h *containers.Host, at layer.Binding) error {
		out, err := t.script(ctx, h, layerScript, slices.Concat(x.identity(x.Bot), x.signing(), []string{
			"RAMUS_BRANCH=" + w.branch, "RAMUS_REMOTE=" + t.remote(), "RAMUS_TIP=" + string(w.commit)}), nil)
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

// unpack fills a folder with dependencies that are in the cache.
func (s *layers) unpack(ctx context.Context, repo *gitd.Repo, w wish, staging string) error {
	i := slices.IndexFunc(ecosystems, func(e ecosystem) bool { return e.name == w.ecosystem })
	if i < 0 {
		return fmt.Errorf("%q is no ecosystem", w.ecosystem)
	}
	t := &target{x: s.x, repo: repo}
	return s.alone(ctx, w, http.NotFoundHandler(), staging, depsDir, func(ctx context.Context, h *containers.Host, _ layer.Binding) error {
		return t.unpack(ctx, h, stocked{ecosystem: ecosystems[i], repo: w.repo, locks: w.locks})
	})
}

// announce has the layer's index say that nothing has changed since its token was given.
func (s *layers) announce(ctx context.Context, l *baseLayer, at layer.Binding) error {
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

// weigh counts what a layer holds, and refuses one that could not be used.
func (s *layers) weigh(ctx context.Context, l *baseLayer, staging string) error {
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
	if l.Ecosystem != "" {
		return nil
	}
	index, err := s.read(ctx, tree, ".git/index", gitindex.MaxSize)
	if err != nil {
		return err
	}
	err = gitindex.Check(index)
	return err
}

// read reads a file of a tree that containers write, or wrote.
func (s *layers) read(ctx context.Context, tree, path string, max int64) ([]byte, error) {
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

// syncTree makes all that was written to a file system durable: a layer that is there
// is whole, whatever happens to the machine.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
