package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/runs"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
)

// searchWait is how long a search waits for the index to be brought up to date, unless it waits for all of it.
const searchWait = 300 * time.Millisecond

// Searcher finds words in the runs of a server. The first search opens its index. Its exported fields are set before the
// first use, and all are required. Methods are safe for concurrent use.
type Searcher struct {
	// Context ends with the server.
	Context context.Context
	// Go runs f in the background. It does not, and returns false, if the server is closing.
	Go func(f func()) bool
	// Path is the file of the index.
	Path string
	Runs *runs.Reader
	Log  *slog.Logger

	behind atomic.Int64 // runs that the refresh at work has not read

	mu     sync.Mutex // guards all below
	closed bool
	index  *Index
	// work is closed at the end of the refresh at work, and next at the end of the one after it. They are nil if there is none.
	work, next chan struct{}
}

// Search finds words in the runs that the query sees. It first brings the index up to date, for 300 ms, or until it is if whole is set.
// [Answer.Behind] is how many runs are left then. The commands of a run that works are found when they have ended. The error is an
// [ErrQuery] if the query cannot be answered.
func (s *Searcher) Search(ctx context.Context, q Query, whole bool) (Answer, error) {
	ix, work, err := s.refresh()
	if err != nil {
		return Answer{}, err
	}
	var enough <-chan time.Time
	if !whole {
		timer := time.NewTimer(searchWait)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-work:
	case <-enough:
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
	all := make(map[string]record.Run)
	for _, r := range s.Runs.Current() {
		all[r.Name()] = r
	}
	a, err := ix.Find(ctx, q, func(name string) (record.Run, bool) { r, ok := all[name]; return r, ok })
	a.Behind = int(s.behind.Load())
	return a, err
}

// refresh returns the index, and a channel that is closed when it has the runs of this moment.
func (s *Searcher) refresh() (*Index, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, record.ErrClosed
	}
	if s.index == nil {
		ix, err := Open(s.Path)
		if err != nil {
			return nil, nil, err
		}
		s.index = ix
	}
	switch {
	case s.work == nil:
		if !s.Go(s.keep) {
			return nil, nil, record.ErrClosed
		}
		s.work = make(chan struct{})
		return s.index, s.work, nil
	case s.next == nil:
		s.next = make(chan struct{})
	}
	return s.index, s.next, nil
}

// keep refreshes the index until nobody waits for a later refresh.
func (s *Searcher) keep() {
	s.mu.Lock() // until the refresh that starts it has returned
	ix := s.index
	s.mu.Unlock()
	for {
		err := ix.Refresh(s.Context, s.searched(), passages{s.Runs}, func(n int) { s.behind.Store(int64(n)) })
		if err != nil && s.Context.Err() == nil {
			s.Log.Warn("a search does not find everything", "err", err)
		}
		s.mu.Lock()
		close(s.work)
		s.work, s.next = s.next, nil
		ended := s.work == nil
		s.mu.Unlock()
		if ended {
			return
		}
	}
}

// searched returns the runs that are searched. Conversations are searched by the runs that they began.
func (s *Searcher) searched() []record.Run {
	return slices.DeleteFunc(s.Runs.Current(), record.Run.Passive)
}

// Close closes the index. No refresh may be at work.
func (s *Searcher) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.index == nil {
		return nil
	}
	return s.index.Close()
}

// passages reads the passages of runs for the index.
type passages struct{ runs *runs.Reader }

// Version differs if the run goes on.
func (s passages) Version(ctx context.Context, r record.Run) (string, error) {
	if r.Ended() {
		return fmt.Sprintf("1 %s %d %s", r.State, r.EndedAt.UnixNano(), r.Head), nil
	}
	n := 0
	for e, err := range s.runs.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return "", err
		}
		if e.Type == record.EventStepFinished || e.Type == record.EventStepStarted || e.Type == record.EventPrompt {
			n++
		}
	}
	return fmt.Sprintf("1 %s %d", r.State, n), nil
}

// Read gives a builder the passages of a run.
func (s passages) Read(ctx context.Context, r record.Run, b *Builder) error {
	if err := b.Add(Passage{Kind: KindPerson}, r.Asker.Name); err != nil {
		return err
	}
	events, err := s.runs.AllEvents(ctx, r.Name())
	if err != nil {
		return err
	}
	if r.Agent != nil {
		for _, p := range r.Prompts(events) {
			if err := b.Add(Passage{Kind: KindPrompt}, p.Text); err != nil {
				return err
			}
		}
	}
	began := map[string]record.Event{} // the last start of each step
	for _, e := range events {
		switch e.Type {
		case record.EventStepStarted:
			began[e.Step] = e
			err = b.Add(Passage{Kind: KindCommand, Seq: e.Seq, Step: e.Step}, cmp.Or(e.Command, e.Task))
		case record.EventAgent:
			if e.Kind == "tool_call" {
				err = b.Add(Passage{Kind: KindCommand, Seq: began[e.Step].Seq, Step: e.Step}, e.Message)
			}
		case record.EventStepFinished:
			err = errors.Join(s.readOutput(ctx, r, began[e.Step], "stdout", e.Stdout, b),
				s.readOutput(ctx, r, began[e.Step], "stderr", e.Stderr, b))
		}
		if err != nil {
			return err
		}
	}
	return s.readCommits(ctx, r, b)
}

// readOutput adds an output of a step. One that was pruned, or is not there for another reason, is left out.
func (s passages) readOutput(ctx context.Context, r record.Run, began record.Event, stream string, printed *record.Stream, b *Builder) error {
	if printed == nil || printed.Bytes == 0 || printed.File == "" {
		return nil
	}
	var out io.ReadCloser
	out, err := os.Open(filepath.Join(s.runs.Folder.Output(r), filepath.Base(printed.File)))
	if err != nil {
		var f *store.File
		if f, err = s.runs.Artifact(ctx, r.Name(), "output/"+filepath.Base(printed.File)); errors.Is(err, record.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
		out = f
	}
	defer out.Close()
	p := Passage{Kind: KindOutput, Seq: began.Seq, Step: began.Step, Stream: stream}
	if began.Kind == string(record.KindAgent) && stream == "stdout" {
		p.Kind = KindAnswer
	}
	return b.Copy(p, out)
}

// readCommits adds the subjects of the run's commits and the paths that they changed. Commits that are gone are left out.
func (s passages) readCommits(ctx context.Context, r record.Run, b *Builder) error {
	if r.Head == "" || r.Start == "" || r.Head == r.Start {
		return nil
	}
	repo, err := s.runs.Git.Repo(r.Repo)
	if err != nil {
		return err
	}
	log, err := repo.Log(ctx, string(r.Head), gitd.LogOptions{Not: string(r.Start), First: true})
	if err != nil {
		return leaveOutGone(err)
	}
	var lines strings.Builder
	for _, c := range log {
		lines.WriteString(c.Subject + "\n")
	}
	if err := b.Add(Passage{Kind: KindSubject}, lines.String()); err != nil {
		return err
	}
	changed, err := repo.Changed(ctx, string(r.Start), string(r.Head), false)
	if err != nil {
		return leaveOutGone(err)
	}
	lines.Reset()
	for _, c := range changed {
		lines.WriteString(strings.ReplaceAll(c.Path, "\n", " ") + "\n")
	}
	return b.Add(Passage{Kind: KindPath}, lines.String())
}

// leaveOutGone returns nil for the error of an object that is not there.
func leaveOutGone(err error) error {
	if errors.Is(err, gitd.ErrNotFound) {
		return nil
	}
	return err
}
