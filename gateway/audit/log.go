package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Entry is one action of one person.
type Entry struct {
	At time.Time `json:"at"`
	// Who is the ID of an account, or the subject of a token. Login is the name of an account at that time.
	Who   string `json:"who"`
	Login string `json:"login,omitempty"`
	// Session is the beginning of the hash of a session's ID.
	Session string `json:"session,omitempty"`
	// Action is the name of the action, such as "people.role" or "POST /api/tokens". Object is the changed thing.
	Action string `json:"action"`
	Object string `json:"object,omitempty"`
	// Result is "ok", or the reason of the refusal.
	Result string `json:"result"`
	// Request names the request in the server's log. Place is the network that it came from.
	Request string `json:"request,omitempty"`
	Place   string `json:"place,omitempty"`
}

// OK is the result of an action that succeeded.
const OK = "ok"

const (
	refs = "refs/ramus/audit"
	file = "entries.jsonl"
	// gatherFor is how long entries wait for others, if nobody waits for them.
	gatherFor = time.Second
	// maxBatch bounds the entries of a commit, maxWaiting those that could not be written yet.
	maxBatch, maxWaiting = 500, 5000
	// maxField bounds a field, in bytes. So maxBatch entries are below maxFile.
	maxField = 300
	maxFile  = 4 << 20
	// closeWithin bounds the time to write the last entries.
	closeWithin = 10 * time.Second
)

// ErrClosed means that the log was closed.
var ErrClosed = errors.New("the log of actions is closed")

// Log writes entries. Its exported fields are options, which may be changed until [Log.Open]. All methods are safe for
// concurrent use.
type Log struct {
	Git *gitd.Server
	// Signer signs the commits. Nil means the Git server's.
	Signer *gitd.CommitSigner
	// Author is the author and committer of the commits.
	Author gitd.Person
	Now    func() time.Time // nil means time.Now
	Log    *slog.Logger     // nil discards

	gather time.Duration // 0 means gatherFor

	mu      sync.Mutex // guards closed, waiting and asked
	closed  bool
	waiting []Entry // not written yet
	asked   []chan error
	// wake has a value when there is something to write, and now when somebody waits for it.
	wake, now chan struct{}
	stop      chan struct{}
	ended     sync.WaitGroup
	tip       gitd.Hash // of month; only the writer uses it
	month     string
}

// Open starts the writer.
func (l *Log) Open() {
	if l.Now == nil {
		l.Now = time.Now
	}
	if l.Log == nil {
		l.Log = slog.New(slog.DiscardHandler)
	}
	if l.gather == 0 {
		l.gather = gatherFor
	}
	l.wake, l.now, l.stop = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	l.ended.Go(l.write)
}

// Close writes the entries that wait, and ends the writer. It may be called on a nil Log.
func (l *Log) Close() error {
	if l == nil || l.stop == nil {
		return nil
	}
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	if was {
		return nil
	}
	close(l.stop)
	l.ended.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.waiting); n > 0 {
		return fmt.Errorf("cannot write the last %d entries of the log of actions", n)
	}
	return nil
}

// Append adds an entry, and returns when it is on disk.
func (l *Log) Append(ctx context.Context, e Entry) error {
	done := make(chan error, 1)
	if err := l.add(e, done); err != nil {
		return err
	}
	select {
	case l.now <- struct{}{}:
	default:
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Note adds an entry, which is on disk a second later.
func (l *Log) Note(e Entry) error { return l.add(e, nil) }

func (l *Log) add(e Entry, done chan error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case len(l.waiting) >= maxWaiting:
		return fmt.Errorf("cannot add to the log of actions: %d entries could not be written yet", len(l.waiting))
	}
	l.waiting = append(l.waiting, l.clean(e))
	if done != nil {
		l.asked = append(l.asked, done)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// clean returns an entry with bounded fields of visible characters.
func (l *Log) clean(e Entry) Entry {
	if e.At.IsZero() {
		e.At = l.Now()
	}
	e.At = e.At.UTC().Truncate(time.Millisecond)
	for _, field := range []*string{&e.Who, &e.Login, &e.Session, &e.Action, &e.Object, &e.Result, &e.Request, &e.Place} {
		*field = text.OneLine(visible(*field), maxField)
	}
	return e
}

// visible replaces characters that a reader does not see, or that change the order of others.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '\n', '\t', '\u200c', '\u200d', '\u2028', '\u2029':
			return '?'
		}
		if text.Invisible(r) {
			return '?'
		}
		return r
	}, s)
}

