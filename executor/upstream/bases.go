package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Source is the configured origin of a repository.
type Source struct {
	gitd.Upstream
	// Merge is the policy of merges into branches that upstream has, one of [record.MergePush], [record.MergePull] and
	// [record.MergeHere]. If it is empty, pull requests are opened if a [Host] does that, and otherwise merges are pushed.
	Merge string
	// Mirror has all branches and tags follow upstream, and not only the base, see [gitd.Repo.MirrorFrom].
	Mirror bool
	// Schema lists the files and folders whose hash is in the manifests of the base if a deploy does not bring one.
	Schema []string
}

// Bases keeps the bases of a server's repositories. Its exported fields are its options, and may be changed until Open. Methods are safe
// for concurrent use.
type Bases struct {
	Git *gitd.Server
	// Sources are where repositories come from, by name. Other repositories are refreshed from where they were imported.
	// SetSources replaces them later.
	Sources map[string]Source
	// Hosts open pull requests. The first one that has the upstream of a repository serves it.
	Hosts []Host
	// Chosen returns the policy that the repository's own configuration has for merges into a branch, or "". It counts if
	// Sources has none. Nil means none.
	Chosen func(ctx context.Context, repo *gitd.Repo, into string) (string, error)
	// Landing is called by each attempt to push a merge, before the push, for tests. Nil means that nothing is called.
	Landing func(repo string)
	// RefreshAfter is the age from which a base is asked for again before new work begins from it. Zero means never.
	// RefreshWait bounds the time for which new work waits for the answer. The default is 5 s.
	RefreshAfter, RefreshWait time.Duration
	// Dir is the folder of the deploys that were accepted and are not done.
	Dir string
	// Bot makes the commits of manifests.
	Bot gitd.Person
	// Platform is for which dependencies are fetched, as manifests name it.
	Platform string
	// Secrets are removed from errors for people. Nil means that there are none.
	Secrets *redact.Secrets
	// RetryEvery is the wait after the first failed attempt at a deploy. It doubles after each other one. Default 5 s.
	RetryEvery time.Duration
	// Moved is called after a base has got a commit.
	Moved        func(repo, branch string, commit gitd.Hash)
	Dependencies Dependencies
	Log          *slog.Logger
	Now          func() time.Time

	changed atomic.Pointer[map[string]Source] // by SetSources
	ctx     context.Context                   // of work in the background
	wg      sync.WaitGroup                    // of the work in the background

	mu     sync.Mutex       // guards all below
	closed bool             // no goroutine is started any more
	bases  map[string]*base // by repository
}

