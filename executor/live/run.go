package live

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// Run is a run that works or waits in line. It has the run's record and journal as they are now, and their readers. Methods
// are safe for concurrent use.
type Run struct {
	// Initial is the run as it was claimed, the source of the fields that never change.
	Initial record.Run
	// Stdout and Stderr get a copy of every command's output at once. Nil means that nobody gets one. They are set
	// before the run works.
	Stdout, Stderr io.Writer

	folder *Folder

	mu       sync.Mutex // guards all below, and the state of the owner, see Lock
	run      record.Run
	journal  *record.Journal
	events   []record.Event
	deferred []record.Event // the events among events that followers have not got
	followed map[*Follower]struct{}
	printing map[string]*Outputs // by step, of those at work
	over     bool                // nothing is journalled any more
	attended int                 // requests that wait for its end
	kept     bool                // it continues without any request
}

// Open opens the journal of a run, or makes it, so that the run can be worked on.
func (f *Folder) Open(r record.Run) (*Run, error) {
	j, events, err := f.OpenJournal(r)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(f.Output(r), 0o700); err != nil {
		j.Close()
		return nil, fmt.Errorf("cannot keep outputs: %w", err)
	}
	return &Run{Initial: r, folder: f, run: r, journal: j, events: events, kept: true,
		followed: make(map[*Follower]struct{}), printing: make(map[string]*Outputs)}, nil
}

// Lock has nobody else journal or change the run until Unlock. The owner guards by it state that has to agree with the
// journal. Only methods whose names end with Locked may be called meanwhile.
func (l *Run) Lock() { l.mu.Lock() }

// Unlock ends a Lock.
func (l *Run) Unlock() { l.mu.Unlock() }

// EventsLocked returns the journal. The caller has the lock, and does not change the events.
func (l *Run) EventsLocked() []record.Event { return l.events }

// OverLocked reports whether nothing is journalled any more. The caller has the lock.
func (l *Run) OverLocked() bool { return l.over }

// SetGateLocked sets the question that the run asks, or nil. The caller has the lock.
func (l *Run) SetGateLocked(g *record.Gate) { l.run.Gate = g }

// GateLocked returns the question that the run asks, or nil. The caller has the lock.
func (l *Run) GateLocked() *record.Gate { return l.run.Gate }

// Recall brings the record of a run that is taken up again to the state that its journal has.
func (l *Run) Recall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run.Usage = nil // as of the last seal; the journal has all of it
	for _, e := range l.events {
		l.run.AddUsage(e)
		l.run.SetSession(e)
		if e.Type == record.EventRunState && e.State == record.StateRunning && l.run.StartedAt.IsZero() {
			l.run.StartedAt = e.Time
		}
		if e.Type == record.EventStepStarted {
			l.run.Step = e.Step
		}
	}
	l.run.Gate = nil
}

// Reopen opens the journal of a run that has ended again, and returns its events. End closes it.
func (l *Run) Reopen() ([]record.Event, error) {
	journal, events, err := l.folder.OpenJournal(l.Snapshot())
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.journal, l.events, l.over = journal, events, false
	return events, nil
}

// CopyJournal copies the journal as it is now to a file.
func (l *Run) CopyJournal(to string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, err := os.Open(l.folder.Journal(l.Initial))
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// Snapshot returns the run as it is now.
func (l *Run) Snapshot() record.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.run
}

// Change changes the run's record. The next seal stores it.
func (l *Run) Change(f func(*record.Run)) {
	l.mu.Lock()
	f(&l.run)
	l.run = CleanRun(l.folder.Secrets, l.run)
	l.mu.Unlock()
}

// Emit journals an event and sends it to followers. With sync it is on disk when Emit returns. An event after the end of
// the run is dropped.
func (l *Run) Emit(e record.Event, sync bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.EmitLocked(e, sync)
}

// EmitLocked is Emit for a caller that has the lock.
func (l *Run) EmitLocked(e record.Event, sync bool) error {
	if l.closedLocked(e) {
		return nil
	}
	if err := l.appendLocked(&e, sync); err != nil {
		return err
	}
	l.announce(e)
	return nil
}

// closedLocked reports whether the journal takes no event any more. The end of a run is its last one. mu is held.
func (l *Run) closedLocked(e record.Event) bool {
	return l.over || l.run.Ended() && e.Type != record.EventRunState
}

// appendLocked journals an event. mu is held.
func (l *Run) appendLocked(e *record.Event, sync bool) error {
	e.Time = l.folder.Now().UTC()
	turn, _, _ := strings.Cut(e.Step, record.PermissionStep)
	if o := l.printing[turn]; o != nil && l.Initial.Kind == record.KindAgent {
		e.Words = o.Stdout.tail.Total()
	}
	if err := l.journal.Append(e, sync); err != nil {
		return err
	}
	l.events = append(l.events, *e)
	l.run.AddUsage(*e)
	l.run.SetSession(*e)
	return nil
}

// announce sends followers a journalled event, after the deferred events. mu is held.
func (l *Run) announce(e record.Event) {
	for _, held := range l.deferred {
		l.publish(held)
	}
	l.deferred = nil
	l.publish(e)
}

// EmitDeferred journals e without syncing and without telling followers. Both happen with the next synced event, which must follow
// at once. The pair then costs one fsync.
func (l *Run) EmitDeferred(e record.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closedLocked(e) {
		return nil
	}
	if err := l.appendLocked(&e, false); err != nil {
		return err
	}
	l.deferred = append(l.deferred, e)
	return nil
}

// print sends followers the output of a command. The output is not journalled.
func (l *Run) print(c *Capture, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = c.tail.Write(p) // never fails
	// Readers get events as JSON, which has whole runes only.
	p = append(c.part, p...)
	whole := text.WholeRunes(p)
	c.part = append([]byte(nil), p[whole:]...)
	l.publishOutput(c, p[:whole])
}

// printRest sends followers the end of a command's output, if it is half of a rune.
func (l *Run) printRest(c *Capture) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := c.part
	c.part = nil
	l.publishOutput(c, p)
}

// publishOutput sends followers the output before c.part. mu is held.
func (l *Run) publishOutput(c *Capture, p []byte) {
	if len(p) == 0 || len(l.followed) == 0 && !l.folder.watched() {
		return
	}
	l.publish(l.said(c, p, c.tail.Total()-int64(len(c.part)+len(p))))
}

// said returns the event of a command's output that begins at a byte.
func (l *Run) said(c *Capture, p []byte, from int64) record.Event {
	return record.Event{Time: l.folder.Now().UTC(), Type: record.EventOutput, Step: c.step, Kind: c.Stream, Message: string(p),
		Span: &record.Span{Seq: c.seq, From: from, To: from + int64(len(p))}}
}

func (l *Run) publish(e record.Event) {
	for f := range l.followed {
		f.push(e)
	}
	e.Run = l.Initial.Name()
	l.folder.Publish(e)
}

// Journalled returns the events of the journal.
func (l *Run) Journalled() []record.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]record.Event(nil), l.events...)
}

// End closes the journal. Followers get to its end.
func (l *Run) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	_ = l.journal.Close() // everything in it that counts was synced
	for f := range l.followed {
		f.end()
	}
	clear(l.followed)
}

// CleanRun takes secrets out of a run's record. Its names were looked at when it was asked for.
func CleanRun(secrets *redact.Secrets, r record.Run) record.Run {
	clean := redact.Clean(secrets, r)
	clean.ID, clean.Repo, clean.Base, clean.Branch = r.ID, r.Repo, r.Base, r.Branch
	return clean
}
