package executor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Upstream is where the configuration says that a repository comes from.
type Upstream struct {
	gitd.Upstream
	// Schema lists the files and folders whose hash stands in the manifests of the
	// base when a deploy does not bring one.
	Schema []string
}

// Deploy says that a commit of a repository was deployed.
type Deploy struct {
	Repo        string    `json:"repo"`
	Commit      gitd.Hash `json:"commit"` // whole
	ImageDigest string    `json:"image_digest,omitempty"`
	// SchemaHash is the hash of the generated client or schema; or SchemaFiles are
	// what it is to be made of.
	SchemaHash  string    `json:"schema_hash,omitempty"`
	SchemaFiles []string  `json:"schema_files,omitempty"`
	Environment string    `json:"environment,omitempty"`
	DeployedAt  time.Time `json:"deployed_at,omitzero"`
	// SentAt is when whoever says so signed it. A second Deploy with the same
	// commit and time is the first one, heard again.
	SentAt time.Time `json:"-"`
}

// check bounds what becomes part of a manifest.
func (d Deploy) check() error {
	if err := gitd.CheckName(d.Repo); err != nil {
		return err
	}
	if err := gitd.CheckHash(d.Commit); err != nil {
		return fmt.Errorf("%w commit %.80q: want all of its 40 hexadecimal digits", record.ErrInvalid, d.Commit)
	}
	for _, text := range append([]string{d.ImageDigest, d.SchemaHash, d.Environment}, d.SchemaFiles...) {
		if len(text) > 500 || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return fmt.Errorf("%w text %.80q: at most 500 bytes without control characters", record.ErrInvalid, text)
		}
	}
	if len(d.SchemaFiles) > 100 {
		return fmt.Errorf("%w deploy: it names %d schema files, allowed are 100", record.ErrInvalid, len(d.SchemaFiles))
	}
	if d.SchemaHash != "" && len(d.SchemaFiles) > 0 {
		return fmt.Errorf("%w deploy: it has a schema hash and schema files: want one", record.ErrInvalid)
	}
	return nil
}

// same tells whether a manifest says of the commit what d says.
func (d Deploy) same(b gitd.Base) bool {
	if d.Commit != b.Commit {
		return false
	}
	if !d.SentAt.IsZero() && d.SentAt.Equal(b.SentAt) {
		return true
	}
	return d.Environment == b.Environment && d.ImageDigest == b.ImageDigest && (d.SchemaHash == "" || d.SchemaHash == b.Schema)
}

// Bounds of refreshing bases.
const (
	refreshWithin   = 30 * time.Minute // one attempt
	importWithin    = 2 * time.Minute  // a shallow import that a request waits for
	refreshTries    = 10               // of a deploy
	warmTries       = 3
	refreshLongest  = 10 * time.Minute // between two of them
	deploysMax      = 200              // accepted and not done
	replaysLookedAt = 200              // manifests among which a deploy that is heard again is looked for
)

// basing is the work on one repository's base.
type basing struct {
	turn chan struct{} // holds one token: refreshes and imports of one base take turns

	mu sync.Mutex // guards all below
	// A base follows its upstream at once, whatever becomes of its dependencies:
	// what waits for the one does not wait for the other.
	refresh, warm deployQueue
	failed        string
}

// deployQueue is deploys that wait for one kind of work.
type deployQueue struct {
	waiting []*waitingDeploy
	working bool          // a goroutine works at it
	wake    chan struct{} // tells it that waiting has changed
}

// waitingDeploy is a deploy that was accepted; it lies in DATA/deploys until it is done.
type waitingDeploy struct {
	Deploy
	Sent     time.Time `json:"sent,omitzero"`
	Accepted time.Time `json:"accepted"`
	Tries    int       `json:"tries,omitempty"`
	// Fetched: the base has it, and only its dependencies are to be fetched.
	Fetched gitd.Hash `json:"fetched,omitempty"`
	next    time.Time
	file    string
}

