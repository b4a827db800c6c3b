package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// backlogBytes is how much live output a follower may have unread before chunks are dropped for it. The whole output is kept
// elsewhere.
const backlogBytes = 1 << 20

// liveRun is a run that works or waits in line. One goroutine owns it (see Executor.drive). Fields that others use are below the
// mutex.
type liveRun struct {
	x       *Executor
	target  *target
	files   runFiles
	initial record.Run // as it was claimed; source of the fields that never change
	ctx     context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the run's goroutine has ended

	// stdout and stderr get a copy of every command's output at once, see Executor.Exec.
	stdout, stderr io.Writer
	terminal       *shell        // of KindTerminal, or nil
	ending         *Ending       // of a request that is answered without work
	held           func()        // gives back the turn that it had before the restart of the server; nil for none
	checks         *browse.Run   // by a browser
	stdin          io.Reader     // of the first command, when there is somebody to give it
	env            []string      // of the command of KindExec, with its values; nil after a restart
	asking         chan struct{} // holds one token, because the agent asks one question at a time

	mu        sync.Mutex // guards all below
	run       record.Run
	ref       gitd.Hash // what the run's ref points to
	journal   *record.Journal
	events    []record.Event
	deferred  []record.Event // the events among events that followers have not got
	followed  map[*follower]struct{}
	printing  map[string]*outputs // by step, of those at work
	over      bool                // nothing is journalled any more
	noPrompts bool                // its agent has had its last turn
	asked     *asked              // the agent's question that waits for a person
	talk      *talk               // the agent's turn at work; nil between turns
	attended  int                 // requests that wait for its end
	kept      bool                // it continues without any request
	err       error               // the error if the record could not be kept
	review    *review
}

// runFiles are the texts that a run was started with. They are kept in its ref.
type runFiles struct {
	Workflow string            // the workflow file
	Sub      map[string]string // sub-workflows by id
}

// newLive prepares a run to be worked on. It opens its journal, or makes it.
func (x *Executor) newLive(r record.Run, ref gitd.Hash, files runFiles, t *target) (*liveRun, error) {
	j, events, err := x.folder.openJournal(r)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(x.folder.output(r), 0o700); err != nil {
		j.Close()
		return nil, fmt.Errorf("cannot keep outputs: %w", err)
	}
	l := &liveRun{x: x, target: t, files: files, initial: r, run: r, ref: ref, journal: j, events: events, kept: true,
		done: make(chan struct{}), asking: make(chan struct{}, 1), followed: make(map[*follower]struct{}),
		printing: make(map[string]*outputs)}
	l.ctx, l.cancel = context.WithCancelCause(x.ctx)
	l.checks = l.newChecks()
	if r.Kind == record.KindTerminal {
		l.terminal = x.shells.add(l)
	}
	return l, nil
}

// snapshot returns the run as it is now.
func (l *liveRun) snapshot() record.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.run
}

// change changes the run's record. The next seal stores it.
func (l *liveRun) change(f func(*record.Run)) {
	l.mu.Lock()
	f(&l.run)
	l.run = cleanRun(l.x.Secrets, l.run)
	l.mu.Unlock()
}

// emit journals an event and sends it to followers. With sync it is on disk when emit returns.
func (l *liveRun) emit(e record.Event, sync bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.emitLocked(e, sync)
}

func (l *liveRun) emitLocked(e record.Event, sync bool) error {
	if l.over {
		return nil
	}
	if err := l.appendLocked(&e, sync); err != nil {
		return err
	}
	l.announce(e)
	return nil
}

// appendLocked journals an event. mu is held.
func (l *liveRun) appendLocked(e *record.Event, sync bool) error {
	e.Time = l.x.Now().UTC()
	turn, _, _ := strings.Cut(e.Step, permissionStep)
	if o := l.printing[turn]; o != nil && l.initial.Kind == record.KindAgent {
		e.Words = o.stdout.tail.Total()
	}
	if err := l.journal.Append(e, sync); err != nil {
		if l.err == nil {
			l.err = err
		}
		return err
	}
	l.events = append(l.events, *e)
	l.run.AddUsage(*e)
	setSession(&l.run, *e)
	return nil
}

// announce sends followers a journalled event, after the deferred events. mu is held.
func (l *liveRun) announce(e record.Event) {
	for _, held := range l.deferred {
		l.publish(held)
	}
	l.deferred = nil
	l.publish(e)
}

