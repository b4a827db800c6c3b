package trial

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// BookRefs begins the refs of results, refs/ramus/tries/KEY.
const BookRefs = "refs/ramus/tries"

const (
	bookFile  = "tries.json"
	bookBytes = 16 << 20
	bookTries = 20_000
	bookSaves = 5    // attempts, while others write
	bookWhy   = 1000 // bytes of a reason, which may be the output of a program
)

// Book keeps the results of one command by tree. It is one commit at a ref of the repository, which a person may delete
// to forget them. It is not safe for concurrent use, but several servers and searches may write the same book.
type Book struct {
	Repo *gitd.Repo
	Bot  gitd.Person
	Now  func() time.Time
	// Environment names the files of the base that describe containers. The results of others are those of another
	// command.
	Environment []gitd.Hash

	ref   string
	tries map[gitd.Hash]Try // by tree
}

// Open reads the results of the command of a request. With fresh they are ignored.
func (b *Book) Open(ctx context.Context, r record.Request, fresh bool) error {
	name, err := key(r, b.Environment)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(name)
	b.ref, b.tries = BookRefs+"/"+hex.EncodeToString(sum[:16]), map[gitd.Hash]Try{}
	if fresh {
		return nil
	}
	_, err = b.read(ctx)
	return err
}

// read adds the results at the ref to those that are known, and returns the commit. Results that are known stay.
func (b *Book) read(ctx context.Context) (gitd.Hash, error) {
	at, err := b.Repo.Resolve(ctx, b.ref)
	if errors.Is(err, gitd.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	content, err := b.Repo.ReadFile(ctx, string(at), bookFile, bookBytes)
	var list []Try
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the earlier results at %s: %w", b.ref, err)
	}
	for _, t := range list {
		if _, known := b.tries[t.Tree]; !known {
			b.tries[t.Tree] = t
		}
	}
	return at, nil
}

// Environment returns the files of a base that describe the containers of its repository. An empty base is the
// repository's own.
func Environment(ctx context.Context, repo *gitd.Repo, base string) (list []gitd.Hash, err error) {
	if base == "" {
		if base, err = repo.Base(ctx); err != nil {
			return nil, err
		}
	}
	for _, path := range []string{".ramus", ".devcontainer"} {
		e, err := repo.Entry(ctx, "refs/heads/"+base, path)
		if err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return nil, err
		}
		list = append(list, e.Hash)
	}
	return list, nil
}

// Try returns the result of a tree.
func (b *Book) Try(tree gitd.Hash) (Try, bool) {
	t, known := b.tries[tree]
	return t, known
}

// Known returns the results by tree. Those of commits that could not be tried are left out.
func (b *Book) Known() map[gitd.Hash]bisect.Result {
	known := map[gitd.Hash]bisect.Result{}
	for tree, t := range b.tries {
		if t.Result != bisect.Skip {
			known[tree] = t.Result
		}
	}
	return known
}

// Add keeps results, durably. Outputs are left to the runs.
func (b *Book) Add(ctx context.Context, tries []Try) error {
	for _, t := range tries {
		t.Stdout, t.Stderr, t.Why = "", "", text.Clip(t.Why, bookWhy)
		b.tries[t.Tree] = t
	}
	err := error(gitd.ErrConflict)
	for range bookSaves {
		if !errors.Is(err, gitd.ErrConflict) {
			break
		}
		var old gitd.Hash
		if old, err = b.read(ctx); err == nil {
			err = b.write(ctx, old)
		}
	}
	return err
}

// write replaces the commit at the ref.
func (b *Book) write(ctx context.Context, old gitd.Hash) error {
	list := make([]Try, 0, len(b.tries))
	for _, t := range b.tries {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b Try) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Tree, b.Tree)) })
	content, err := encode(list[:min(len(list), bookTries)])
	if err != nil {
		return err
	}
	commit, err := b.Repo.WriteCommit(ctx,
		gitd.NewCommit{Put: []gitd.File{{Path: bookFile, Content: content}},
			Author: b.Bot, When: b.Now(), Message: fmt.Sprintf("%d results by tree", len(list))})
	if err != nil {
		return err
	}
	return b.Repo.Update(ctx, gitd.RefUpdate{Name: b.ref, New: commit, Old: &old})
}

// encode returns the file of results, the newest of which come first. It leaves out the last ones if read would find the
// file too large.
func encode(list []Try) ([]byte, error) {
	for {
		content, err := json.MarshalIndent(list, "", " ")
		if err != nil || len(content) < bookBytes {
			return append(content, '\n'), err
		}
		list = list[:len(list)/2]
	}
}
