package people

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Options are the options that all stores of records have.
type Options struct {
	Git *gitd.Server
	// Signer signs the commits. Nil means the Git server's.
	Signer *gitd.CommitSigner
	// Committer is the committer of changes. The author is the person who makes the change.
	Committer gitd.Person
	Now       func() time.Time // nil means time.Now
	Log       *slog.Logger     // nil discards
}

// SetDefaults replaces options that are nil.
func (o *Options) SetDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Records reads and writes the records of one kind. Its fields must not change while a method runs. All methods are
// safe for concurrent use.
type Records[T any] struct {
	Options
	// Refs is the prefix of the refs, without a slash at its end. File is the path of the file in their commits.
	Refs, File string
	// Max bounds a record, in bytes of JSON.
	Max int
	// Check returns an error for a record that cannot be that of a ref, such as a damaged one.
	Check func(record T, ref string) error
	// NoHistory leaves the commit of the last change out of the commit of the next one, so that git removes it.
	NoHistory bool
}

// Kept is a record as it is kept. Err, if not nil, is the error of reading; Record is then zero.
type Kept[T any] struct {
	Record T
	Ref    string
	Tip    gitd.Hash
	Err    error
}

// Read reads all records.
func (r Records[T]) Read(ctx context.Context) ([]Kept[T], error) {
	repo, err := r.Git.Repo(gitd.PeopleRepo)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	refs, err := repo.Refs(ctx, r.Refs)
	if err != nil {
		return nil, err
	}
	var list []Kept[T]
	for _, ref := range refs {
		k := Kept[T]{Ref: ref.Name, Tip: ref.Hash}
		content, err := repo.ReadFile(ctx, string(ref.Hash), r.File, int64(r.Max))
		if err == nil {
			err = json.Unmarshal(content, &k.Record)
		}
		if err == nil {
			err = r.Check(k.Record, ref.Name)
		}
		if err != nil {
			k = Kept[T]{Ref: ref.Name, Tip: ref.Hash, Err: err}
		}
		list = append(list, k)
	}
	return list, nil
}

// Change is the change of a record.
type Change struct {
	By      gitd.Person
	When    time.Time
	Message string // of the commit
}

// Write writes a record, and returns its commit. tip is the commit before it, or empty if the record is new. The error
// is [gitd.ErrConflict] if the ref is at another commit.
func (r Records[T]) Write(ctx context.Context, ref string, record T, tip gitd.Hash, c Change) (gitd.Hash, error) {
	content, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return "", err
	}
	content = append(content, '\n')
	if len(content) > r.Max {
		return "", route.NewProblem(route.KindTooLarge, "the record %s is larger than %d bytes", ref, r.Max)
	}
	repo, err := OpenRepo(ctx, r.Git)
	if err != nil {
		return "", err
	}
	commit := gitd.NewCommit{Put: []gitd.File{{Path: r.File, Content: content}}, Author: c.By, Committer: r.Committer,
		When: c.When, Message: c.Message + "\n", Signer: r.Signer}
	if tip != "" && !r.NoHistory {
		commit.Parents = []gitd.Hash{tip}
	}
	hash, err := repo.WriteCommit(ctx, commit)
	if err == nil {
		err = repo.Update(ctx, gitd.RefUpdate{Name: ref, New: hash, Old: &tip})
	}
	return hash, err
}

// Remove removes the record at a ref, whose commit is tip. The error is [gitd.ErrConflict] if the ref is at another
// commit.
func (r Records[T]) Remove(ctx context.Context, ref string, tip gitd.Hash) error {
	repo, err := r.Git.Repo(gitd.PeopleRepo)
	if err != nil {
		return err
	}
	return repo.Update(ctx, gitd.RefUpdate{Name: ref, Old: &tip})
}

// OpenRepo returns the repository of records about people, and makes it if it is missing.
func OpenRepo(ctx context.Context, git *gitd.Server) (*gitd.Repo, error) {
	repo, err := git.Repo(gitd.PeopleRepo)
	if !errors.Is(err, gitd.ErrNotFound) {
		return repo, err
	}
	if _, err := git.Create(ctx, gitd.PeopleRepo); err != nil && !errors.Is(err, gitd.ErrExists) {
		return nil, fmt.Errorf("cannot make the repository of records about people: %w", err)
	}
	return git.Repo(gitd.PeopleRepo)
}