// emitDeferred journals e without syncing and without telling followers. Both happen with the next synced event, which must follow
// at once. The pair then costs one fsync.
func (l *liveRun) emitDeferred(e record.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil
	}
	if err := l.appendLocked(&e, false); err != nil {
		return err
	}
	l.deferred = append(l.deferred, e)
	return nil
}

// output sends followers the output of a command. The output is not journalled.
func (l *liveRun) output(c *capture, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = c.tail.Write(p) // never fails
	// Readers get events as JSON, which has whole runes only.
	p = append(c.part, p...)
	whole := text.WholeRunes(p)
	c.part = append([]byte(nil), p[whole:]...)
	l.print(c, p[:whole])
}

// outputEnds sends followers the end of a command's output, if it is half of a rune.
func (l *liveRun) outputEnds(c *capture) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := c.part
	c.part = nil
	l.print(c, p)
}

// print sends followers the output before c.part. mu is held.
func (l *liveRun) print(c *capture, p []byte) {
	if len(p) == 0 || len(l.followed) == 0 && !l.x.hub.watched() {
		return
	}
	l.publish(l.said(c, p, c.tail.Total()-int64(len(c.part)+len(p))))
}

// said returns the event of a command's output that begins at a byte.
func (l *liveRun) said(c *capture, p []byte, from int64) record.Event {
	return record.Event{Time: l.x.Now().UTC(), Type: record.EventOutput, Step: c.step, Kind: c.stream, Message: string(p),
		Span: &record.Span{Seq: c.seq, From: from, To: from + int64(len(p))}}
}

func (l *liveRun) publish(e record.Event) {
	for f := range l.followed {
		f.push(e)
	}
	e.Run = l.initial.Name()
	l.x.hub.push(e)
}

// state moves the run to a state and journals it, durably if the run ends or waits.
func (l *liveRun) state(s record.State, reason record.Reason, text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run.State, l.run.Reason, l.run.Error, l.run.Hint = s, reason, text, l.hintLocked(reason)
	now := l.x.Now().UTC()
	e := record.Event{Type: record.EventRunState, State: s, Reason: string(reason)}
	switch s {
	case record.StateRunning:
		if l.run.StartedAt.IsZero() {
			l.run.StartedAt = now
		}
		l.run.Place, l.run.Gate = 0, nil
	case record.StateComplete, record.StateFailed:
		l.run.EndedAt, l.run.Place, l.run.Gate = now, 0, nil
		e.With = record.Moves(l.run.With)
		e.Commit = l.run.Head
		if data := record.Marshal(ended{l.run.Output}); len(data) <= maxOutput {
			e.Data = data
		}
	}
	l.run = cleanRun(l.x.Secrets, l.run)
	e.Message = text
	return l.emitLocked(e, s != record.StateRunning) // a later event has all of it
}

// ended is the data of the run.state event with which a run ends. So the journal alone has the result if the server
// stops before the run is sealed.
type ended struct {
	Output map[string]any `json:"output,omitempty"`
}

// maxOutput is how large a run's output may be to be in its journal too, in bytes.
const maxOutput = 1 << 20

// hadEnded takes over from the journal how the run ended. It returns false if the run had not ended.
func (l *liveRun) hadEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var end *record.Event
	for i := range l.events {
		switch e := &l.events[i]; e.Type {
		case record.EventRunState:
			end = e
		case record.EventStepFinished:
			if l.run.Kind == record.KindExec || l.run.Kind == record.KindTask {
				l.run.Exit = e.Exit
			}
		case record.EventMerge:
			var m record.Landed
			if json.Unmarshal(e.Data, &m) == nil && m.Merged {
				l.run.Merged = m.Commit
			}
			l.run.Pull = m.Pull
		}
	}
	if end == nil || end.State != record.StateComplete && end.State != record.StateFailed {
		return false
	}
	l.run.State, l.run.Reason, l.run.Error, l.run.EndedAt = end.State, record.Reason(end.Reason), end.Message, end.Time
	l.run.Hint, l.run.Place = l.hintLocked(l.run.Reason), 0
	if end.Commit != "" {
		l.run.Head = end.Commit
	}
	l.run.With = record.Advance(l.run.With, end.With)
	var data ended
	if json.Unmarshal(end.Data, &data) == nil {
		l.run.Output = data.Output
	}
	return true
}

