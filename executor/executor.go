package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/archive"
	"github.com/ramus-dev/ramus/executor/background"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/deps"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/lfs"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/quota"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/repos"
	"github.com/ramus-dev/ramus/executor/runs"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/executor/search"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/executor/services"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/executor/shell"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/executor/warmup"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/tasks/workflow"
	bolterrors "go.etcd.io/bbolt/errors"
)

// WorkDir is the folder of a container in which the caller's branch is checked out.
const WorkDir = containers.WorkDir

// Executor runs commands for callers. Its exported fields are its options and
// may be changed until Open. Methods are safe for concurrent use.
type Executor struct {
	// Data is the data folder. It has live/, index.db and search.db.
	Data string
	Git  *gitd.Server
	// Fleet gives containers. The executor opens and closes it.
	Fleet *containers.Fleet
	// Containers are the options of containers that do not change later.
	Containers Containers
	// Options may be changed later, by [Executor.Apply].
	Options Options
	// Settings reads the settings of repositories. Nil means that repositories have the values of the fields here, within
	// which they may choose.
	Settings *settings.Reader
	// Bot is the committer of every commit. The default is ramus <ramus@localhost>.
	Bot gitd.Person
	// Chain signs the records of runs and the chain of them. Signer and Also are its options here. A nil Signer means the signer of
	// Git.
	Chain seal.Chain
	// LLM answers llm nodes. Nil means that there is none.
	LLM LLM
	// Browser configures the browser that checks pages. If it is nil, checks by a browser end as UNVERIFIED.
	Browser *browse.Browser
	// Secrets are removed from everything that is journalled, sealed, stored or shown. Nil means that there are none.
	Secrets *redact.Secrets
	// SecretStore has the secrets that the door adds to requests. Nil means that there are none.
	SecretStore *secret.Store
	// Store keeps the files that are too large for git, and the dependency cache. If it is nil they are in the folder
	// artifacts of Data, which is read in any case. The executor does not close it.
	Store store.Bucket
	// Submodules are the repositories that containers of another one may read, by the name of that one.
	Submodules map[string][]string
	// With lists the additional repositories that callers of a repository may work in, by the name of that one. People who
	// see the runs of that one see the changes in the others.
	With map[string][]string
	// LFS keeps Git LFS objects. Prune removes those that nobody needs. Nil means that there are none.
	LFS *lfs.Objects
	// Bases follow their upstreams. Sources, Hosts, RefreshAfter and RefreshWait are its options here. Open sets its other fields,
	// and opens it.
	Bases upstream.Bases
	// Door serves further requests at a container's door, apart from git and the proxy, by path prefix ("/model/").
	// Nil means that there are none.
	Door map[string]func(Visitor) http.Handler
	// Services starts the services of callers. Limits are its options here.
	Services services.Starter
	// Hides reports whether the work of a caller is hidden from others. Results of its checks are not theirs. It must not
	// wait. Nil hides nothing.
	Hides func(c record.Caller) bool
	// Observer hears of the ends of runs. Nil means that nobody does.
	Observer Observer
	Log      *slog.Logger
	Now      func() time.Time

	// An Executor reads its runs too. Open sets the Reader.
	runs.Reader

	// The parts of an executor. Open sets their fields. They may be handed on before, and used after.

	// Search finds words in runs.
	Search search.Searcher
	// Prompts gives prompts to the agents of runs.
	Prompts dialogue.Prompts
	// Repos removes, renames and moves repositories.
	Repos repos.Repos
	// Files moves files between people and the containers of callers.
	Files transfer.Mover
	// Shells has the terminals of callers.
	Shells shell.Shells
	// Warmer wakes containers while people type.
	Warmer warmup.Warmer
	// Programs reaches the programs in the containers of callers.
	Programs background.Programs

	life    lifetime
	tuning  tuning
	viewer  *browse.Viewer
	archive *archive.Archive
	targets step.Targets
	runs    registry
	book    quota.Book
	tally   tally
	applied atomic.Pointer[Options] // nil until the first Apply

	trees *worktree.Store
	deps  *deps.Cache
}

