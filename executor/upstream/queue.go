package upstream

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// queue is deploys that wait for one kind of work. The mutex of its base guards it.
type queue struct {
	waiting []*waitingDeploy
	working bool          // a goroutine works at it
	wake    chan struct{} // wakes the goroutine after a change of waiting
}

// Accept accepts a deploy. When it returns the deploy is durable, and the base follows in the background: upstream is tried several times,
// over about an hour. Accept returns true if the deploy was accepted before.
func (b *Bases) Accept(ctx context.Context, d Deploy) (known bool, err error) {
	if known, err := b.judge(ctx, d); known || err != nil {
		return known, err
	}
	w := &waitingDeploy{Deploy: d, Sent: d.SentAt, Accepted: b.Now().UTC()}
	o := b.of(d.Repo)
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.ContainsFunc(o.refresh.waiting, func(other *waitingDeploy) bool { return w.sameAs(other) }) {
		return true, nil
	}
	if n := len(o.refresh.waiting); n >= deploysMax {
		return false, fmt.Errorf("%d deploys of %s wait already: %w", n, d.Repo, containers.ErrBusy)
	}
	w.file = w.name()
	if err := b.keep(w); err != nil {
		return false, fmt.Errorf("cannot accept the deploy: %w", err)
	}
	return false, b.enqueueLocked(o, &o.refresh, w, b.tryRefresh)
}

