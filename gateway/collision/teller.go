package collision

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/gitd"
)

// The names of places.
const (
	Thread = "thread"       // the thread in Slack in which people work with the caller
	Task   = "task"         // the thread of a task
	Pull   = "pull request" // of the caller's branch
)

const (
	// fresh is the age up to which the branches of a repository without kept collisions count as moved now.
	fresh = 24 * time.Hour
	// tellTime bounds one attempt to tell a place.
	tellTime = time.Minute
	maxPause = 5 * time.Minute
)

// Places has places that follow callers.
type Places interface {
	// PlacesOf returns the names of the places that follow a caller now.
	PlacesOf(c record.Caller) []string
	// Tell posts a message at one of them. A second call with the same key has no effect. An error means that it is to
	// be tried again, and is not returned for a message that can never be posted.
	Tell(ctx context.Context, c record.Caller, place string, n News) error
}

// Teller looks for collisions after branches have moved. Its exported fields are its options, and may be changed until
// Open. Methods are safe for concurrent use.
type Teller struct {
	Git    *gitd.Server
	Radar  *radar.Radar
	Places []Places
	// Wants reports whether a place is told about the branches of a repository. Nil means that all are.
	Wants func(repo, place string) bool
	// IsPrivate reports whether a caller is private. Nil means that none is.
	IsPrivate func(record.Caller) bool
	// Bot is the author of the commits that keep collisions.
	Bot gitd.Person
	// After is the time between a change and the look, so that changes in a row have one look. The default is 2 s.
	After time.Duration
	Log   *slog.Logger
	Now   func() time.Time

	stop context.CancelFunc
	wg   sync.WaitGroup
	wake chan struct{} // holds at most one token

	mu    sync.Mutex // guards moved
	moved map[string]bool
}

// Open looks at all repositories, and later at those that change, until ctx ends or Close is called.
func (t *Teller) Open(ctx context.Context) error {
	t.After = cmp.Or(t.After, 2*time.Second)
	all, err := t.Git.Repos(ctx)
	if err != nil {
		return fmt.Errorf("cannot look for branches that do not merge: %w", err)
	}
	ctx, t.stop = context.WithCancel(ctx)
	t.mu.Lock()
	t.wake, t.moved = make(chan struct{}, 1), map[string]bool{}
	t.mu.Unlock()
	for _, r := range all {
		t.Changed(r.Name())
	}
	t.wg.Go(func() { t.work(ctx) })
	return nil
}

// Close ends the work and waits for it. It does nothing on a Teller that is nil or was not opened.
func (t *Teller) Close() {
	if t == nil || t.stop == nil {
		return
	}
	t.stop()
	t.wg.Wait()
}

// Changed has a repository looked at soon. It returns at once.
func (t *Teller) Changed(repo string) {
	if t == nil || lookup.IsOwnRepo(repo) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.moved == nil {
		return // Open looks at all
	}
	t.moved[repo] = true
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// takeChanged returns the repositories that have changed since the last call.
func (t *Teller) takeChanged() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := slices.Sorted(maps.Keys(t.moved))
	clear(t.moved)
	return names
}

// work looks at the repositories that have changed, until ctx ends.
func (t *Teller) work(ctx context.Context) {
	for failures := 0; ; {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}
		if retry.Sleep(ctx, max(t.After, retry.Backoff(failures, maxPause))) != nil {
			return
		}
		failed := false
		for _, name := range t.takeChanged() {
			err := t.Look(ctx, name)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				failed = true
				t.Log.Warn("people are not told yet which branches do not merge", "repo", name, "err", err)
				t.Changed(name)
			}
		}
		if failures++; !failed {
			failures = 0
		}
	}
}

// Look tells the places of a repository the collisions that have appeared or gone since the last look. Open has it
// called after each change.
func (t *Teller) Look(ctx context.Context, name string) error {
	repo, err := t.Git.Repo(name)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	follows := func(branch string) bool { return len(t.placesOf(name, callerOf(branch))) > 0 }
	rep, err := t.Radar.Look(ctx, radar.Question{Repo: repo, Now: t.Now(), Among: follows})
	if errors.Is(err, gitd.ErrNotFound) {
		return nil // it has no base yet
	}
	if err != nil {
		return err
	}
	s, err := readState(ctx, repo)
	if err != nil {
		return err
	}
	if t.compare(&s, rep) {
		if err := s.keep(ctx, repo, t.Bot, t.Now()); err != nil {
			return err
		}
	}
	changed, failed := false, error(nil)
	left := s.Collisions[:0]
	for _, c := range s.Collisions {
		some, err := t.tellPlaces(ctx, name, &c)
		failed = errors.Join(failed, err)
		over := c.Gone && err == nil
		changed = changed || some || over
		if !over {
			left = append(left, c)
		}
	}
	if s.Collisions = left; changed {
		failed = errors.Join(failed, s.keep(ctx, repo, t.Bot, t.Now()))
	}
	return failed
}