// tuning has times and bounds that tests change.
type tuning struct {
	// sealEvery is the wait between two attempts to seal a run. The default is 5 s.
	sealEvery time.Duration
	// layers bounds the base layers.
	layers worktree.Layers
	waits  agent.Waits
	// quiet is how long a terminal must be quiet for its changes to be committed. The default is 60 s.
	quiet time.Duration
	// warm is how long a container waits for a prompt. The default is 90 s.
	warm time.Duration
	// token returns a part of a run's id. Nil means [record.NewToken].
	token func() string
}

// LLM is a model endpoint.
type LLM interface {
	Ask(ctx context.Context, call workflow.LLMCall) (text string, err error)
}

// Open starts the fleet, adopts the containers of an earlier process, and resumes every run that had not ended. A damaged or
// missing index is rebuilt from the refs.
func (x *Executor) Open(ctx context.Context) error {
	x.defaults()
	s, err := x.Options.Check()
	if err != nil {
		return err
	}
	x.Options = s
	if x.Settings == nil {
		x.Settings = new(settings.Reader)
		x.Settings.SetBounds(x.bounds())
	}
	x.life.beginLife(ctx)
	x.Reader = runs.Reader{Context: x.life.ctx, Git: x.Git, Fleet: x.Fleet, Live: &x.runs}
	x.Folder = &live.Folder{Dir: filepath.Join(x.Data, "live"), Secrets: x.Secrets, Now: x.Now}
	if err := os.MkdirAll(x.Folder.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot open the data folder: %w", err)
	}
	if x.Artifacts, err = store.Open(filepath.Join(x.Data, "artifacts"), x.Store); err != nil {
		return err
	}
	x.Artifacts.Now = x.Now
	if err := os.RemoveAll(x.exports()); err != nil {
		return fmt.Errorf("cannot open the data folder: %w", err)
	}
	if err := x.openChain(ctx); err != nil {
		return err
	}
	if err := x.openIndex(ctx); err != nil {
		return err
	}
	x.Search = search.Searcher{Context: x.life.ctx, Go: x.life.do, Path: filepath.Join(x.Data, "search.db"), Runs: &x.Reader, Log: x.Log}
	x.Programs = background.Programs{Adopt: x.adopt, Secrets: x.Secrets}
	if err := x.openTrees(); err != nil {
		return errors.Join(err, x.Index.Close())
	}
	x.Fleet.Ending = x.keep
	x.setBases()
	x.setServices()
	x.Services.Open(x.life.ctx)
	x.viewer = x.newViewer()
	x.archive = x.newArchive()
	x.Repos = x.newRepos()
	x.Files = transfer.Mover{Context: x.life.ctx, Git: x.Git, Dir: filepath.Join(x.Data, "uploads"), Awake: x.awake, Alone: x.alone,
		Bot: x.Bot, Secrets: x.Secrets, Quiet: x.tuning.quiet, Turn: 2 * time.Minute}
	x.Shells = shell.Shells{Context: x.life.ctx, Fleet: x.Fleet, Stop: x.Stop, Quiet: x.tuning.quiet, Secrets: x.Secrets, Log: x.Log, Now: x.Now}
	x.Warmer = warmup.Warmer{Context: x.life.ctx, Go: x.life.do, Runs: &x.Reader, Targets: &x.targets, Awake: x.awake,
		MakeLayer: x.MakeLayer, Life: x.tuning.warm, Log: x.Log}
	x.Prompts = dialogue.Prompts{Runs: &x.Reader, At: x.runs.dialogueAt, Open: x.life.err, Dialogues: x.newDialogues()}
	x.targets.Runner = x.newRunner()
	if err := x.Fleet.Open(ctx); err != nil {
		x.life.end()
		x.life.wg.Wait()
		x.Services.Close()
		x.trees.Close()
		return errors.Join(err, x.Index.Close())
	}
	if err := errors.Join(x.resumeAll(ctx), x.Bases.Open(x.life.ctx)); err != nil {
		return errors.Join(err, x.Close(ctx, true))
	}
	return nil
}