// basing returns the work on a repository's base.
func (x *Executor) basing(name string) *basing {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.bases[name]
	if b == nil {
		b = &basing{turn: make(chan struct{}, 1)}
		b.refresh.wake, b.warm.wake = make(chan struct{}, 1), make(chan struct{}, 1)
		x.bases[name] = b
	}
	return b
}

// take waits for the turn; the returned function gives it back.
func (b *basing) take(ctx context.Context) (func(), error) {
	select {
	case b.turn <- struct{}{}:
		return func() { <-b.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// noteBase remembers how an attempt ended, for people.
func (x *Executor) noteBase(b *basing, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = ""
	if err != nil {
		b.failed = x.Secrets.String(err.Error())
	}
}

// BaseStatus is how a repository stands to its upstream.
type BaseStatus struct {
	// Refreshed is when the base was last known to be what upstream has; zero:
	// never, or it has no upstream.
	Refreshed time.Time `json:"refreshed,omitzero"`
	// Shallow: only the newest commit of the base was fetched; the next refresh brings the rest.
	Shallow bool `json:"shallow,omitempty"`
	// Waiting deploys were accepted and are not done.
	Waiting int `json:"waiting,omitempty"`
	// Warming: the base's dependencies are being fetched.
	Warming bool `json:"warming,omitempty"`
	// Error is why the last attempt to refresh failed; empty when it did not.
	Error string `json:"error,omitempty"`
}

// BaseStatus tells how a repository stands to its upstream.
func (x *Executor) BaseStatus(ctx context.Context, repo *gitd.Repo) (BaseStatus, error) {
	at, err := repo.RefreshedAt(ctx)
	if err != nil {
		return BaseStatus{}, err
	}
	b := x.basing(repo.Name())
	b.mu.Lock()
	defer b.mu.Unlock()
	return BaseStatus{Refreshed: at, Shallow: repo.Shallow(), Waiting: len(b.refresh.waiting), Warming: len(b.warm.waiting) > 0, Error: b.failed}, nil
}

// BaseRefreshed is the outcome of [Executor.RefreshBase].
type BaseRefreshed struct {
	gitd.Refreshed
	// Base is the manifest of what is now the base; nil when the newest one says it already.
	Base *gitd.SignedBase
}

// RefreshBase brings a base to a deployed commit, or, where d names none, to
// upstream's newest, and keeps a manifest of it. Progress goes to progress, which may be nil.
func (x *Executor) RefreshBase(ctx context.Context, d Deploy, progress io.Writer) (BaseRefreshed, error) {
	if err := x.isOpen(); err != nil {
		return BaseRefreshed{}, err
	}
	b := x.basing(d.Repo)
	done, err := b.take(ctx)
	if err != nil {
		return BaseRefreshed{}, err
	}
	defer done()
	res, err := x.refreshBase(ctx, d, progress)
	if ctx.Err() == nil {
		x.noteBase(b, err)
	}
	return res, err
}

func (x *Executor) refreshBase(ctx context.Context, d Deploy, progress io.Writer) (BaseRefreshed, error) {
	up := x.Upstreams[d.Repo]
	ctx, cancel := context.WithTimeoutCause(ctx, refreshWithin, fmt.Errorf("upstream takes longer than %v", refreshWithin))
	defer cancel()
	repo, err := x.Git.Repo(d.Repo)
	if errors.Is(err, gitd.ErrNotFound) && up.URL != "" {
		repo, err = x.Git.ImportFrom(ctx, d.Repo, up.Upstream, false, progress)
	}
	if err != nil {
		return BaseRefreshed{}, err
	}
	moved, err := x.Git.RefreshFrom(ctx, d.Repo, up.Upstream, d.Commit, progress)
	res := BaseRefreshed{Refreshed: moved}
	if err != nil {
		return res, err
	}
	x.layerLater(d.Repo, moved.Branch, moved.New)
	said := d.Commit != ""
	d.Commit = moved.Commit
	latest, err := repo.LatestBase(ctx)
	switch {
	case err == nil && d.same(latest.Base), err == nil && !said && d.Commit == latest.Commit:
		return res, nil
	case err != nil && !errors.Is(err, gitd.ErrNotFound):
		return res, err
	}
	base := gitd.Base{Branch: moved.Branch, Commit: moved.Commit, Head: moved.New, Environment: d.Environment, ImageDigest: d.ImageDigest,
		Schema: d.SchemaHash, Platform: platform, DeployedAt: d.DeployedAt, SentAt: d.SentAt, Time: x.Now()}
	if base.Lockfiles, err = repo.Lockfiles(ctx, moved.Commit); err != nil {
		return res, err
	}
	if files := cmp.Or(len(d.SchemaFiles), len(up.Schema)); base.Schema == "" && files > 0 {
		paths := d.SchemaFiles
		if len(paths) == 0 {
			paths = up.Schema
		}
		if base.Schema, err = repo.HashFiles(ctx, moved.Commit, paths); err != nil {
			return res, err
		}
	}
	signed, err := repo.PutBase(ctx, base, x.Bot)
	res.Base = &signed
	return res, err
}

// platform is what dependencies are fetched for: engines work on this machine.
const platform = runtime.GOOS + "-" + runtime.GOARCH

// OpenRepo is Git.Repo, but a repository that is configured and was never
// imported is fetched on the spot, as shallow as can be.
func (x *Executor) OpenRepo(ctx context.Context, name string) (*gitd.Repo, error) {
	repo, err := x.Git.Repo(name)
	up := x.Upstreams[name]
	if !errors.Is(err, gitd.ErrNotFound) || up.URL == "" {
		return repo, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, importWithin, fmt.Errorf("upstream takes longer than %v", importWithin))
	defer cancel()
	b := x.basing(name)
	done, err := b.take(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch %s, which was never imported: %w", name, err)
	}
	defer done()
	if repo, err := x.Git.Repo(name); !errors.Is(err, gitd.ErrNotFound) {
		return repo, err // by another request, while this one waited
	}
	repo, err = x.Git.ImportFrom(ctx, name, up.Upstream, true, nil)
	if err != nil {
		x.noteBase(b, err)
		return nil, err
	}
	x.Log.Info("fetched a repository that was never imported, without its history", "repo", name)
	if head, err := repo.Resolve(ctx, "HEAD"); err == nil {
		if err := x.WarmLater(ctx, name, head); err != nil {
			x.Log.Warn("cannot have the dependencies of a base fetched", "repo", name, "err", err)
		}
	}
	return repo, nil
}

// Deployed accepts the news of a deploy. When it returns they are durable, and
// the base follows in the background: upstream is tried several times, over
// about an hour. Known is true when they were heard before.
func (x *Executor) Deployed(ctx context.Context, d Deploy) (known bool, err error) {
	if err := d.check(); err != nil {
		return false, err
	}
	if !reflect.DeepEqual(redact.Clean(x.Secrets, d), d) {
		return false, fmt.Errorf("%w deploy: it holds the value of a secret", record.ErrInvalid)
	}
	repo, err := x.Git.Repo(d.Repo)
	switch {
	case errors.Is(err, gitd.ErrNotFound) && x.Upstreams[d.Repo].URL != "":
	case err != nil:
		return false, err
	default:
		if known, err := x.knowsDeploy(ctx, repo, d); known || err != nil {
			return known, err
		}
		if at, err := repo.Upstream(ctx); err != nil {
			return false, err
		} else if at == "" && x.Upstreams[d.Repo].URL == "" {
			return false, fmt.Errorf("%w deploy: %s was created here and has no upstream", record.ErrInvalid, d.Repo)
		}
	}
	w := &waitingDeploy{Deploy: d, Sent: d.SentAt, Accepted: x.Now().UTC()}
	b := x.basing(d.Repo)
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(b.refresh.waiting, func(o *waitingDeploy) bool { return w.sameAs(o) }) {
		return true, nil
	}
	if n := len(b.refresh.waiting); n >= deploysMax {
		return false, fmt.Errorf("%d deploys of %s wait already: %w", n, d.Repo, containers.ErrBusy)
	}
	w.file = w.name()
	if err := x.keepDeploy(w); err != nil {
		return false, fmt.Errorf("cannot accept the deploy: %w", err)
	}
	return false, x.enqueueLocked(b, &b.refresh, w, x.tryRefresh)
}

// knowsDeploy looks for a deploy among the manifests: the newest one says the same, or
// an earlier one was made from the very same message.
func (x *Executor) knowsDeploy(ctx context.Context, repo *gitd.Repo, d Deploy) (bool, error) {
	latest, err := repo.LatestBase(ctx)
	if errors.Is(err, gitd.ErrNotFound) {
		return false, nil
	}
	if err != nil || d.same(latest.Base) {
		return err == nil, err
	}
	list, err := repo.Bases(ctx, replaysLookedAt)
	return slices.ContainsFunc(list, func(b gitd.SignedBase) bool {
		return b.Commit == d.Commit && !d.SentAt.IsZero() && d.SentAt.Equal(b.SentAt)
	}), err
}

func (w *waitingDeploy) sameAs(o *waitingDeploy) bool {
	return w.Commit == o.Commit && w.Environment == o.Environment && w.ImageDigest == o.ImageDigest && w.SchemaHash == o.SchemaHash &&
		slices.Equal(w.SchemaFiles, o.SchemaFiles)
}

// name is of the deploy's file: accepted order, and nothing that came from outside.
func (w *waitingDeploy) name() string {
	sum := sha256.Sum256([]byte(w.Repo + "\x00" + string(w.Commit)))
	return w.Accepted.Format("20060102-150405.000000000") + "-" + hex.EncodeToString(sum[:8]) + ".json"
}

func (x *Executor) deploysDir() string { return filepath.Join(x.Data, "deploys") }

// keepDeploy makes a waiting deploy durable.
func (x *Executor) keepDeploy(w *waitingDeploy) error {
	if err := os.MkdirAll(x.deploysDir(), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	path := filepath.Join(x.deploysDir(), w.file)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(x.deploysDir())
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// resumeDeploys goes on with the deploys that an earlier process accepted.
func (x *Executor) resumeDeploys() error {
	entries, err := os.ReadDir(x.deploysDir()) // in order of their acceptance
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the deploys that wait: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(x.deploysDir(), e.Name())
		text, err := os.ReadFile(path)
		w := &waitingDeploy{file: e.Name()}
		if err == nil && strings.HasSuffix(e.Name(), ".json") {
			err = json.Unmarshal(text, w)
		}
		if err != nil || w.Repo == "" {
			x.Log.Warn("removed a deploy that cannot be read", "file", path, "err", err)
			_ = os.Remove(path)
			continue
		}
		w.SentAt = w.Sent
		b := x.basing(w.Repo)
		b.mu.Lock()
		if w.Fetched == "" {
			err = x.enqueueLocked(b, &b.refresh, w, x.tryRefresh)
		} else {
			err = x.enqueueLocked(b, &b.warm, w, x.tryWarm)
		}
		b.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// enqueueLocked hands a deploy to the goroutine of a queue, which is started
// where there is none. Called under b.mu.
func (x *Executor) enqueueLocked(b *basing, q *deployQueue, w *waitingDeploy, try func(*basing, *waitingDeploy) bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return record.ErrClosed // it is in its file, and the next process finds it
	}
	q.waiting = append(q.waiting, w)
	if !q.working {
		q.working = true
		x.wg.Go(func() { x.workDeploys(b, q, try) })
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// workDeploys tries what waits in a queue until nothing does.
func (x *Executor) workDeploys(b *basing, q *deployQueue, try func(*basing, *waitingDeploy) bool) {
	for {
		b.mu.Lock()
		if len(q.waiting) == 0 {
			q.working = false
			b.mu.Unlock()
			return
		}
		w := slices.MinFunc(q.waiting, func(a, c *waitingDeploy) int { return a.next.Compare(c.next) })
		wait := w.next.Sub(x.Now())
		b.mu.Unlock()
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-q.wake:
			case <-x.ctx.Done():
			}
			timer.Stop()
		}
		if x.ctx.Err() != nil {
			return // the files stay, and the next process goes on
		}
		if wait > 0 {
			continue
		}
		if over := try(b, w); over {
			b.mu.Lock()
			q.waiting = slices.DeleteFunc(q.waiting, func(o *waitingDeploy) bool { return o == w })
			b.mu.Unlock()
		}
	}
}

// tryRefresh brings the base to what was deployed; over is true when that needs
// no further attempt.
func (x *Executor) tryRefresh(b *basing, w *waitingDeploy) (over bool) {
	res, err := x.RefreshBase(x.ctx, w.Deploy, nil)
	if err != nil {
		return x.tryAgain(w, err, refreshTries)
	}
	x.Log.Info("the base is what was deployed", "repo", w.Repo, "commit", w.Commit, "branch", res.Branch, "from", res.Old, "to", res.New)
	w.Fetched, w.Tries = res.Commit, 0
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := x.keepDeploy(w); err != nil {
		x.Log.Warn("cannot remember that a base was refreshed; it is looked at again if this process ends", "repo", w.Repo, "err", err)
	}
	if err := x.enqueueLocked(b, &b.warm, w, x.tryWarm); err != nil {
		x.Log.Debug("the dependencies of a base are left to the next process", "repo", w.Repo, "err", err)
	}
	return true
}

// tryWarm fetches the dependencies of a base that serves already.
func (x *Executor) tryWarm(b *basing, w *waitingDeploy) (over bool) {
	b.mu.Lock()
	newest := b.warm.waiting[len(b.warm.waiting)-1]
	b.mu.Unlock()
	if newest != w { // only the newest base's are worth it
		x.forgetDeploy(w)
		return true
	}
	err := x.Warm(x.ctx, w.Repo, w.Fetched, nil)
	if err != nil && !errors.Is(err, errNotWarmed) {
		return x.tryAgain(w, err, warmTries)
	}
	if err != nil {
		x.Log.Info("containers on this base begin with a cold cache", "repo", w.Repo, "commit", w.Fetched, "err", err)
	}
	x.forgetDeploy(w)
	return true
}

// tryAgain puts a deploy off, or gives it up after so many attempts.
func (x *Executor) tryAgain(w *waitingDeploy, err error, tries int) (over bool) {
	if x.ctx.Err() != nil {
		return false
	}
	w.Tries++
	log := x.Log.With("repo", w.Repo, "commit", w.Commit, "tries", w.Tries, "err", err)
	if errors.Is(err, gitd.ErrConflict) || w.Tries >= tries {
		log.Error("cannot do what a deploy asked for; what was there serves")
		x.forgetDeploy(w)
		return true
	}
	w.next = x.Now().Add(min(x.refreshEvery<<(w.Tries-1), refreshLongest))
	log.Warn("cannot do what a deploy asks for yet; what was there serves", "next", w.next)
	if err := x.keepDeploy(w); err != nil {
		log.Warn("cannot count the attempts at a deploy", "err", err)
	}
	return false
}

func (x *Executor) forgetDeploy(w *waitingDeploy) {
	if err := os.Remove(filepath.Join(x.deploysDir(), w.file)); err != nil && !errors.Is(err, os.ErrNotExist) {
		x.Log.Error("cannot remove a deploy that is done", "repo", w.Repo, "err", err)
	}
}
