package executor

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// The dependency cache saves containers from fetching what the base depends on:
// a container fetches it once, from a commit of the base, and what it has then in
// its package managers' folders is kept as a tarball in the artifact store. A new
// container finds the one that fits its lock files below /cache before its first
// command, and installs from there. Where work trees are bound from outside a tarball is
// unpacked once, into a base layer, and mounted from then on (layer_deps.go); what the
// container has in its cache is the same both ways.
//
// What a container hands out is hostile. A tarball is opened nowhere but inside
// containers, by the task's user; it is bounded in size; it is made from a base
// alone, never by a task that works on a branch; and it is shared with nobody but
// the tasks of the same repository.

// ecosystem is a package manager that can be asked to fetch and not to build.
type ecosystem struct {
	name  string
	locks []string // names of its lock files
	// folder below depsDir is where it keeps what it fetched; see cacheEnv.
	folder string
	// fetch is run in the folder of each lock file. Scripts of dependencies are
	// not run: they have nothing to do here.
	fetch []string
}

var ecosystems = []ecosystem{
	{"pnpm", []string{"pnpm-lock.yaml"}, "pnpm", []string{"pnpm", "install", "--frozen-lockfile", "--ignore-scripts", "--ignore-pnpmfile"}},
	{"npm", []string{"package-lock.json", "npm-shrinkwrap.json"}, "npm", []string{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"}},
	{"go", []string{"go.sum"}, "go", []string{"go", "mod", "download"}},
	{"cargo", []string{"Cargo.lock"}, "cargo", []string{"cargo", "fetch", "--locked"}},
}

// depsDir is where package managers keep what they have fetched, and nobody else keeps
// anything: a layer can be mounted there. warmScript makes it.
const depsDir = containers.CacheDir + "/deps"

// cacheEnv tells package managers where the cache is. pnpm is told by a file
// (scripts/warm.sh): its variable is npm's too, which complains about it.
var cacheEnv = []string{
	"npm_config_cache=" + depsDir + "/npm",
	"GOMODCACHE=" + depsDir + "/go",
	"CARGO_HOME=" + depsDir + "/cargo",
}

// Bounds of the dependency cache.
const (
	cacheMax     = 1 << 30          // bytes of one tarball, as the container gives it
	cacheKept    = 3                // newest tarballs of a repository and ecosystem
	cacheLocks   = 50               // lock files of one ecosystem
	fetchWithin  = 20 * time.Minute // one lock file's dependencies
	unpackWithin = 5 * time.Minute
)

// cachePrefix is where an ecosystem's tarballs lie in the artifact store. The
// repository is part of it: who can change one base could otherwise decide what
// the tasks of another find.
func cachePrefix(repo, eco string) string { return "cache/" + platform + "/" + eco + "/" + repo + "/" }

// lockHash is one hash over all lock files of an ecosystem, or "" when there are none.
func (e ecosystem) lockHash(files map[string]string) string {
	names := e.lockfiles(files)
	if len(names) == 0 {
		return ""
	}
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%s  %s\n", files[name], name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (e ecosystem) lockfiles(files map[string]string) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range files {
			if slices.Contains(e.locks, path.Base(name)) && !yield(name) {
				return
			}
		}
	})
}

