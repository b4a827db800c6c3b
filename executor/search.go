package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/search"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
)

// searchWait is how long a search waits for the index to be brought up to date, unless it waits for all of it.
const searchWait = 300 * time.Millisecond

// searching has the index of searches, which the first search opens. Its zero value is ready.
type searching struct {
	behind atomic.Int64 // runs that the refresh at work has not read

	mu    sync.Mutex // guards all below
	index *search.Index
	// work is closed at the end of the refresh at work, and next at the end of the one after it. They are nil if there is none.
	work, next chan struct{}
}

// Search finds words in the runs that the query sees. It first brings the index up to date, for 300 ms, or until it is if whole is set.
// [search.Answer.Behind] is how many runs are left then. The commands of a run that works are found when they have ended. The error is a
// [search.ErrQuery] if the query cannot be answered.
func (x *Executor) Search(ctx context.Context, q search.Query, whole bool) (search.Answer, error) {
	ix, work, err := x.refreshSearch()
	if err != nil {
		return search.Answer{}, err
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
		return search.Answer{}, context.Cause(ctx)
	}
	all := make(map[string]record.Run)
	for _, r := range x.Current() {
		all[r.Name()] = r
	}
	a, err := ix.Find(ctx, q, func(name string) (record.Run, bool) { r, ok := all[name]; return r, ok })
	a.Behind = int(x.searching.behind.Load())
	return a, err
}

// refreshSearch returns the index, and a channel that is closed when it has the runs of this moment.
func (x *Executor) refreshSearch() (*search.Index, <-chan struct{}, error) {
	s := &x.searching
	s.mu.Lock()
	defer s.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, nil, record.ErrClosed
	}
	if s.index == nil {
		ix, err := search.Open(filepath.Join(x.Data, "search.db"))
		if err != nil {
			return nil, nil, err
		}
		s.index = ix
	}
	switch {
	case s.work == nil:
		s.work = make(chan struct{})
		x.wg.Go(x.keepSearch)
		return s.index, s.work, nil
	case s.next == nil:
		s.next = make(chan struct{})
	}
	return s.index, s.next, nil
}

// keepSearch refreshes the index until nobody waits for a later refresh.
func (x *Executor) keepSearch() {
	s := &x.searching
	for {
		err := s.index.Refresh(x.ctx, x.searched(), searchSource{x}, func(n int) { s.behind.Store(int64(n)) })
		if err != nil && x.ctx.Err() == nil {
			x.Log.Warn("a search does not find everything", "err", err)
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
func (x *Executor) searched() []record.Run {
	return slices.DeleteFunc(x.Current(), record.Run.Passive)
}

// closeSearch closes the index. No refresh works any more.
func (x *Executor) closeSearch() error {
	s := &x.searching
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index == nil {
		return nil
	}
	return s.index.Close()
}

// searchSource reads the passages of runs for the index of searches.
type searchSource struct{ *Executor }

// Version differs if the run goes on.
func (x searchSource) Version(ctx context.Context, r record.Run) (string, error) {
	if r.Ended() {
		return fmt.Sprintf("1 %s %d %s", r.State, r.EndedAt.UnixNano(), r.Head), nil
	}
	n := 0
	for e, err := range x.Events(ctx, r.Name(), 0, false) {
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
func (x searchSource) Read(ctx context.Context, r record.Run, b *search.Builder) error {
	if err := b.Add(search.Passage{Kind: search.KindPerson}, r.Asker.Name); err != nil {
		return err
	}
	events, err := x.allEvents(ctx, r)
	if err != nil {
		return err
	}
	if r.Agent != nil {
		for _, p := range r.Prompts(events) {
			if err := b.Add(search.Passage{Kind: search.KindPrompt}, p.Text); err != nil {
				return err
			}
		}
	}
	began := map[string]record.Event{} // the last start of each step
	for _, e := range events {
		switch e.Type {
		case record.EventStepStarted:
			began[e.Step] = e
			err = b.Add(search.Passage{Kind: search.KindCommand, Seq: e.Seq, Step: e.Step}, cmp.Or(e.Command, e.Task))
		case record.EventAgent:
			if e.Kind == "tool_call" {
				err = b.Add(search.Passage{Kind: search.KindCommand, Seq: began[e.Step].Seq, Step: e.Step}, e.Message)
			}
		case record.EventStepFinished:
			err = errors.Join(x.readOutput(ctx, r, began[e.Step], "stdout", e.Stdout, b),
				x.readOutput(ctx, r, began[e.Step], "stderr", e.Stderr, b))
		}
		if err != nil {
			return err
		}
	}
	return x.readCommits(ctx, r, b)
}

func (x searchSource) allEvents(ctx context.Context, r record.Run) (list []record.Event, err error) {
	for e, err := range x.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// readOutput adds an output of a step. One that was pruned, or is not there for another reason, is left out.
func (x searchSource) readOutput(ctx context.Context, r record.Run, began record.Event, stream string, s *record.Stream, b *search.Builder) error {
	if s == nil || s.Bytes == 0 || s.File == "" {
		return nil
	}
	var out io.ReadCloser
	out, err := os.Open(filepath.Join(x.folder.Output(r), filepath.Base(s.File)))
	if err != nil {
		var f *store.File
		if f, err = x.Artifact(ctx, r.Name(), "output/"+filepath.Base(s.File)); errors.Is(err, record.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
		out = f
	}
	defer out.Close()
	p := search.Passage{Kind: search.KindOutput, Seq: began.Seq, Step: began.Step, Stream: stream}
	if began.Kind == string(record.KindAgent) && stream == "stdout" {
		p.Kind = search.KindAnswer
	}
	return b.Copy(p, out)
}

// readCommits adds the subjects of the run's commits and the paths that they changed. Commits that are gone are left out.
func (x searchSource) readCommits(ctx context.Context, r record.Run, b *search.Builder) error {
	if r.Head == "" || r.Start == "" || r.Head == r.Start {
		return nil
	}
	repo, err := x.Git.Repo(r.Repo)
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
	if err := b.Add(search.Passage{Kind: search.KindSubject}, lines.String()); err != nil {
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
	return b.Add(search.Passage{Kind: search.KindPath}, lines.String())
}

// leaveOutGone returns nil for the error of an object that is not there.
func leaveOutGone(err error) error {
	if errors.Is(err, gitd.ErrNotFound) {
		return nil
	}
	return err
}
