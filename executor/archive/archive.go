package archive

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Archive writes the records of runs into the refs of these runs. Its fields are set before the first use, and all are
// required but Secrets. Methods are safe for concurrent use.
type Archive struct {
	// Context ends with the server. Work in the background ends with it.
	Context context.Context
	// Go runs f in the background. The server waits for f before it ends.
	Go     func(f func())
	Git    *gitd.Server
	Folder *live.Folder
	// Store keeps the files that are too large for git.
	Store *store.Store
	// Chain has the chains of seals.
	Chain *seal.Chain
	// Find returns a run by its name, and Manifest its evidence.
	Find     func(ctx context.Context, run string) (record.Run, error)
	Manifest func(ctx context.Context, run string) (record.Manifest, error)
	// Engine is the name of the container engine. Image is that of a run whose record names none.
	Engine, Image string
	// Bot is the committer.
	Bot gitd.Person
	// Secrets are removed from the evidence. Nil means that there are none.
	Secrets *redact.Secrets
	Log     *slog.Logger
	Now     func() time.Time
}

// Entry is the record of one run that works or waits.
type Entry struct {
	archive *Archive
	run     *live.Run
	repo    *gitd.Repo

	mu     sync.Mutex // guards all below
	ref    gitd.Hash  // the run's ref points to it
	review *review    // nil for none
}

// Entry returns the record of a run whose ref in repo points to ref.
func (a *Archive) Entry(run *live.Run, repo *gitd.Repo, ref gitd.Hash) *Entry {
	return &Entry{archive: a, run: run, repo: repo, ref: ref}
}

// at returns the commit that the run's ref points to.
func (e *Entry) at() gitd.Hash {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ref
}