// openTrees opens the store of work trees.
func (x *Executor) openTrees() error {
	x.trees = &worktree.Store{
		Git:       x.Git,
		Fleet:     x.Fleet,
		Container: worktree.Container{Image: x.Containers.Image, Limits: x.Options.Limits, Env: x.containerEnv()},
		Identity:  worktree.Identity{Bot: x.Bot},
		Secrets:   x.Secrets,
		Layers:    x.tuning.layers,
		Find:      x.targets.Tree,
		Log:       x.Log,
		Now:       x.Now,
	}
	if x.Git.Signer != nil {
		x.trees.Identity.Key = x.Git.Signer.PublicKey()
	}
	x.trees.Layers.Dir, x.trees.Layers.Bytes = filepath.Join(x.Data, "layers"), x.Containers.Layers
	x.deps = &deps.Cache{
		Git:    x.Git,
		Trees:  x.trees,
		Bucket: x.Artifacts.Bucket,
		Egress: x.egress,
		Log:    x.Log,
	}
	return x.trees.Open(x.life.ctx)
}

// setBases sets the fields of Bases that are no options of the executor.
func (x *Executor) setBases() {
	b := &x.Bases
	b.Git, b.Dir, b.Bot, b.Secrets, b.Log, b.Now = x.Git, filepath.Join(x.Data, "deploys"), x.Bot, x.Secrets, x.Log, x.Now
	b.Platform = worktree.Platform
	b.Chosen = func(ctx context.Context, repo *gitd.Repo, into string) (string, error) {
		s, err := x.Settings.Read(ctx, repo, into)
		return string(s.Merge), err
	}
	b.Moved = x.trees.MakeLater
	b.Dependencies = upstream.Dependencies{
		Lacks: x.deps.Lacks,
		Warm: func(ctx context.Context, repo string, commit gitd.Hash) (again bool, err error) {
			err = x.deps.Warm(ctx, repo, commit, io.Discard)
			return !errors.Is(err, deps.ErrCannotFetch), err
		},
	}
}

// newArchive returns the archive of the runs of all repositories.
func (x *Executor) newArchive() *archive.Archive {
	return &archive.Archive{
		Context:  x.life.ctx,
		Go:       x.life.wg.Go,
		Git:      x.Git,
		Folder:   x.Folder,
		Store:    x.Artifacts,
		Chain:    &x.Chain,
		Find:     x.Run,
		Manifest: x.Manifest,
		Engine:   x.Fleet.Engine.Name(),
		Image:    x.Containers.Image,
		Bot:      x.Bot,
		Secrets:  x.Secrets,
		Log:      x.Log,
		Now:      x.Now,
	}
}

// newRepos returns the repositories of the server.
func (x *Executor) newRepos() repos.Repos {
	return repos.Repos{
		Git:         x.Git,
		Runs:        &x.Reader,
		Stop:        x.Stop,
		Open:        x.life.err,
		Data:        x.Data,
		Artifacts:   x.Artifacts,
		Shared:      x.Store != nil,
		Trees:       x.trees,
		Deps:        x.deps,
		SecretStore: x.SecretStore,
		LFS:         x.LFS,
		Hides:       x.Hides,
	}
}

// Warm fetches the dependencies of a commit of a base into the cache, see [deps.Cache.Warm]. progress may be nil.
func (x *Executor) Warm(ctx context.Context, name string, commit gitd.Hash, progress io.Writer) error {
	if err := x.life.err(); err != nil {
		return err
	}
	if progress == nil {
		progress = io.Discard
	}
	return x.deps.Warm(ctx, name, commit, progress)
}

// WarmPool starts containers of the usual kind before callers need them, if the fleet has a pool, and returns when they wait.
func (x *Executor) WarmPool(ctx context.Context) error { return x.trees.WarmPool(ctx) }

