package tournament

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Starter submits runs.
type Starter interface {
	Submit(ctx context.Context, r record.Request) (record.Run, error)
}

// Begin begins the entries of a tournament that have not begun. It may be repeated, also after a kill. An entry that is
// refused has the reason. If all are, the tournament is removed and the first reason is the error. permit is
// [record.Request.Permit].
func (b *Book) Begin(ctx context.Context, repo *gitd.Repo, x Starter, r Record, permit func(record.Run, string) error) (Record, error) {
	if r.Begun {
		return r, nil
	}
	refused := map[record.Caller]string{}
	var first error
	for _, e := range r.Entries {
		q := r.request(e)
		q.Permit = permit
		_, err := x.Submit(ctx, q)
		switch {
		case err == nil:
		case isAboutEntry(err):
			if first == nil {
				first = err
			}
			refused[e.Caller] = text.Clip(err.Error(), 500)
		default:
			return r, fmt.Errorf("cannot begin %s: %w", e.Caller, err)
		}
	}
	if len(refused) == len(r.Entries) {
		if err := b.Forget(ctx, repo, r.Name); err != nil {
			return r, errors.Join(first, err)
		}
		return r, first
	}
	return b.Change(ctx, repo, r.Name, func(r *Record) error {
		r.Begun = true
		for i := range r.Entries {
			r.Entries[i].Refused = refused[r.Entries[i].Caller]
		}
		return nil
	})
}

// isAboutEntry reports whether a run was refused for a reason that does not go away by itself.
func isAboutEntry(err error) bool {
	for _, kind := range []error{record.ErrInvalid, record.ErrNotFound, record.ErrConflict, gitd.ErrInvalid, gitd.ErrNotFound, gitd.ErrDenied} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// Resume begins the entries that a killed server left in a repository.
func (b *Book) Resume(ctx context.Context, repo *gitd.Repo, x Starter) error {
	list, err := List(ctx, repo)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range list {
		if _, err := b.Begin(ctx, repo, x, r, nil); err != nil {
			errs = append(errs, fmt.Errorf("cannot go on with tournament %s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}
