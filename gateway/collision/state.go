package collision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/gitd"
)

// Ref has the collisions of a repository and the places that were told.
const Ref = "refs/ramus/collisions"

const (
	stateFile  = "collisions.json"
	stateBytes = 8 << 20
)

// collision is a conflict with the places that know of it.
type collision struct {
	radar.Conflict
	// ID distinguishes this appearance from earlier ones of the same pair.
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	// Told has the places that were told, as [placeOf] names them.
	Told []string `json:"told,omitempty"`
	// Gone is set while a place has not been told yet that the conflict is gone. Freed has those that were.
	Gone  bool     `json:"gone,omitempty"`
	Freed []string `json:"freed,omitempty"`
}

// state has the collisions of a repository.
type state struct {
	Collisions []collision `json:"collisions"`

	at gitd.Hash // the commit of it, empty if there is none
}

// readState returns the kept collisions. They are empty if none were kept.
func readState(ctx context.Context, repo *gitd.Repo) (s state, err error) {
	if s.at, err = repo.Resolve(ctx, Ref); errors.Is(err, gitd.ErrNotFound) {
		return s, nil
	}
	var text []byte
	if err == nil {
		text, err = repo.ReadFile(ctx, string(s.at), stateFile, stateBytes)
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("cannot read the collisions at %s: %w", Ref, err)
	}
	return s, nil
}

// keep writes the collisions durably.
func (s *state) keep(ctx context.Context, repo *gitd.Repo, by gitd.Person, now time.Time) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	commit, err := repo.WriteCommit(ctx, gitd.NewCommit{Put: []gitd.File{{Path: stateFile, Content: append(text, '\n')}},
		Author: by, When: now, Message: fmt.Sprintf("%d collisions", len(s.Collisions))})
	if err == nil {
		err = repo.Update(ctx, gitd.RefUpdate{Name: Ref, New: commit, Old: &s.at})
	}
	if err != nil {
		return fmt.Errorf("cannot keep the collisions at %s: %w", Ref, err)
	}
	s.at = commit
	return nil
}
