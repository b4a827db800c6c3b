package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/archive"
	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// maxStanding bounds the journal of a run of KindConversation, in bytes. Every amendment reads and writes all of it.
const maxStanding = 8 << 20

// farewell is the number of bytes by which the journal of an ended conversation may be longer. One that is too long
// must be able to end, and to record that its origin knows.
const farewell = 1 << 20

// Amendment is a change of a run of KindConversation.
type Amendment struct {
	// Events are journalled, in order, all or none.
	Events []record.Event
	// State, Reason and Error replace the run's if State is set.
	State  record.State
	Reason record.Reason
	Error  string
	// Record replaces Run.Record if it is set.
	Record json.RawMessage
}

// Stand claims a run of KindConversation, at which nothing of the executor works. Its owner keeps its journal and its record by
// [Executor.Amend]. Other runs of the same caller do the work. The request needs Key, Caller and Repo. A second claim with the
// same caller and key returns the run of the first, and fresh is false. The first run that works makes the caller's branch.
func (x *Executor) Stand(ctx context.Context, r record.Request, rec json.RawMessage) (run record.Run, fresh bool, err error) {
	return x.claimIdle(ctx, record.KindConversation, r, x.Secrets.JSON(rec))
}

// Amend changes a run of KindConversation. When it returns, the run's ref has all of the change as one commit, or
// none of it. was is the number of the last event that the change is based on. Returns ErrConflict, and changes
// nothing, if there are later events. A negative was disables this check. Returns ErrFull if the journal has 8 MiB,
// except for the end of the run and the events after that.
func (x *Executor) Amend(ctx context.Context, run string, was int64, a Amendment) (record.Run, error) {
	r, err := x.amend(ctx, run, was, a)
	if err != nil {
		return r, fmt.Errorf("cannot amend %s: %w", run, err)
	}
	return r, nil
}

func (x *Executor) amend(ctx context.Context, run string, was int64, a Amendment) (record.Run, error) {
	if err := x.life.err(); err != nil {
		return record.Run{}, err
	}
	_, repo, ref, release, err := x.lockIdle(ctx, run)
	if err != nil {
		return record.Run{}, err
	}
	defer release()
	// The ref is the truth. After a kill the index may lag.
	r, err := index.ReadRun(ctx, repo, gitd.Ref{Name: run, Hash: ref})
	if err != nil {
		return r, err
	}
	if r.Kind != record.KindConversation {
		return r, fmt.Errorf("%w: it is no conversation", record.ErrConflict)
	}
	journal, err := repo.ReadFile(ctx, string(ref), archive.JournalFile, 2*maxStanding)
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return r, err
	}
	before, err := record.ParseJournal(journal)
	if err != nil {
		return r, err
	}
	last := int64(0)
	if n := len(before); n > 0 {
		last = before[n-1].Seq
	}
	if was >= 0 && was != last {
		return r, fmt.Errorf("%w: its journal has %d events, not %d", record.ErrConflict, last, was)
	}
	now := x.Now().UTC()
	if a.State != "" {
		a.Events = append(slices.Clone(a.Events), amend(&r, a, now))
	}
	text := bytes.NewBuffer(journal)
	added := make([]record.Event, len(a.Events))
	for i, e := range a.Events {
		last++
		kind := e.Type // of a closed list
		e = redact.Clean(x.Secrets, e)
		e.Seq, e.Time, e.Type = last, now, kind
		line, err := json.Marshal(e)
		if err != nil {
			return r, fmt.Errorf("%w event: %w", record.ErrInvalid, err)
		}
		if len(line) >= record.MaxEvent { // none could be read any more
			return r, fmt.Errorf("%w event: it has %d bytes, at most %d can be read again", record.ErrInvalid,
				len(line), record.MaxEvent)
		}
		text.Write(append(line, '\n'))
		added[i] = e
	}
	most := maxStanding
	if r.Ended() {
		most += farewell
	}
	if text.Len() > most {
		return r, fmt.Errorf("%w: it would have more than %d MiB", record.ErrFull, most>>20)
	}
	if a.Record != nil {
		r.Record = x.Secrets.JSON(a.Record)
	}
	r = live.CleanRun(x.Secrets, r)
	if err := x.keepStanding(ctx, repo, ref, r, text.Bytes()); err != nil {
		return r, err
	}
	for _, e := range added {
		e.Run = r.Name()
		x.Folder.Publish(e)
	}
	return r, nil
}

// amend moves the run to the amendment's state.
func amend(r *record.Run, a Amendment, now time.Time) record.Event {
	r.State, r.Reason, r.Error, r.Hint = a.State, a.Reason, a.Error, a.Reason.Hint()
	if a.State != record.StateSubmitted && r.StartedAt.IsZero() {
		r.StartedAt = now
	}
	r.EndedAt = time.Time{} // one that had failed may be taken up again
	if r.Ended() {
		r.EndedAt = now
	}
	return record.Event{Type: record.EventRunState, State: a.State, Reason: string(a.Reason), Message: a.Error}
}

func (x *Executor) keepStanding(ctx context.Context, repo *gitd.Repo, ref gitd.Hash, r record.Run, journal []byte) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("%w: %w", record.ErrInvalid, err)
	}
	commit, err := repo.WriteCommit(ctx, gitd.NewCommit{From: ref, Parents: []gitd.Hash{ref},
		Put:    []gitd.File{{Path: "run.json", Content: text}, {Path: archive.JournalFile, Content: journal}},
		Author: r.Asker.Or(x.Bot), Committer: x.Bot, When: x.Now(),
		Message: fmt.Sprintf("%s: %s\n\n%s: %s\n%s: %s\n", r.Name(), archive.SealedAs(r), record.TrailerCaller, r.Caller,
			record.TrailerRun, r.ID)})
	if err != nil {
		return err
	}
	// The index is updated first. A kill between the ref and the index would leave the index late.
	if err := x.Index.Claim(r); err != nil {
		return err
	}
	if err := repo.Update(ctx, gitd.RefUpdate{Name: record.RunRef(r.Caller, r.ID), New: commit, Old: &ref}); err != nil {
		return err
	}
	return x.Index.Put(r)
}
