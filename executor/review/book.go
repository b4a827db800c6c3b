package review

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// Refs begins the refs of reviews, refs/ramus/review/CALLER.
const Refs = record.ReviewPrefix

// Ref returns the ref of the review of a caller.
func Ref(c record.Caller) string { return record.ReviewRef(c) }

const (
	threadFolder = "threads"
	batchFolder  = "batches"
	blobFolder   = "blobs"
	maxFile      = 8 << 20 // bytes of a file of a review
	saves        = 8       // attempts, while others write
	maxKept      = 200     // reviews in memory
)

// ErrFull is the error for a review that has no room for more.
var ErrFull = fmt.Errorf("%w: the review has no room for more", record.ErrConflict)

// Book keeps reviews in repositories. Its fields are its options. All methods are safe for concurrent use.
type Book struct {
	// Bot is the committer.
	Bot gitd.Person
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Changed is called after a change of the review of a caller. Nil means that nothing is called.
	Changed func(repo string, c record.Caller)

	mu    sync.Mutex // guards known
	known map[string]kept
}

// kept is a review in memory, as the files of its commit.
type kept struct {
	at     gitd.Hash
	review Review
}

// Read returns the review of a caller. That of a caller without one is empty. Nothing in it may be changed.
func (b *Book) Read(ctx context.Context, repo *gitd.Repo, c record.Caller) (Review, error) {
	k, err := b.read(ctx, repo, c)
	return k.review, err
}