// write writes entries until the log is closed. An entry that nobody waits for waits a second for others.
func (l *Log) write() {
	timer := time.NewTimer(0)
	if !timer.Stop() {
		<-timer.C
	}
	defer timer.Stop()
	set := false // whether the timer runs
	for {
		select {
		case <-l.wake:
			if !set {
				timer.Reset(l.gather)
				set = true
			}
			continue
		case <-l.now:
		case <-timer.C:
			set = false
		case <-l.stop:
			ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
			l.flush(ctx)
			cancel()
			return
		}
		l.flush(context.Background())
		l.mu.Lock()
		left := len(l.waiting)
		l.mu.Unlock()
		if left > 0 && !set {
			timer.Reset(l.gather)
			set = true
		}
	}
}

// flush writes the entries that wait, and wakes their callers.
func (l *Log) flush(ctx context.Context) {
	l.mu.Lock()
	all, asked := slices.Clone(l.waiting), l.asked
	l.asked = nil
	l.mu.Unlock()
	written := 0
	var err error
	for written < len(all) && err == nil {
		batch := sameMonth(all[written:min(len(all), written+maxBatch)])
		if err = l.commit(ctx, batch); err == nil {
			written += len(batch)
		}
	}
	if err != nil {
		l.Log.Error("cannot write the log of actions", "entries", len(all)-written, "err", err)
	}
	l.mu.Lock()
	l.waiting = l.waiting[written:]
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	l.mu.Unlock()
	for _, done := range asked {
		done <- err
	}
}

// sameMonth returns the first entries that are of one month.
func sameMonth(list []Entry) []Entry {
	for i := range list {
		if monthOf(list[i].At) != monthOf(list[0].At) {
			return list[:i]
		}
	}
	return list
}

func monthOf(t time.Time) string { return t.UTC().Format("2006-01") }

// commit writes one commit.
func (l *Log) commit(ctx context.Context, batch []Entry) error {
	repo, err := people.OpenRepo(ctx, l.Git)
	if err != nil {
		return err
	}
	var content bytes.Buffer
	for _, e := range batch {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		content.Write(append(line, '\n'))
	}
	month := monthOf(batch[0].At)
	message := summary(batch)
	if month != l.month {
		last, err := l.last(ctx, repo, month)
		if err != nil {
			return err
		}
		if l.tip = last.own; last.own == "" && last.before != "" {
			message += "\nPrevious: " + string(last.before) + "\n"
		}
	}
	commit := gitd.NewCommit{Put: []gitd.File{{Path: file, Content: content.Bytes()}}, Author: l.Author, Committer: l.Author,
		When: l.Now(), Message: message, Signer: l.Signer}
	if l.tip != "" {
		commit.Parents = []gitd.Hash{l.tip}
	}
	tip := l.tip
	hash, err := repo.WriteCommit(ctx, commit)
	if err == nil {
		err = repo.Update(ctx, gitd.RefUpdate{Name: refs + "/" + month, New: hash, Old: &tip})
	}
	if err != nil {
		l.month = "" // somebody else may have changed the ref
		return err
	}
	l.tip, l.month = hash, month
	return nil
}

// lastCommits are the newest commit of a month, and that of the newest month before it. Each is empty if there is none.
type lastCommits struct{ own, before gitd.Hash }

func (l *Log) last(ctx context.Context, repo *gitd.Repo, month string) (last lastCommits, err error) {
	list, err := repo.Refs(ctx, refs)
	if err != nil {
		return last, err
	}
	for _, ref := range list { // sorted by month
		switch name := strings.TrimPrefix(ref.Name, refs+"/"); {
		case name == month:
			last.own = ref.Hash
		case name < month:
			last.before = ref.Hash
		}
	}
	return last, nil
}

// summary returns the message of a commit: one line, and a line for each entry.
func summary(batch []Entry) string {
	var b strings.Builder
	if first := batch[0].line(); len(batch) == 1 {
		b.WriteString(first + "\n")
	} else {
		fmt.Fprintf(&b, "%s, and %d more\n\n", first, len(batch)-1)
		for _, e := range batch {
			b.WriteString(e.line() + "\n")
		}
	}
	return b.String()
}

// line returns an entry for people.
func (e Entry) line() string {
	who := e.Who
	if e.Login != "" {
		who = e.Login + " (" + e.Who + ")"
	}
	s := e.Action
	if e.Object != "" {
		s += " " + e.Object
	}
	return s + " by " + who + ": " + e.Result
}
