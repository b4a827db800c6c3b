package upstream

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// refreshWait is the default of [Bases.RefreshWait].
const refreshWait = 5 * time.Second

// Freshen asks upstream for the base of a repository before new work begins from it, unless upstream was asked less than
// RefreshAfter ago. The question goes on in the background. Freshen waits for the answer, at most for RefreshWait. It
// returns no error, because the base as it is serves if upstream does not answer. [Status] has the error.
//
// Freshen does not ask for a base that follows deploys. The newest commit of its upstream may not be deployed.
func (b *Bases) Freshen(ctx context.Context, repo *gitd.Repo) {
	if b.RefreshAfter <= 0 {
		return
	}
	answered := b.askLater(ctx, repo)
	if answered == nil {
		return
	}
	wait := time.NewTimer(cmp.Or(b.RefreshWait, refreshWait))
	defer wait.Stop()
	select {
	case <-answered:
	case <-wait.C:
		b.Log.Warn("upstream answers late, so new work begins from the base as it is", "repo", repo.Name(), "waited",
			cmp.Or(b.RefreshWait, refreshWait))
	case <-ctx.Done():
	}
}

// askLater starts the question to upstream, or finds the one that is at work. The channel is closed at its end. Returns
// nil if there is nothing to ask.
func (b *Bases) askLater(ctx context.Context, repo *gitd.Repo) <-chan struct{} {
	name := repo.Name()
	o := b.of(name)
	o.mu.Lock()
	asking, asked := o.asking, o.asked
	o.mu.Unlock()
	if asking != nil {
		return asking
	}
	if b.Now().Sub(asked) < b.RefreshAfter {
		return nil
	}
	if at, err := repo.RefreshedAt(ctx); err != nil || b.Now().Sub(at) < b.RefreshAfter {
		return nil
	}
	if follows, err := b.followsUpstream(ctx, repo); err != nil || !follows {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asking != nil {
		return o.asking
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.ctx.Err() != nil {
		return nil
	}
	done, began := make(chan struct{}), b.Now()
	o.asking = done
	b.wg.Go(func() {
		defer close(done)
		b.ask(name)
		o.mu.Lock()
		o.asking, o.asked = nil, began
		o.mu.Unlock()
	})
	return done
}

// ask brings a base to upstream's newest commit.
func (b *Bases) ask(name string) {
	done, err := b.Refresh(b.ctx, Deploy{Repo: name}, nil)
	switch {
	case b.ctx.Err() != nil:
	case err != nil:
		b.Log.Warn("cannot refresh a base from which new work begins", "repo", name, "err", err)
	case done.Old != done.New:
		if err := b.WarmLater(b.ctx, name, done.Commit); err != nil {
			b.Log.Warn("cannot have the dependencies of a base fetched", "repo", name, "err", err)
		}
	}
}

// followsUpstream reports whether a base follows the newest commit of an upstream, and not the deploys of one.
func (b *Bases) followsUpstream(ctx context.Context, repo *gitd.Repo) (bool, error) {
	if b.Source(repo.Name()).URL == "" {
		if at, err := repo.Upstream(ctx); err != nil || at == "" {
			return false, err
		}
	}
	latest, err := repo.LatestBase(ctx)
	if errors.Is(err, gitd.ErrNotFound) {
		return true, nil
	}
	return err == nil && latest.SentAt.IsZero(), err
}