func (b *Book) read(ctx context.Context, repo *gitd.Repo, c record.Caller) (kept, error) {
	at, err := repo.Resolve(ctx, Ref(c))
	if errors.Is(err, gitd.ErrNotFound) {
		return kept{}, nil
	}
	if err != nil {
		return kept{}, err
	}
	key := repo.Dir() + " " + c.Slug()
	b.mu.Lock()
	k, ok := b.known[key]
	b.mu.Unlock()
	if ok && k.at == at {
		return k, nil
	}
	k = kept{at: at}
	if k.review, err = parse(ctx, repo, at); err != nil {
		return kept{}, fmt.Errorf("cannot read the review at %s: %w", Ref(c), err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || len(b.known) >= maxKept {
		b.known = map[string]kept{}
	}
	b.known[key] = k
	return k, nil
}

// parse reads the files of a commit.
func parse(ctx context.Context, repo *gitd.Repo, at gitd.Hash) (r Review, err error) {
	list, err := repo.Tree(ctx, string(at), "", true)
	if err != nil {
		return r, err
	}
	for _, e := range list {
		folder, _, _ := strings.Cut(e.Path, "/")
		if folder != threadFolder && folder != batchFolder {
			continue
		}
		text, err := repo.Blob(ctx, e.Hash, maxFile)
		if err != nil {
			return r, err
		}
		if folder == threadFolder {
			var t Thread
			if err := json.Unmarshal(text, &t); err != nil {
				return r, fmt.Errorf("%s: %w", e.Path, err)
			}
			if len(t.Remarks) > 0 {
				r.Threads = append(r.Threads, t)
			}
			continue
		}
		var x Batch
		if err := json.Unmarshal(text, &x); err != nil {
			return r, fmt.Errorf("%s: %w", e.Path, err)
		}
		r.Batches = append(r.Batches, x)
	}
	slices.SortStableFunc(r.Threads, func(x, y Thread) int {
		return cmp.Or(x.Remarks[0].Time.Compare(y.Remarks[0].Time), cmp.Compare(x.Anchor.Path, y.Anchor.Path), cmp.Compare(x.Anchor.From, y.Anchor.From), cmp.Compare(x.ID, y.ID))
	})
	slices.SortStableFunc(r.Batches, func(x, y Batch) int { return cmp.Or(x.Time.Compare(y.Time), cmp.Compare(x.ID, y.ID)) })
	return r, nil
}

// clone returns a copy that may be changed.
func (r Review) clone() Review {
	r.Threads, r.Batches = slices.Clone(r.Threads), slices.Clone(r.Batches)
	for i := range r.Threads {
		r.Threads[i].Remarks = slices.Clone(r.Threads[i].Remarks)
	}
	return r
}

// Change changes the review of a caller, durably, as one commit by a person. change may be called again if somebody else changed it
// meanwhile. Its error ends the change. A change that changes nothing makes no commit.
func (b *Book) Change(ctx context.Context, repo *gitd.Repo, c record.Caller, by gitd.Person, subject string, change func(*Review) error) (Review, error) {
	for try := 1; ; try++ {
		k, err := b.read(ctx, repo, c)
		if err != nil {
			return Review{}, err
		}
		r := k.review.clone()
		if err := change(&r); err != nil {
			return k.review, err
		}
		err = b.write(ctx, repo, c, k, r, by, subject)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, gitd.ErrConflict) || try == saves {
			return k.review, fmt.Errorf("cannot keep the review of %s: %w", c, err)
		}
	}
}

var fileID = pattern.New(`^[0-9a-z][0-9a-z-]{0,79}$`)

// write makes a commit of the files that differ.
func (b *Book) write(ctx context.Context, repo *gitd.Repo, c record.Caller, old kept, r Review, by gitd.Person, subject string) error {
	n := gitd.NewCommit{From: old.at, Author: by.Or(b.Bot), Committer: b.Bot, When: b.now(),
		Message: subject + "\n\n" + record.TrailerCaller + ": " + c.String() + "\n"}
	if old.at != "" {
		n.Parents = []gitd.Hash{old.at}
	}
	put := func(folder, id string, before, now any) error {
		was, err := json.Marshal(before)
		if err != nil {
			return err
		}
		is, err := json.Marshal(now)
		if err != nil {
			return err
		}
		if bytes.Equal(was, is) {
			return nil
		}
		if !fileID.MatchString(id) {
			return fmt.Errorf("%w id %.100q of a review", record.ErrInvalid, id)
		}
		var text bytes.Buffer
		if err := json.Indent(&text, is, "", " "); err != nil {
			return err
		}
		text.WriteByte('\n')
		if text.Len() > maxFile {
			return ErrFull
		}
		n.Put = append(n.Put, gitd.File{Path: folder + "/" + id + ".json", Content: text.Bytes()})
		return nil
	}
	if len(r.Threads) > MaxThreads {
		return ErrFull
	}
	for _, t := range r.Threads {
		if len(t.Remarks) > MaxRemarks {
			return ErrFull
		}
		before := old.review.Thread(t.ID)
		if err := put(threadFolder, t.ID, before, &t); err != nil {
			return err
		}
		if before == nil {
			blob := gitd.File{Path: blobFolder + "/" + string(t.Anchor.Blob), Blob: t.Anchor.Blob}
			if !slices.ContainsFunc(n.Put, func(f gitd.File) bool { return f.Path == blob.Path }) {
				n.Put = append(n.Put, blob)
			}
			if at := t.Anchor.At(); !slices.Contains(n.Parents, at) {
				n.Parents = append(n.Parents, at)
			}
			if !slices.Contains(n.Parents, t.Anchor.Commit) {
				n.Parents = append(n.Parents, t.Anchor.Commit)
			}
		}
	}
	for _, x := range r.Batches {
		if err := put(batchFolder, x.ID, old.review.Batch(x.ID), &x); err != nil {
			return err
		}
	}
	if len(n.Put) == 0 {
		return nil
	}
	commit, err := repo.WriteCommit(ctx, n)
	if err != nil {
		return err
	}
	if err := repo.Update(ctx, gitd.RefUpdate{Name: Ref(c), New: commit, Old: &old.at}); err != nil {
		return err
	}
	if b.Changed != nil {
		b.Changed(repo.Name(), c)
	}
	return nil
}

func (b *Book) now() time.Time {
	if b.Now == nil {
		return time.Now()
	}
	return b.Now()
}

// Callers returns the callers that have a review in a repository.
func Callers(ctx context.Context, repo *gitd.Repo) (list []record.Caller, err error) {
	refs, err := repo.Refs(ctx, Refs)
	if err != nil {
		return nil, err
	}
	for _, r := range refs {
		kind, id, _ := strings.Cut(strings.TrimPrefix(r.Name, Refs+"/"), "-")
		if c, err := record.ParseCaller(kind + ":" + id); err == nil {
			list = append(list, c)
		}
	}
	return list, nil
}

// Apply returns the lines of a file with those of an anchor replaced by others. Returns [anchor.ErrLines] if the file does not have the lines
// of the anchor at the place.
func Apply(lines []string, p anchor.Place, with []string) ([]string, error) {
	if !p.Fits() || p.From < 1 || p.To > len(lines) {
		return nil, anchor.ErrLines
	}
	return slices.Concat(lines[:p.From-1], with, lines[p.To:]), nil
}

// Suggestions returns the blocks of a text that are suggestions, as the lines that take the place of those of the thread.
func Suggestions(text string) (list [][]string) {
	var lines []string
	fence := ""
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\r\n")
		rest := strings.TrimLeft(l, "`")
		ticks := l[:len(l)-len(rest)]
		switch {
		case fence == "" && len(ticks) >= 3 && strings.TrimSpace(rest) == "suggestion":
			fence, lines = ticks, []string{}
		case fence != "" && len(ticks) >= len(fence) && strings.TrimSpace(rest) == "":
			list = append(list, lines)
			fence = ""
		case fence != "":
			lines = append(lines, l)
		}
	}
	return list
}
