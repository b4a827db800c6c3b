package tournament

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Refs begins the refs of tournaments, refs/ramus/tournaments/NAME.
const Refs = "refs/ramus/tournaments"

const (
	recordFile  = "tournament.json"
	recordBytes = 4 << 20
	recordSaves = 5 // attempts, while others write
)

// Record is a tournament as its ref has it.
type Record struct {
	Plan
	// Begun is set when all entries have begun or were refused.
	Begun bool `json:"begun"`
	// Claimed is the entry that is being taken, see [Book.Claim]. Zero means none.
	Claimed record.Caller `json:"claimed,omitzero"`
	// Taken is the entry whose work was taken. Zero means none.
	Taken   record.Caller `json:"taken,omitzero"`
	Opinion *Opinion      `json:"opinion,omitempty"`
}

// Opinion is the answer of a model about entries that are equal by evidence.
type Opinion struct {
	// Of has the entries and their last commits. The opinion counts as long as these are the same.
	Of    string          `json:"of"`
	Model string          `json:"model,omitempty"` // empty means the one of the configuration
	Order []record.Caller `json:"order"`           // the best first
	Words string          `json:"words"`
	Time  time.Time       `json:"time"`
}

// Book keeps tournaments in their repositories. Methods are safe for concurrent use.
type Book struct {
	Bot gitd.Person
	Now func() time.Time
}

// ref returns the ref of a tournament.
func ref(name string) string { return Refs + "/" + name }

// Read returns a tournament, with the present name of its repository. Returns [gitd.ErrNotFound] if the repository has
// none with the name.
func Read(ctx context.Context, repo *gitd.Repo, name string) (Record, error) {
	r, _, err := read(ctx, repo, name)
	return r, err
}

func read(ctx context.Context, repo *gitd.Repo, name string) (r Record, at gitd.Hash, err error) {
	if _, err := record.RunCaller(name); err != nil {
		return r, "", fmt.Errorf("tournament %.100q: %w", name, gitd.ErrNotFound)
	}
	if at, err = repo.Resolve(ctx, ref(name)); err != nil {
		return r, "", err
	}
	text, err := repo.ReadFile(ctx, string(at), recordFile, recordBytes)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, at, fmt.Errorf("cannot read the tournament at %s: %w", ref(name), err)
	}
	r.Repo = repo.Name()
	return r, at, nil
}

// List returns the tournaments of a repository. One that cannot be read is left out.
func List(ctx context.Context, repo *gitd.Repo) (list []Record, err error) {
	refs, err := repo.Refs(ctx, Refs)
	if err != nil {
		return nil, err
	}
	for _, one := range refs {
		r, err := Read(ctx, repo, strings.TrimPrefix(one.Name, Refs+"/"))
		if ctx.Err() != nil {
			return list, context.Cause(ctx)
		}
		if err == nil {
			list = append(list, r)
		}
	}
	return list, nil
}

// Make keeps a new tournament, durably. Returns [gitd.ErrConflict] if there is one with the name.
func (b *Book) Make(ctx context.Context, repo *gitd.Repo, p Plan) error {
	return b.write(ctx, repo, Record{Plan: p}, "")
}

// Change changes a tournament, durably. change is called again if somebody else changed it meanwhile. Its error ends the
// change.
func (b *Book) Change(ctx context.Context, repo *gitd.Repo, name string, change func(*Record) error) (Record, error) {
	for try := 1; ; try++ {
		r, at, err := read(ctx, repo, name)
		if err != nil {
			return r, err
		}
		if err := change(&r); err != nil {
			return r, err
		}
		if err = b.write(ctx, repo, r, at); !errors.Is(err, gitd.ErrConflict) || try == recordSaves {
			return r, err
		}
	}
}

// Forget removes a tournament of which no entry began.
func (b *Book) Forget(ctx context.Context, repo *gitd.Repo, name string) error {
	at, err := repo.Resolve(ctx, ref(name))
	if err != nil {
		return err
	}
	return repo.Update(ctx, gitd.RefUpdate{Name: ref(name), Old: &at})
}

func (b *Book) write(ctx context.Context, repo *gitd.Repo, r Record, old gitd.Hash) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	var parents []gitd.Hash
	if old != "" {
		parents = []gitd.Hash{old}
	}
	commit, err := repo.WriteCommit(ctx, gitd.NewCommit{Put: []gitd.File{{Path: recordFile, Content: append(text, '\n')}},
		Parents: parents, Author: b.Bot, When: b.Now(), Message: "Tournament " + r.Name})
	if err != nil {
		return fmt.Errorf("cannot keep tournament %s: %w", r.Name, err)
	}
	return repo.Update(ctx, gitd.RefUpdate{Name: ref(r.Name), New: commit, Old: &old})
}