// Dependencies are the functions of the dependency cache that Bases uses.
type Dependencies struct {
	// Lacks reports whether Warm would fetch dependencies of a commit.
	Lacks func(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (bool, error)
	// Warm fetches the dependencies of a commit. If it fails, again reports whether a later attempt may succeed.
	Warm func(ctx context.Context, repo string, commit gitd.Hash) (again bool, err error)
}

// Bounds of refreshing bases.
const (
	refreshWithin   = 30 * time.Minute // one attempt
	importWithin    = 2 * time.Minute  // a shallow import that a request waits for
	refreshTries    = 10               // of a deploy
	warmTries       = 3
	retryEvery      = 5 * time.Second
	retryLongest    = 10 * time.Minute // between two attempts
	deploysMax      = 200              // accepted and not done
	replaysLookedAt = 200              // manifests among which a repeated deploy is looked for
)

// base is the work on the base of one repository.
type base struct {
	turn chan struct{} // holds one token, because refreshes and imports of one base take turns

	mu sync.Mutex // guards all below
	// A base follows its upstream at once. Deploys that wait for that do not wait for dependencies.
	refresh, warm queue
	failed        string
	asked         time.Time     // when upstream was asked for new work, successfully or not
	asking        chan struct{} // closed at the end of the question to upstream in the background; nil if there is none
}

// Open continues the deploys that an earlier process accepted. Work in the background ends with ctx.
func (b *Bases) Open(ctx context.Context) error {
	b.ctx, b.bases = ctx, make(map[string]*base)
	b.RetryEvery = cmp.Or(b.RetryEvery, retryEvery)
	list, err := b.kept()
	if err != nil {
		return err
	}
	for _, w := range list {
		o := b.of(w.Repo)
		o.mu.Lock()
		if w.Fetched == "" {
			err = b.enqueueLocked(o, &o.refresh, w, b.tryRefresh)
		} else {
			err = b.enqueueLocked(o, &o.warm, w, b.tryWarm)
		}
		o.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Close waits for the work in the background, which ends soon if the context of Open has ended.
func (b *Bases) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}

// of returns the work on the base of a repository.
func (b *Bases) of(repo string) *base {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.bases[repo]
	if o == nil {
		o = &base{turn: make(chan struct{}, 1)}
		o.refresh.wake, o.warm.wake = make(chan struct{}, 1), make(chan struct{}, 1)
		b.bases[repo] = o
	}
	return o
}

// acquire waits for the turn. The returned function gives it back.
func (o *base) acquire(ctx context.Context) (func(), error) {
	select {
	case o.turn <- struct{}{}:
		return func() { <-o.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// note remembers how an attempt ended, for people.
func (b *Bases) note(o *base, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = ""
	if err != nil {
		o.failed = b.Secrets.String(err.Error())
	}
}

// Status is how far a base follows its upstream.
type Status struct {
	// Refreshed is when the base was last known to be equal to upstream. Zero: never, or it has no upstream.
	Refreshed time.Time `json:"refreshed,omitzero"`
	// Shallow is set if only the newest commit of the base was fetched. The next refresh fetches the rest.
	Shallow bool `json:"shallow,omitempty"`
	// Waiting is the number of deploys that were accepted and are not done.
	Waiting int `json:"waiting,omitempty"`
	// Warming is set while the base's dependencies are being fetched.
	Warming bool `json:"warming,omitempty"`
	// Error is the error of the last attempt to refresh, or empty.
	Error string `json:"error,omitempty"`
}

// Status returns how far the base of a repository follows its upstream.
func (b *Bases) Status(ctx context.Context, repo *gitd.Repo) (Status, error) {
	at, err := repo.RefreshedAt(ctx)
	if err != nil {
		return Status{}, err
	}
	o := b.of(repo.Name())
	o.mu.Lock()
	defer o.mu.Unlock()
	return Status{
		Refreshed: at,
		Shallow:   repo.Shallow(),
		Waiting:   len(o.refresh.waiting),
		Warming:   len(o.warm.waiting) > 0,
		Error:     o.failed,
	}, nil
}

// SetSources replaces the sources of repositories. A refresh at work goes on with those that it began with.
func (b *Bases) SetSources(sources map[string]Source) { b.changed.Store(&sources) }

// AllSources returns the present sources, which must not be changed.
func (b *Bases) AllSources() map[string]Source {
	if s := b.changed.Load(); s != nil {
		return *s
	}
	return b.Sources
}

// Source returns the present source of a repository. It is zero for one that has none.
func (b *Bases) Source(repo string) Source { return b.AllSources()[repo] }

// OpenRepo is Git.Repo, but it fetches a repository that is configured and was never imported, as shallow as possible.
func (b *Bases) OpenRepo(ctx context.Context, name string) (*gitd.Repo, error) {
	repo, err := b.Git.Repo(name)
	up := b.Source(name)
	if !errors.Is(err, gitd.ErrNotFound) || up.URL == "" {
		return repo, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, importWithin, fmt.Errorf("upstream takes longer than %v", importWithin))
	defer cancel()
	o := b.of(name)
	release, err := o.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch %s, which was never imported: %w", name, err)
	}
	defer release()
	if repo, err := b.Git.Repo(name); !errors.Is(err, gitd.ErrNotFound) {
		return repo, err // by another request, while this one waited
	}

	repo, err = b.Git.ImportFrom(ctx, name, up.Upstream, true, nil)
	if err != nil {
		b.note(o, err)
		return nil, err
	}
	b.Log.Info("fetched a repository that was never imported, without its history", "repo", name)
	if head, err := repo.Resolve(ctx, "HEAD"); err == nil {
		if err := b.WarmLater(ctx, name, head); err != nil {
			b.Log.Warn("cannot have the dependencies of a base fetched", "repo", name, "err", err)
		}
	}
	return repo, nil
}

// Refreshed is the outcome of [Bases.Refresh].
type Refreshed struct {
	gitd.Refreshed
	// Base is the manifest of the base as it is now. It is nil if the newest manifest is equal.
	Base *gitd.SignedBase
}

// Refresh brings a base to a deployed commit, or to upstream's newest if d names none, and keeps a manifest of it. It writes its progress
// to progress, which may be nil.
func (b *Bases) Refresh(ctx context.Context, d Deploy, progress io.Writer) (Refreshed, error) {
	return b.takeTurn(ctx, d, progress, repair{})
}

// Repair is [Bases.Refresh] to upstream's newest commit of a base that may have diverged, see [gitd.Server.RepairFrom].
// by is the committer of replayed commits.
func (b *Bases) Repair(ctx context.Context, repo string, how gitd.Repair, by gitd.Person, progress io.Writer) (Refreshed, error) {
	return b.takeTurn(ctx, Deploy{Repo: repo}, progress, repair{how, by})
}

// takeTurn refreshes a base when no other refresh, import or landing of it is at work.
func (b *Bases) takeTurn(ctx context.Context, d Deploy, progress io.Writer, how repair) (Refreshed, error) {
	if b.ctx.Err() != nil {
		return Refreshed{}, record.ErrClosed
	}
	o := b.of(d.Repo)
	release, err := o.acquire(ctx)
	if err != nil {
		return Refreshed{}, err
	}
	defer release()
	res, err := b.refresh(ctx, d, progress, how)
	if ctx.Err() == nil {
		b.note(o, err)
	}
	return res, err
}

// repair is the way in which a refresh repairs a base that has diverged. Its zero value repairs nothing.
type repair struct {
	how gitd.Repair
	by  gitd.Person // of the commits that are replayed
}

func (b *Bases) refresh(ctx context.Context, d Deploy, progress io.Writer, how repair) (Refreshed, error) {
	up := b.Source(d.Repo)
	ctx, cancel := context.WithTimeoutCause(ctx, refreshWithin, fmt.Errorf("upstream takes longer than %v", refreshWithin))
	defer cancel()
	repo, err := b.Git.Repo(d.Repo)
	if errors.Is(err, gitd.ErrNotFound) && up.URL != "" {
		repo, err = b.Git.ImportFrom(ctx, d.Repo, up.Upstream, false, progress)
	}
	if err != nil {
		return Refreshed{}, err
	}
	var moved gitd.Refreshed
	if how.how == gitd.RepairNone {
		moved, err = b.Git.RefreshFrom(ctx, d.Repo, up.Upstream, d.Commit, progress)
	} else {
		moved, err = b.Git.RepairFrom(ctx, d.Repo, up.Upstream, how.how, how.by, progress)
	}
	res := Refreshed{Refreshed: moved}
	if err != nil {
		return res, err
	}
	b.Moved(d.Repo, moved.Branch, moved.New)
	if res.Base, err = b.keepManifest(ctx, repo, d, moved); err == nil && up.Mirror {
		_, err = repo.MirrorFrom(ctx, up.Upstream, progress)
	}
	return res, err
}

// keepManifest keeps a manifest of a base that moved. Returns nil if the newest manifest is equal.
func (b *Bases) keepManifest(ctx context.Context, repo *gitd.Repo, d Deploy, moved gitd.Refreshed) (*gitd.SignedBase, error) {
	deployed := d.Commit != ""
	d.Commit = moved.Commit
	latest, err := repo.LatestBase(ctx)
	switch {
	case err == nil && d.same(latest.Base), err == nil && !deployed && d.Commit == latest.Commit && len(moved.Own) == 0:
		return nil, nil
	case err != nil && !errors.Is(err, gitd.ErrNotFound):
		return nil, err
	}
	manifest, err := b.manifest(ctx, repo, d, moved, b.Source(d.Repo).Schema)
	if err != nil {
		return nil, err
	}
	signed, err := repo.PutBase(ctx, manifest, b.Bot)
	return &signed, err
}

// manifest returns the manifest of a base that moved. schema are the files of the schema if d names none.
func (b *Bases) manifest(ctx context.Context, repo *gitd.Repo, d Deploy, moved gitd.Refreshed, schema []string) (m gitd.Base, err error) {
	m = gitd.Base{
		Branch:      moved.Branch,
		Commit:      moved.Commit,
		Head:        moved.New,
		Environment: d.Environment,
		ImageDigest: d.ImageDigest,
		Schema:      d.SchemaHash,
		Platform:    b.Platform,
		DeployedAt:  d.DeployedAt,
		SentAt:      d.SentAt,
		Time:        b.Now(),
	}
	if m.Lockfiles, err = repo.Lockfiles(ctx, moved.Commit); err != nil {
		return m, err
	}
	if len(d.SchemaFiles) > 0 {
		schema = d.SchemaFiles
	}
	if m.Schema == "" && len(schema) > 0 {
		m.Schema, err = repo.HashFiles(ctx, moved.Commit, schema)
	}
	return m, err
}
