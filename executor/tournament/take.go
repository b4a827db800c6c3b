package tournament

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Claim notes, durably, that an entry is about to be taken. Until [Book.Settle] no other entry can be claimed, also after a
// kill. An entry may be claimed again. Returns [record.ErrConflict] if another one was taken or is claimed.
func (b *Book) Claim(ctx context.Context, repo *gitd.Repo, name string, entry record.Caller) (Record, error) {
	return b.Change(ctx, repo, name, func(r *Record) error {
		err := r.CheckTake(entry)
		if err == nil && r.Taken.IsZero() {
			r.Claimed = entry
		}
		return err
	})
}

// CheckTake returns [record.ErrConflict] if another entry was taken or is claimed.
func (r Record) CheckTake(entry record.Caller) error {
	switch {
	case !r.Taken.IsZero() && r.Taken != entry:
		return fmt.Errorf("cannot take %s: %w: %s was taken already", entry, record.ErrConflict, r.Taken)
	case !r.Claimed.IsZero() && r.Claimed != entry:
		return fmt.Errorf("cannot take %s: %w: the taking of %s has begun; repeat that first", entry, record.ErrConflict, r.Claimed)
	}
	return nil
}

// Settle ends a claim, durably. The error is the result of the merge, and nil means that the entry was taken. The claim
// stays if the error leaves open whether something was merged.
func (b *Book) Settle(ctx context.Context, repo *gitd.Repo, name string, entry record.Caller, result error) error {
	if result != nil && !isAboutEntry(result) {
		return nil
	}
	_, err := b.Change(ctx, repo, name, func(r *Record) error {
		r.Claimed = record.Caller{}
		if result == nil {
			r.Taken = entry
		}
		return nil
	})
	return err
}