// compare has s follow a report, and reports whether it has changed.
func (t *Teller) compare(s *state, rep radar.Report) (changed bool) {
	now := make(map[[2]string]radar.Conflict, len(rep.Conflicts))
	for _, c := range rep.Conflicts {
		now[[2]string{c.One, c.Other}] = c
	}
	whole := rep.MoreBranches == 0 && rep.MoreConflicts == 0
	for i := range s.Collisions {
		c := &s.Collisions[i]
		pair := [2]string{c.One, c.Other}
		is, there := now[pair]
		delete(now, pair)
		switch {
		case there && c.Gone: // the places that were told that it is gone learn of the new one
			known := slices.DeleteFunc(c.Told, func(place string) bool { return slices.Contains(c.Freed, place) })
			*c, changed = collision{Conflict: is, ID: newID(), Since: t.Now().UTC(), Told: known}, true
		case !there && !c.Gone && whole:
			c.Gone, changed = true, true
		}
	}
	moved := make(map[string]time.Time, len(rep.Branches))
	for _, b := range rep.Branches {
		moved[b.Branch] = b.When
	}
	for _, c := range rep.Conflicts {
		if _, isNew := now[[2]string{c.One, c.Other}]; !isNew {
			continue
		}
		appeared := collision{Conflict: c, ID: newID(), Since: t.Now().UTC()}
		old := t.Now().Add(-fresh)
		if s.at == "" && moved[c.One].Before(old) && moved[c.Other].Before(old) {
			// It was there before anybody was to be told.
			for _, side := range []string{c.One, c.Other} {
				for _, place := range t.placesOf(rep.Repo, callerOf(side)) {
					appeared.Told = append(appeared.Told, placeOf(side, place))
				}
			}
		}
		s.Collisions, changed = append(s.Collisions, appeared), true
	}
	return changed
}

// tellPlaces tells the places of both branches of a collision that do not know its state, and reports whether one was told.
// Each place learns first that the conflict appeared, because an earlier process may have told it and not kept that.
func (t *Teller) tellPlaces(ctx context.Context, repo string, c *collision) (changed bool, failed error) {
	for _, side := range [][2]string{{c.One, c.Other}, {c.Other, c.One}} {
		own, other := callerOf(side[0]), callerOf(side[1])
		if t.isPrivate(other) {
			continue
		}
		for _, place := range t.placesOf(repo, own) {
			for _, n := range newNews(*c, side[1], side[0] == c.One) {
				list := &c.Told
				if n.gone {
					list = &c.Freed
				}
				key := placeOf(side[0], place)
				if slices.Contains(*list, key) {
					continue
				}
				if err := t.tellOne(ctx, own, place, n); err != nil {
					failed = errors.Join(failed, fmt.Errorf("cannot tell the %s of %s: %w", place, own, err))
					break
				}
				*list, changed = append(*list, key), true
			}
		}
	}
	return changed, failed
}

func (t *Teller) tellOne(ctx context.Context, c record.Caller, place string, n News) error {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	for _, p := range t.Places {
		if slices.Contains(p.PlacesOf(c), place) {
			return p.Tell(ctx, c, place, n)
		}
	}
	return nil
}

// placesOf returns the names of the places of a caller that are told about a repository.
func (t *Teller) placesOf(repo string, c record.Caller) (names []string) {
	if c.IsZero() {
		return nil
	}
	for _, p := range t.Places {
		names = append(names, p.PlacesOf(c)...)
	}
	return slices.DeleteFunc(names, func(place string) bool { return t.Wants != nil && !t.Wants(repo, place) })
}

func (t *Teller) isPrivate(c record.Caller) bool {
	return !c.IsZero() && t.IsPrivate != nil && t.IsPrivate(c)
}

// placeOf names a place of the caller of a branch.
func placeOf(branch, place string) string { return branch + " " + place }

// callerOf returns the caller of a branch. Returns the zero caller if the branch is no caller's.
func callerOf(branch string) record.Caller {
	slug, ok := strings.CutPrefix(branch, record.BranchPrefix)
	if !ok {
		return record.Caller{}
	}
	kind, id, _ := strings.Cut(slug, "-")
	c, err := record.ParseCaller(kind + ":" + id)
	if err != nil {
		return record.Caller{}
	}
	return c
}

// newID returns a random id.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // Read never fails
	return hex.EncodeToString(b[:])
}
