package web

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// Limits of the notes about conflicts. A page of a workspace does not wait for the radar longer than noteWithin.
const (
	noteLasts  = 10 * time.Second
	noteWithin = 150 * time.Millisecond
	maxNotes   = 2000
)

// conflictNote names a branch with which the branch of a workspace does not merge. Its text is clean.
type conflictNote struct{ Text, Path string }

// conflictNotes remembers for a short time whether the branches of workspaces have conflicts, as a person sees them.
type conflictNotes struct {
	past Past
	now  func() time.Time

	mu sync.Mutex // guards by
	by map[string]datedNote
}

type datedNote struct {
	note *conflictNote // nil means that there is no conflict
	till time.Time
}

// of returns the note about a workspace. Returns nil if its branch merges with all others that the person sees, or if that is not known yet.
func (n *conflictNotes) of(c *route.Call, s workspace.Workspace) *conflictNote {
	key := fmt.Sprintf("%s %q %s", s.Repository, c.Who.Subject, s.ID)
	now := n.now()
	n.mu.Lock()
	known, ok := n.by[key]
	n.mu.Unlock()
	if ok && now.Before(known.till) {
		return known.note
	}
	note := n.newConflictNote(c, s)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.by == nil || len(n.by) >= maxNotes {
		n.by = map[string]datedNote{}
	}
	n.by[key] = datedNote{note, now.Add(noteLasts)}
	return note
}

// newConflictNote asks the radar about the branch of a workspace.
func (n *conflictNotes) newConflictNote(c *route.Call, s workspace.Workspace) *conflictNote {
	ctx, cancel := context.WithTimeout(c.R.Context(), noteWithin)
	defer cancel()
	rep, err := n.past.Radar(ctx, c.Who, past.Radar{Repo: s.Repository, Of: s.Caller.Branch(), Within: noteWithin / 3})
	if err != nil || len(rep.Conflicts) == 0 {
		return nil // the branch is not live, or the radar has too much to do
	}
	first := rep.Conflicts[0]
	other := first.One
	if other == s.Caller.Branch() {
		other = first.Other
	}
	note := &conflictNote{Text: "Conflicts with " + render.OneLine(other, 80),
		Path: sourcePath(s.Repository, "radar", url.Values{"of": {s.Caller.Branch()}})}
	if len(first.Files) > 0 {
		note.Text += " in " + render.OneLine(fileAndLine(first.Files[0]), 80)
	}
	if more := len(rep.Conflicts) - 1 + rep.MoreConflicts; more > 0 {
		note.Text += fmt.Sprintf(", and with %d more", more)
	}
	return note
}
