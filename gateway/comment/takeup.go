package comment

import (
	"context"
	"errors"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// TakeUp finishes the work of an earlier process. It notes suggestions that became commits, and says batches whose prompts were not said.
// It leaves those that cannot be said now to the next attempt.
func (c *Comments) TakeUp(ctx context.Context) error {
	repos, err := c.Git.Repos(ctx)
	if err != nil {
		return err
	}
	for _, repo := range repos {
		callers, err := review.Callers(ctx, repo)
		if err != nil {
			return err
		}
		for _, caller := range callers {
			if err := c.takeUp(ctx, repo, caller); err != nil {
				c.Log.Error("cannot take up comments that an earlier process left", "caller", caller, "err", err)
			}
		}
	}
	return ctx.Err()
}

func (c *Comments) takeUp(ctx context.Context, repo *gitd.Repo, caller record.Caller) error {
	r, err := c.Book.Read(ctx, repo, caller)
	if err != nil {
		return err
	}
	runs := c.Executor.OfCaller(caller)
	if len(runs) == 0 {
		return nil // the caller was deleted
	}
	w := Work{Caller: caller, Repo: repo, Home: runs[len(runs)-1].Repo, Branch: caller.Branch()}
	failed := c.noteAllTaken(ctx, w, r)
	for _, b := range r.Batches {
		if b.Waits() { // later batches do not wait for one that is refused
			failed = errors.Join(failed, c.sayLater(ctx, w, b))
		}
	}
	return failed
}

// sayLater says a batch of an earlier process with the rights that its sender has now. A batch whose sender has none is refused.
func (c *Comments) sayLater(ctx context.Context, w Work, b review.Batch) error {
	if c.saidBefore(ctx, w, b) != "" {
		_, err := c.sayBatch(ctx, route.Who{}, w, b) // only the note of it is missing
		return err
	}
	who, err := c.sender(b)
	if err == nil {
		st, found := c.Find.Caller(ctx, who, w.Caller.String())
		if err = found; err == nil {
			err = who.CheckChangeCaller(st)
		}
	}
	if err != nil {
		if kind := route.AsProblem(err, who).Kind; kind != route.KindDenied && kind != route.KindNotFound {
			return err
		}
		_, err = c.noteSaid(ctx, w, b, "", route.NewProblem(route.KindDenied, "%s sent it, and may not change the workspace any more", b.Who))
		return err
	}
	_, err = c.sayBatch(ctx, who, w, b)
	return err
}

// setSender keeps in a batch from whom it came.
func setSender(b *review.Batch, who route.Who) {
	b.Who, b.Via, b.Token = who.Subject, "", ""
	switch {
	case who.Local:
		b.Via = review.ViaSocket
	case who.Account != nil:
		b.Via = review.ViaAccount
	case who.Token != "":
		b.Via, b.Token = review.ViaToken, who.Token
	}
}

// sender returns the sender of a batch with its present rights. Returns [gitd.ErrDenied] if it has none.
func (c *Comments) sender(b review.Batch) (who route.Who, err error) {
	switch {
	case b.Via == review.ViaSocket:
		return route.Local, nil
	case b.Via == review.ViaAccount && c.Account != nil:
		who, err = c.Account(b.Who)
	case b.Via == review.ViaToken:
		who, err = c.bearer(b.Token)
	default:
		err = gitd.ErrDenied
	}
	return who.Under(c.Veil), err
}

// bearer returns the bearer of a token with its present rights.
func (c *Comments) bearer(id string) (route.Who, error) {
	list := c.Git.Tokens()
	i := slices.IndexFunc(list, func(t gitd.Issued) bool { return t.ID == id })
	if i < 0 || !list[i].Expires.IsZero() && !c.Now().Before(list[i].Expires) {
		return route.Who{}, gitd.ErrDenied
	}
	t := list[i]
	g, err := c.Git.Listed(gitd.Grant{ID: t.ID, Subject: t.Subject, Repo: t.Repo, Scopes: t.Scopes, Read: t.Read, Write: t.Write})
	return route.Who{Subject: g.Subject, Repo: g.Repo, Scopes: g.Scopes, Read: g.Read, Write: g.Write, Token: g.ID}, err
}
