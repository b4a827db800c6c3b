package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gitd"
)

// Notify says when messages of ramus in a thread mention a person.
type Notify string

// The values of Notify. The zero value is [NotifyNeeded].
const (
	NotifyNeeded Notify = "needed" // questions and failures
	NotifyAlways Notify = "always" // successes too
	NotifyNever  Notify = "never"
)

// Preferences are the choices of a person in the Home tab. The zero value has none.
type Preferences struct {
	Repo   string `json:"repo,omitempty"`
	Base   string `json:"base,omitempty"` // of Repo
	Agent  string `json:"agent,omitempty"`
	Notify Notify `json:"notify,omitempty"`
}

const (
	preferencesFile = "preferences.json"
	maxPreferences  = 4 << 10
	// changeTries is how often a change begins again after another one at the same time.
	changeTries = 5
)

// preferencesRef is the ref with the preferences of a person, in the repository of mentions. Every change is a commit.
// Team and user are ids of Slack, which have letters and digits only.
func preferencesRef(team, user string) string { return "refs/ramus/people/" + team + "/" + user }

// preferences returns the preferences of a person. If they cannot be read, the person has none.
func (c *Chat) preferences(ctx context.Context, team, user string) Preferences {
	p, _, err := c.readPreferences(ctx, team, user)
	if err != nil && ctx.Err() == nil {
		c.Log.Error("cannot read the preferences of a person", "user", user, "err", err)
	}
	return p
}

// readPreferences returns the preferences of a person and their commit. It is empty if there are none.
func (c *Chat) readPreferences(ctx context.Context, team, user string) (p Preferences, at gitd.Hash, err error) {
	if team == "" || user == "" {
		return p, "", nil
	}
	repo, err := c.Git.Repo(lookup.InboxRepo)
	if err != nil {
		return p, "", err
	}
	at, err = repo.Resolve(ctx, preferencesRef(team, user))
	if errors.Is(err, gitd.ErrNotFound) {
		return p, "", nil
	}
	if err != nil {
		return p, "", err
	}
	b, err := repo.ReadFile(ctx, string(at), preferencesFile, maxPreferences)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return Preferences{}, at, err
	}
	return p, at, nil
}

// changePreferences changes the preferences of a person. The change is durable when it returns.
func (c *Chat) changePreferences(ctx context.Context, team, user string, change func(*Preferences)) (Preferences, error) {
	for try := 0; ; try++ {
		p, at, err := c.readPreferences(ctx, team, user)
		if err != nil {
			return p, err
		}
		change(&p)
		err = c.writePreferences(ctx, team, user, p, at)
		if errors.Is(err, gitd.ErrConflict) && try < changeTries {
			continue
		}
		if err != nil {
			return p, fmt.Errorf("cannot keep the preferences of %s: %w", user, err)
		}
		return p, nil
	}
}

func (c *Chat) writePreferences(ctx context.Context, team, user string, p Preferences, at gitd.Hash) error {
	repo, err := c.Git.Repo(lookup.InboxRepo)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	commit := gitd.NewCommit{Put: []gitd.File{{Path: preferencesFile, Content: append(text, '\n')}},
		Author: asker(user, ""), When: c.Now(),
		Message: "Change the preferences of " + user + "\n"}
	if at != "" {
		commit.Parents = []gitd.Hash{at}
	}
	hash, err := repo.WriteCommit(ctx, commit)
	if err != nil {
		return err
	}
	return repo.Update(ctx, gitd.RefUpdate{Name: preferencesRef(team, user), New: hash, Old: &at})
}