// judge returns an error if a deploy cannot be accepted, and true if a manifest shows that it was accepted before.
func (b *Bases) judge(ctx context.Context, d Deploy) (known bool, err error) {
	if err := d.Check(); err != nil {
		return false, err
	}
	if !reflect.DeepEqual(redact.Clean(b.Secrets, d), d) {
		return false, fmt.Errorf("%w deploy: it holds the value of a secret", record.ErrInvalid)
	}
	repo, err := b.Git.Repo(d.Repo)
	if errors.Is(err, gitd.ErrNotFound) && b.Source(d.Repo).URL != "" {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if known, err := hasManifest(ctx, repo, d); known || err != nil {
		return known, err
	}
	at, err := repo.Upstream(ctx)
	if err == nil && at == "" && b.Source(d.Repo).URL == "" {
		err = fmt.Errorf("%w deploy: %s was created here and has no upstream", record.ErrInvalid, d.Repo)
	}
	return false, err
}

// hasManifest looks for a deploy among the manifests. It returns true if the newest manifest is the same, or if an
// earlier one was made from the same message.
func hasManifest(ctx context.Context, repo *gitd.Repo, d Deploy) (bool, error) {
	latest, err := repo.LatestBase(ctx)
	if errors.Is(err, gitd.ErrNotFound) {
		return false, nil
	}
	if err != nil || d.same(latest.Base) {
		return err == nil, err
	}
	list, err := repo.Bases(ctx, replaysLookedAt)
	return slices.ContainsFunc(list, func(m gitd.SignedBase) bool {
		return m.Commit == d.Commit && !d.SentAt.IsZero() && d.SentAt.Equal(m.SentAt)
	}), err
}

// WarmLater fetches the dependencies of a commit of a base in the background. When it returns the wish is durable.
func (b *Bases) WarmLater(ctx context.Context, name string, commit gitd.Hash) error {
	repo, err := b.Git.Repo(name)
	if err != nil {
		return err
	}
	if lacks, err := b.Dependencies.Lacks(ctx, repo, commit); err != nil || !lacks {
		return err
	}
	w := &waitingDeploy{Deploy: Deploy{Repo: name, Commit: commit}, Accepted: b.Now().UTC(), Fetched: commit}
	w.file = w.name()
	o := b.of(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.ContainsFunc(o.warm.waiting, func(other *waitingDeploy) bool { return other.Fetched == commit }) {
		return nil
	}
	if err := b.keep(w); err != nil {
		return fmt.Errorf("cannot remember to fetch dependencies: %w", err)
	}
	return b.enqueueLocked(o, &o.warm, w, b.tryWarm)
}

// enqueueLocked gives a deploy to the goroutine of a queue, and starts the goroutine if there is none. o.mu is held.
func (b *Bases) enqueueLocked(o *base, q *queue, w *waitingDeploy, try func(*base, *waitingDeploy) bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.ctx.Err() != nil {
		return record.ErrClosed // it is in its file, and the next process finds it
	}
	q.waiting = append(q.waiting, w)
	if !q.working {
		q.working = true
		b.wg.Go(func() { b.work(o, q, try) })
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// work tries the deploys that wait in a queue until none does.
func (b *Bases) work(o *base, q *queue, try func(*base, *waitingDeploy) bool) {
	for {
		o.mu.Lock()
		if len(q.waiting) == 0 {
			q.working = false
			o.mu.Unlock()
			return
		}
		w := slices.MinFunc(q.waiting, func(a, c *waitingDeploy) int { return a.next.Compare(c.next) })
		wait := w.next.Sub(b.Now())
		o.mu.Unlock()
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-q.wake:
			case <-b.ctx.Done():
			}
			timer.Stop()
		}
		if b.ctx.Err() != nil {
			return // the files stay, and the next process continues
		}
		if wait > 0 {
			continue
		}
		if over := try(o, w); over {
			o.mu.Lock()
			q.waiting = slices.DeleteFunc(q.waiting, func(other *waitingDeploy) bool { return other == w })
			o.mu.Unlock()
		}
	}
}

// tryRefresh brings the base to the deployed commit. It returns true if no further attempt is needed.
func (b *Bases) tryRefresh(o *base, w *waitingDeploy) (over bool) {
	res, err := b.Refresh(b.ctx, w.Deploy, nil)
	if err != nil {
		return b.tryAgain(w, err, refreshTries)
	}
	b.Log.Info("brought the base to the deployed commit", "repo", w.Repo, "commit", w.Commit, "branch", res.Branch, "from",
		res.Old, "to", res.New)
	w.Fetched, w.Tries = res.Commit, 0
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := b.keep(w); err != nil {
		b.Log.Warn("cannot remember that a base was refreshed; it is looked at again if this process ends", "repo",
			w.Repo, "err", err)
	}
	if err := b.enqueueLocked(o, &o.warm, w, b.tryWarm); err != nil {
		b.Log.Debug("the dependencies of a base are left to the next process", "repo", w.Repo, "err", err)
	}
	return true
}

// tryWarm fetches the dependencies of a base that serves already. It returns true if no further attempt is needed.
func (b *Bases) tryWarm(o *base, w *waitingDeploy) (over bool) {
	o.mu.Lock()
	newest := o.warm.waiting[len(o.warm.waiting)-1]
	o.mu.Unlock()
	if newest != w { // only those of the newest base are worth it
		b.discard(w)
		return true
	}
	again, err := b.Dependencies.Warm(b.ctx, w.Repo, w.Fetched)
	if err != nil && again {
		return b.tryAgain(w, err, warmTries)
	}
	if err != nil {
		b.Log.Info("containers on this base begin with a cold cache", "repo", w.Repo, "commit", w.Fetched, "err", err)
	}
	b.discard(w)
	return true
}

// tryAgain postpones a deploy. It discards the deploy and returns true after tries attempts, or at once on a
// conflict.
func (b *Bases) tryAgain(w *waitingDeploy, err error, tries int) (over bool) {
	if b.ctx.Err() != nil {
		return false
	}
	w.Tries++
	log := b.Log.With("repo", w.Repo, "commit", w.Commit, "tries", w.Tries, "err", err)
	if errors.Is(err, gitd.ErrConflict) || w.Tries >= tries {
		log.Error("gave up a deploy")
		b.discard(w)
		return true
	}
	w.next = b.Now().Add(min(b.RetryEvery<<(w.Tries-1), retryLongest))
	log.Warn("cannot carry out a deploy yet; it is tried again", "next", w.next)
	if err := b.keep(w); err != nil {
		log.Warn("cannot count the attempts at a deploy", "err", err)
	}
	return false
}