// follow attaches a reader. The reader gets all events after a sequence number. Then it gets the end of the output of
// those steps at work whose start is among these events, because no journal holds output. Of the step that began with have.Seq it gets the
// output from the byte have.To on, as far as it is kept in memory. Then it gets everything that follows.
func (l *liveRun) follow(after int64, have record.Span) *follower {
	f := newFollower()
	l.mu.Lock()
	defer l.mu.Unlock()
	var atWork []string
	for _, e := range l.events[:len(l.events)-len(l.deferred)] {
		if e.Seq <= after {
			continue
		}
		f.push(e)
		switch e.Type {
		case record.EventStepStarted:
			if !slices.Contains(atWork, e.Step) { // it may have begun again
				atWork = append(atWork, e.Step)
			}
		case record.EventStepFinished:
			atWork = slices.DeleteFunc(atWork, func(step string) bool { return step == e.Step })
		}
	}
	for _, step := range atWork {
		if o := l.printing[step]; o != nil {
			for _, c := range []*capture{o.stdout, o.stderr} {
				if kept, before := c.tail.Bytes(); len(kept) > len(c.part) {
					f.push(l.said(c, kept[:len(kept)-len(c.part)], before))
				}
			}
		}
	}
	for _, o := range l.printing {
		if c := o.stdout; c.seq == have.Seq && have.Seq <= after {
			kept, before := c.tail.Bytes()
			if skip := have.To - before; skip > 0 {
				kept, before = kept[min(skip, int64(len(kept))):], have.To
			}
			if len(kept) > len(c.part) {
				f.push(l.said(c, kept[:len(kept)-len(c.part)], before))
			}
		}
	}
	if l.over {
		f.end()
	} else {
		l.followed[f] = struct{}{}
	}
	return f
}

func (l *liveRun) unfollow(f *follower) {
	l.mu.Lock()
	delete(l.followed, f)
	l.mu.Unlock()
}

// end closes the journal. Followers get to its end.
func (l *liveRun) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.terminal.over()
	_ = l.journal.Close() // everything in it that counts was synced
	for f := range l.followed {
		f.end()
	}
	clear(l.followed)
}

// follower is a queue between a run and one reader. Journalled events are never dropped from it. Live output is, if the reader is
// too slow.
type follower struct {
	mu     sync.Mutex // guards all below
	queue  []record.Event
	output int // bytes of live output in queue
	ended  bool
	wake   chan struct{} // holds one token if there is a change
}

func newFollower() *follower { return &follower{wake: make(chan struct{}, 1)} }

func (f *follower) push(e record.Event) {
	f.mu.Lock()
	if e.Type == record.EventOutput {
		if f.output += len(e.Message); f.output > backlogBytes {
			f.output -= len(e.Message)
			f.mu.Unlock()
			return
		}
	}
	f.queue = append(f.queue, e)
	f.mu.Unlock()
	f.signal()
}

func (f *follower) end() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.signal()
}

func (f *follower) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// events yields the queue until its end, or until ctx ends.
func (f *follower) events(ctx context.Context) iter.Seq[record.Event] {
	return func(yield func(record.Event) bool) {
		for {
			f.mu.Lock()
			queue, ended := f.queue, f.ended
			f.queue, f.output = nil, 0
			f.mu.Unlock()
			for _, e := range queue {
				if !yield(e) {
					return
				}
			}
			if ended && len(queue) == 0 {
				return
			}
			if len(queue) > 0 {
				continue
			}
			select {
			case <-f.wake:
			case <-ctx.Done():
				return
			}
		}
	}
}

// hub sends watchers the events of all runs.
type hub struct {
	mu       sync.Mutex // guards watchers
	watchers map[*follower]record.Caller
}

func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) > 0
}

func (h *hub) push(e record.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f, c := range h.watchers {
		if c.IsZero() || hasCaller(e.Run, c) {
			f.push(e)
		}
	}
}

func hasCaller(run string, c record.Caller) bool {
	prefix := c.String() + "/"
	return len(run) > len(prefix) && run[:len(prefix)] == prefix
}

func (h *hub) add(f *follower, c record.Caller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = make(map[*follower]record.Caller)
	}
	h.watchers[f] = c
}

func (h *hub) remove(f *follower) {
	h.mu.Lock()
	delete(h.watchers, f)
	h.mu.Unlock()
}