// MakeLayer makes the base layer of a branch's tip, and those of its dependencies as far as these are in the cache, unless they are
// there. It returns when they can be bound. Without a Keeper the error is [ErrUnable].
func (x *Executor) MakeLayer(ctx context.Context, name, branch string) error {
	repo, err := x.Git.Repo(name)
	if err != nil {
		return err
	}
	commit, err := repo.Resolve(ctx, "refs/heads/"+branch)
	if err != nil {
		return err
	}
	if err := x.trees.Make(ctx, worktree.Wish{Repo: name, Branch: branch, Commit: commit}); err != nil {
		return err
	}
	return x.deps.MakeLayers(ctx, repo, commit)
}

func (x *Executor) defaults() {
	if x.Log == nil {
		x.Log = slog.New(slog.DiscardHandler)
	}
	if x.Now == nil {
		x.Now = time.Now
	}
	x.tuning.waits = x.tuning.waits.WithDefaults()
	if x.tuning.sealEvery <= 0 {
		x.tuning.sealEvery = 5 * time.Second
	}
	if x.tuning.quiet <= 0 {
		x.tuning.quiet = time.Minute
	}
	if x.Bot.Name == "" {
		x.Bot.Name = "ramus"
	}
	if x.Bot.Email == "" {
		x.Bot.Email = "ramus@localhost"
	}
}

func (x *Executor) openIndex(ctx context.Context) (err error) {
	path := filepath.Join(x.Data, "index.db")
	var fresh bool
	x.Index, fresh, err = index.Open(path)
	if errors.Is(err, index.ErrDamaged) || errors.Is(err, bolterrors.ErrInvalid) ||
		errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch) {
		x.Log.Warn("the index is damaged and is rebuilt from the refs", "err", err)
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("cannot remove the damaged index: %w", err)
		}
		x.Index, fresh, err = index.Open(path)
	}
	if err != nil {
		return err
	}
	if !fresh {
		if err = x.Index.Load(); err == nil {
			return x.forgetGone(ctx)
		}
		x.Log.Warn("the index is damaged and is rebuilt from the refs", "err", err)
	}
	_, err = x.Reindex(ctx)
	return err
}

// forgetGone rebuilds the index if it has runs of a repository that is not there. The last process was killed while it
// removed or renamed one, or somebody else did.
func (x *Executor) forgetGone(ctx context.Context) error {
	seen := make(map[string]bool)
	var gone []record.Run
	for _, r := range x.Index.All() {
		there, known := seen[r.Repo]
		if !known {
			_, err := x.Git.Repo(r.Repo)
			there = !errors.Is(err, gitd.ErrNotFound)
			seen[r.Repo] = there
		}
		if !there {
			gone = append(gone, r)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	x.Log.Warn("repositories are gone, and the index is rebuilt without them", "runs", len(gone))
	_, err := x.Reindex(ctx)
	return err
}

// Reindex rebuilds the index from refs alone.
func (x *Executor) Reindex(ctx context.Context) (int, error) {
	return x.Index.Rebuild(func() ([]record.Run, error) { return index.ReadRuns(ctx, x.Git) })
}

// Close stops taking work. It does not end runs. They continue at the next Open. Containers are left for the next
// process if keep is set.
func (x *Executor) Close(ctx context.Context, keep bool) error {
	if !x.life.end() {
		return nil
	}
	x.Programs.Close()
	ended := make(chan struct{})
	go func() {
		x.life.wg.Wait()
		x.Services.Close()
		x.Bases.Close()
		x.trees.Close()
		close(ended)
	}()
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("cannot wait for the runs to pause: %w", context.Cause(ctx))
	}
	err = errors.Join(err, x.Fleet.Close(ctx, keep))
	<-ended // with the fleet closed every container's connection is, and nothing can hang on one
	return errors.Join(err, x.Search.Close(), x.Index.Close())
}
