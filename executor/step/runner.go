package step

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/deps"
	"github.com/ramus-dev/ramus/executor/images"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/executor/services"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Runner runs steps in containers. Its fields are set before the first use, and all are required unless they say
// otherwise. Methods are safe for concurrent use.
type Runner struct {
	// Context ends with the server, with cause [record.ErrClosed].
	Context context.Context
	// Go runs f in the background. The server waits for f before it ends.
	Go       func(f func())
	Git      *gitd.Server
	Fleet    *containers.Fleet
	Trees    *worktree.Store
	Deps     *deps.Cache
	Settings *settings.Reader
	Services *services.Starter
	Builder  *images.Builder
	// Inspector checks pages.
	Inspector *browse.Inspector
	Folder    *live.Folder
	// Bucket keeps files for later containers.
	Bucket store.Bucket
	// Image is the usual image.
	Image string
	// RepoEnv returns further environment of commands for a repository. Nil means that there is none.
	RepoEnv func(repo string) []string
	// Egress returns the hosts that containers of the server's own may reach.
	Egress func() (allow, private []string)
	// Door returns the handler of requests of a caller's container.
	Door func(*Target) http.Handler
	// KeepTerminals commits the changes of a target's terminals before its work tree is brought to another commit. It
	// leaves out the terminal of the run itself. The run has the turn.
	KeepTerminals func(ctx context.Context, t *Target, but *Run) error
	// Count counts a command that has ended.
	Count func(committed bool)
	// CountCheck counts a check that has ended. reused is set if its result was known. Nil counts nothing.
	CountCheck func(reused bool)
	// Hides reports whether the work of a caller is hidden from others. Nil hides nothing.
	Hides func(c record.Caller) bool
	// Secrets are removed from everything that is kept. Nil means that there are none.
	Secrets *redact.Secrets
	// SecretStore has the secrets that the door adds to requests. Nil means that there are none.
	SecretStore *secret.Store
	Log         *slog.Logger
	Now         func() time.Time
}

// Run is a run whose steps work in containers.
type Run struct {
	*live.Run
	Runner *Runner
	Owner  Owner
	// Target has the run's own branch.
	Target *Target
	// Checks are those by a browser.
	Checks *browse.Run
	// Env is the environment of the command of KindExec, with its values. It is nil after a restart.
	Env []string
}

// Owner answers the questions of a run that its record does not answer.
type Owner interface {
	// Image returns the image that the run's container must be made of, or "" for any.
	Image() string
	// Speaks reports whether a step is a turn with an agent of agent.ProtocolACP.
	Speaks(s Info) bool
	// Foresee learns a commit that is about to become the branch's tip.
	Foresee(commit gitd.Hash)
	// Approve has a person answer the question of a rule, and returns once the answer is there.
	Approve(ctx context.Context, q Question) (record.Decision, error)
}

// NewTarget returns the work tree of a caller. The base is that of the caller's branch.
func (r *Runner) NewTarget(c record.Caller, repo *gitd.Repo, base string) *Target {
	t := &Target{runner: r, turns: make(chan struct{}, 1), Site: browse.NewSite()}
	t.Tree = r.Trees.NewTree(c, repo, base)
	t.Services = t.newServices()
	t.Hooks = worktree.Hooks{Door: func() http.Handler { return r.Door(t) }, Furnish: t.furnish, Run: t.runID,
		Foresee: t.foresee, OnLeak: t.leaked, Container: t.container, Installed: t.installed}
	return t
}

// Fail returns the error of a run that ends for a reason of the closed list.
func Fail(reason record.Reason, text string) error { return &Failure{reason, text} }
