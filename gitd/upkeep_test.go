package gitd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/pack"
)

// maintained is a log handler that sends a message when a repository was
// maintained.
type maintained chan string

func (maintained) Enabled(context.Context, slog.Level) bool { return true }
func (m maintained) WithAttrs([]slog.Attr) slog.Handler     { return m }
func (m maintained) WithGroup(string) slog.Handler          { return m }
func (m maintained) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "maintained" {
		m <- r.Message
	}
	return nil
}

// TestUpkeep makes more commits than a repository can have as packs of their own.
func TestUpkeep(t *testing.T) {
	done := make(maintained, 10)
	now := time.Unix(1_700_000_000, 0)
	s := &Server{Root: t.TempDir(), Log: slog.New(done), Now: func() time.Time { return now }}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := s.Create(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	const commits = 200
	var last Hash
	for i := range commits {
		c := NewCommit{From: last, Author: alice, Message: fmt.Sprint(i),
			Put: []File{{Path: fmt.Sprintf("d/%d", i), Content: fmt.Append(nil, i)}}}
		if last != "" {
			c.Parents = []Hash{last}
		}
		if last, err = r.WriteCommit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := r.Update(t.Context(), RefUpdate{Name: fmt.Sprintf("refs/heads/b%d", i), New: last}); err != nil {
			t.Fatal(err)
		}
		if (i+1)%upkeepChanges == 0 {
			<-done
		}
	}
	stats := s.Upkeep()
	if stats.Runs != commits/upkeepChanges || stats.Failures > 0 || stats.Pending != commits%upkeepChanges {
		t.Errorf("%+v after %d commits", stats, commits)
	}
	packs, err := filepath.Glob(filepath.Join(r.dir, pack.Folder, "*.pack"))
	if err != nil || len(packs) > commits%upkeepChanges+5 {
		t.Errorf("%d packs, %v", len(packs), err)
	}
	for _, file := range []string{pack.Folder + "/multi-pack-index", "objects/info/commit-graphs/commit-graph-chain", "packed-refs"} {
		if _, err := os.Stat(filepath.Join(r.dir, file)); err != nil {
			t.Error(err)
		}
	}
	if loose := git(t, r.dir, "count-objects"); !strings.HasPrefix(loose, "0 objects") {
		t.Errorf("loose objects: %s", loose)
	}
	// Old and new commits are readable.
	for _, rev := range []string{"b0", "b100", fmt.Sprintf("b%d", commits-1)} {
		if _, err := r.ReadFile(t.Context(), rev, "d/0", 0); err != nil {
			t.Error(err)
		}
	}
	git(t, r.dir, "fsck", "--strict", "--connectivity-only")
}

// TestUpkeepDue checks which repository is due at which time.
func TestUpkeepDue(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	busy, idle, calm := &Repo{name: "busy"}, &Repo{name: "idle"}, &Repo{name: "calm"}
	u := &upkeep{repos: map[*Repo]*upkeepState{
		busy: {changes: upkeepChanges - 1, last: now.Add(-time.Second)},
		idle: {changes: upkeepFew, last: now.Add(-upkeepIdle)},
		calm: {changes: upkeepFew - 1, last: now.Add(-time.Hour)},
	}}
	if r, _ := u.due(now); r != idle {
		t.Errorf("%v instead of the idle one", r)
	}
	if r, wait := u.due(now); r != nil || wait != upkeepIdle-time.Second {
		t.Errorf("%v, or in %s", r, wait)
	}
	u.repos[idle].changes = upkeepChanges
	u.repos[busy].changes = upkeepChanges + 1
	if r, _ := u.due(now); r != busy {
		t.Errorf("%v instead of the busy one", r)
	}
	if r, _ := u.due(now); r != idle {
		t.Errorf("%v instead of the idle one", r)
	}
	if r, wait := u.due(now.Add(time.Hour)); r != nil || wait != 0 {
		t.Errorf("%v, or in %s, although nothing is left", r, wait)
	}
}