// stock tells which ecosystems have dependencies at a commit: those that are in the cache,
// of which layers can be made, and those that are not.
func (x *Executor) stock(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (there, cold []stocked, err error) {
	files, err := repo.Lockfiles(ctx, commit)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range ecosystems {
		s := stocked{ecosystem: e, repo: repo.Name(), locks: e.lockHash(files)}
		if s.locks == "" {
			continue
		}
		ok, err := x.artifacts.Bucket.Exists(ctx, s.key())
		if err != nil {
			return nil, nil, fmt.Errorf("cannot look into the dependency cache: %w", err)
		}
		if ok {
			there = append(there, s)
		} else {
			cold = append(cold, s)
		}
	}
	return there, cold, nil
}

// stocked is the dependencies that a repository has in an ecosystem with certain lock files.
type stocked struct {
	ecosystem
	repo, locks string
}

// key is the name of the tarball in the artifact store.
func (s stocked) key() string { return cachePrefix(s.repo, s.name) + s.locks }

// wish is for the layer of it.
func (s stocked) wish() wish { return wish{repo: s.repo, ecosystem: s.name, locks: s.locks} }

// errNotWarmed: the dependencies cannot be fetched, now or later, as things are.
var errNotWarmed = errors.New("the dependencies cannot be fetched")

// Warm fetches the dependencies of a commit of a base into the cache, by a
// container on that commit. Those that are there already cost nothing. Progress
// goes to progress, which may be nil. What cannot be fetched is an error; what
// could be is kept all the same.
func (x *Executor) Warm(ctx context.Context, name string, commit gitd.Hash, progress io.Writer) error {
	if err := x.isOpen(); err != nil {
		return err
	}
	if progress == nil {
		progress = io.Discard
	}
	repo, err := x.Git.Repo(name)
	if err != nil {
		return err
	}
	there, cold, err := x.stock(ctx, repo, commit)
	if err != nil {
		return err
	}
	for _, s := range there {
		x.wishFor(s.wish())
	}
	if len(cold) == 0 {
		fmt.Fprintf(progress, "dependencies: %d of %d ecosystems are in the cache\n", len(there), len(there))
		return nil
	}
	if len(x.Egress) == 0 {
		return fmt.Errorf("%w: containers reach no host; list the registry's in `egress`", errNotWarmed)
	}
	// A container of its own: of the callers' nobody may have been in it.
	w, err := x.openWarmer(ctx, repo, commit)
	if err != nil {
		return fmt.Errorf("cannot fetch the dependencies of %s: %w", name, err)
	}
	defer w.close()
	var errs []error
	for _, s := range cold {
		size, err := w.warm(ctx, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot fetch the %s dependencies of %s: %w", s.name, name, err))
			fmt.Fprintf(progress, "dependencies: %s: %v\n", s.name, err)
			continue
		}
		fmt.Fprintf(progress, "dependencies: %s: %d KiB are in the cache now\n", s.name, size>>10)
		x.Log.Info("the dependencies of a base are in the cache", "repo", name, "commit", commit, "ecosystem", s.name, "bytes", size)
		x.pruneCache(ctx, name, s.name)
		x.wishFor(s.wish())
	}
	return errors.Join(errs...)
}

// WarmLater is Warm in the background. When it returns the wish is durable.
func (x *Executor) WarmLater(ctx context.Context, name string, commit gitd.Hash) error {
	repo, err := x.Git.Repo(name)
	if err != nil {
		return err
	}
	there, cold, err := x.stock(ctx, repo, commit)
	for _, s := range there {
		x.wishFor(s.wish())
	}
	if err != nil || len(cold) == 0 || len(x.Egress) == 0 {
		return err
	}
	w := &waitingDeploy{Deploy: Deploy{Repo: name, Commit: commit}, Accepted: x.Now().UTC(), Fetched: commit}
	w.file = w.name()
	b := x.basing(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(b.warm.waiting, func(o *waitingDeploy) bool { return o.Fetched == commit }) {
		return nil
	}
	if err := x.keepDeploy(w); err != nil {
		return fmt.Errorf("cannot remember to fetch dependencies: %w", err)
	}
	return x.enqueueLocked(b, &b.warm, w, x.tryWarm)
}

// pruneCache removes an ecosystem's oldest tarballs of a repository.
func (x *Executor) pruneCache(ctx context.Context, repo, eco string) {
	var all []store.Entry
	for o, err := range x.artifacts.Bucket.List(ctx, cachePrefix(repo, eco)) {
		if err != nil {
			break // the next one prunes
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b store.Entry) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Key, b.Key))
	})
	for _, o := range all[min(cacheKept, len(all)):] {
		if err := x.artifacts.Bucket.Delete(ctx, o.Key); err != nil {
			x.Log.Warn("cannot remove an old tarball of the dependency cache", "key", o.Key, "err", err)
		}
		// What lies unpacked is no more than the tarball was.
		if x.layers == nil {
			continue
		}
		if l := x.layers.dependencies(repo, eco, path.Base(o.Key), x.Fleet.TaskUID()); l != nil {
			x.layers.drop(l)
		}
	}
}

// warmer is a container that fetches a base's dependencies.
type warmer struct {
	x     *Executor
	t     *target // of no caller
	lease *containers.Lease
	key   string
	files map[string]string
	n     int
}

func (x *Executor) openWarmer(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (_ *warmer, err error) {
	base, err := repo.Base(ctx)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(repo.Name()))
	w := &warmer{x: x, t: &target{x: x, repo: repo, base: base}, key: "base:" + hex.EncodeToString(sum[:8])}
	if w.files, err = repo.Lockfiles(ctx, commit); err != nil {
		return nil, err
	}
	w.lease, err = w.t.apart(ctx, apart{key: w.key, image: x.Image, branch: base, commit: commit, door: w.door()})
	return w, err
}

// door lets the container read the base, and reach the hosts that are allowed.
func (w *warmer) door() http.Handler {
	git := w.x.Git.GrantHandler(gitd.Grant{Subject: w.key, Repo: w.t.repo.Name(), Read: []string{"refs/heads/" + w.t.base},
		Scopes:  []string{gitd.ScopeRead},
		Expires: w.x.Now().AddDate(1, 0, 0)}) // not a bound: the grant ends with the connection
	return apartDoor(w.t.repo, git, &egress.Proxy{Allow: w.x.Egress, Private: w.x.PrivateEgress, Tell: func(e record.Event) {
		w.x.Log.Debug("the fetching of a base's dependencies asked for a host", "repo", w.t.repo.Name(), "host", e.Message, "verdict", e.Reason)
	}})
}

// close removes the container.
func (w *warmer) close() { w.t.leaveApart(w.lease, w.key) }

// run runs a command in the container; what it prints goes to stdout.
func (w *warmer) run(ctx context.Context, dir string, within time.Duration, stdout io.Writer, args ...string) (containers.Exit, error) {
	w.n++
	ctx, cancel := context.WithTimeout(ctx, within+time.Minute) // the runner is the one to end it
	defer cancel()
	p, err := w.lease.Host.Start(ctx, containers.Command{ID: fmt.Sprintf("warm-%d", w.n), Args: args, Dir: dir, Timeout: within})
	if err != nil {
		return containers.Exit{}, err
	}
	said := text.Tail{Limit: 2 << 10}
	if stdout == nil {
		stdout = &said
	}
	exit, err := p.Output(stdout, &said)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("%s ended with %d%s: %s", quoteArgs(args[:min(2, len(args))]), exit.Code, map[string]string{containers.ReasonTimeout: " (it took too long)"}[exit.Reason],
			strings.Join(strings.Fields(w.x.Secrets.String(said.String())), " "))
	}
	return exit, err
}

// warm fetches an ecosystem's dependencies and keeps them.
func (w *warmer) warm(ctx context.Context, s stocked) (size int64, err error) {
	locks := s.lockfiles(w.files)
	if len(locks) > cacheLocks {
		return 0, fmt.Errorf("%w: it has %d lock files, allowed are %d", errNotWarmed, len(locks), cacheLocks)
	}
	for _, lock := range locks {
		exit, err := w.run(ctx, path.Join(containers.WorkDir, path.Dir(lock)), fetchWithin, nil, s.fetch...)
		if exit.Code == 127 {
			return 0, fmt.Errorf("%w: containers have no %s", errNotWarmed, s.name)
		}
		if err != nil {
			return 0, err
		}
	}
	return w.keep(ctx, s)
}

// keep takes what was fetched out of the container. A tarball that is not whole is not kept.
func (w *warmer) keep(ctx context.Context, s stocked) (size int64, err error) {
	in, out := io.Pipe()
	kept := make(chan error, 1)
	go func() {
		err := w.x.artifacts.Bucket.Put(ctx, s.key(), in)
		in.CloseWithError(err) // nothing reads from it any more
		kept <- err
	}()
	size, err = w.pack(ctx, s, out)
	out.CloseWithError(err) // Put fails with err, or has read all
	return size, cmp.Or(err, <-kept)
}

// pack writes the tarball of an ecosystem's folder. Compressing it here makes sure that unpacking
// gives as many bytes as were counted.
func (w *warmer) pack(ctx context.Context, s stocked, out io.Writer) (size int64, err error) {
	pack, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return 0, err
	}
	limit := &text.Limit{W: pack, Left: cacheMax}
	exit, err := w.run(ctx, containers.WorkDir, fetchWithin, limit, "tar", "-C", depsDir, "-cf", "-", "--", s.folder)
	size = cacheMax - limit.Left
	if err == nil && (limit.Cut || exit.Stdout != size) {
		err = fmt.Errorf("%w: they have %d MiB, kept are at most %d", errNotWarmed, exit.Stdout>>20, min(cacheMax, w.x.Limits.WithDefaults().Output)>>20)
	}
	if err != nil {
		return 0, err
	}
	return size, pack.Close()
}

// furnish puts the dependencies that fit a commit below /cache of a new container; p is
// where it can be reached from outside, and nil where it cannot. It is a help, never a
// condition: what fails is noted, and the container is as good as one without a cache.
func (t *target) furnish(ctx context.Context, h *containers.Host, p *containers.Place, at gitd.Hash) {
	ctx, cancel := context.WithTimeout(ctx, unpackWithin)
	defer cancel()
	base, err := t.repo.LatestBase(ctx)
	if errors.Is(err, gitd.ErrNotFound) {
		return // nothing was ever fetched from it
	}
	var put []string
	if err == nil {
		put, err = t.putDependencies(ctx, h, p, base.Base, at)
	}
	if err != nil && ctx.Err() == nil {
		t.x.Log.Warn("a container begins with a cold cache", "caller", t.caller, "err", err)
	}
	t.mu.Lock()
	t.furniture = strings.Join(put, ", ")
	t.mu.Unlock()
}

// takeFurniture tells once what a new container found in its cache.
func (t *target) takeFurniture() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.furniture
	t.furniture = ""
	return found
}

// putDependencies mounts the dependencies of which there are layers, and unpacks those of
// which there are none yet; put are the ecosystems whose dependencies are there now.
func (t *target) putDependencies(ctx context.Context, h *containers.Host, p *containers.Place, base gitd.Base, at gitd.Hash) (put []string, err error) {
	own, err := t.lockfilesLike(ctx, base.Lockfiles, at)
	if err != nil {
		return nil, err
	}
	var errs []error
	var found []stocked
	for _, e := range ecosystems {
		// The commit's own, or else the base's: most of what both need is the same.
		for _, hash := range slices.Compact([]string{e.lockHash(own), e.lockHash(base.Lockfiles)}) {
			if hash == "" {
				continue
			}
			s := stocked{ecosystem: e, repo: t.repo.Name(), locks: hash}
			there := t.layerOf(s, p) != nil
			if !there {
				there, err = t.x.artifacts.Bucket.Exists(ctx, s.key())
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("cannot look into the dependency cache: %w", err))
				break
			}
			if there {
				found = append(found, s)
				break
			}
		}
	}
	mounted, err := t.mountDependencies(ctx, p, found)
	errs = append(errs, err)
	for _, s := range found {
		if !mounted[s.name] {
			if err := t.unpack(ctx, h, s); err != nil {
				errs = append(errs, err)
				continue
			}
			t.x.fast.unpacked.Add(1)
			t.x.wishFor(s.wish())
		}
		put = append(put, s.name)
	}
	return put, errors.Join(errs...)
}

// lockfilesLike are the hashes of a commit's files where the base has lock files.
func (t *target) lockfilesLike(ctx context.Context, base map[string]string, at gitd.Hash) (map[string]string, error) {
	own := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(base)) {
		in, _, err := t.repo.OpenFile(ctx, string(at), name)
		if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) {
			continue // removed, or something else now
		}
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(h, in)
		if err := errors.Join(err, in.Close()); err != nil {
			return nil, err
		}
		own[name] = hex.EncodeToString(h.Sum(nil))
	}
	return own, nil
}

// unpack unpacks a tarball inside the container, as its user, and of it only
// what lies in the ecosystem's folder.
func (t *target) unpack(ctx context.Context, h *containers.Host, s stocked) error {
	key := s.key()
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := t.x.artifacts.Bucket.Open(reading, key)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", key, err)
	}
	defer in.Close()
	tarball, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", key, err)
	}
	whole := &endingReader{r: io.LimitReader(tarball, cacheMax)}
	defer func() {
		cancel()    // who waits for the artifact store need not
		whole.end() // and only then what it reads is closed
	}()
	p, err := h.Start(ctx, containers.Command{ID: scriptPrefix + record.NewToken(), Stdin: whole, Timeout: unpackWithin,
		Args: []string{"tar", "-C", depsDir, "-xf", "-", "--", s.folder}})
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", key, err)
	}
	said := text.Tail{Limit: 1 << 10}
	exit, err := p.Output(io.Discard, &said)
	if err == nil && exit.Code != 0 {
		cancel() // tar waits for no more of it
	}
	if err == nil {
		err = whole.end()
	}
	if exit.Code != 0 && (err == nil || errors.Is(err, context.Canceled)) {
		err = fmt.Errorf("tar ended with %d: %s", exit.Code, strings.Join(strings.Fields(said.String()), " "))
	}
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", key, err)
	}
	return nil
}

// endingReader ends where what it reads from fails: who reads from it would
// otherwise wait for the rest. The runner's connection may read from it for longer than
// the command lives, so it can be ended too.
type endingReader struct {
	r     io.Reader
	mu    sync.Mutex // guards all below, and is held while r is read
	err   error
	ended bool
}

func (e *endingReader) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return 0, io.EOF
	}
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err, err = err, io.EOF
	}
	return n, err
}

// end waits for who reads, after which nobody will, and returns what failed.
func (e *endingReader) end() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	return e.err
}
