package seal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

const (
	// perLink bounds the entries of a link.
	perLink = 200
	// attempts bounds how often another program may move the chain meanwhile.
	attempts = 20
)

// Chain has the chains of all repositories of a server. Its fields are set before the first use. Methods are safe for
// concurrent use.
type Chain struct {
	// Signer signs seals and links. Nil means the signer of the Git server, which may be none.
	Signer *gitd.CommitSigner
	// Also are further signers whose links count, such as those of another server whose repositories this one took over.
	Also gitd.Signers
	// Bot is the author of links.
	Bot gitd.Person
	Now func() time.Time

	mu    sync.Mutex             // guards turns
	turns map[string]*sync.Mutex // by repository; held while its chain moves
}

// Signers returns the signers whose seals and links count.
func (c *Chain) Signers() gitd.Signers {
	if c.Signer == nil {
		return c.Also
	}
	return slices.Concat(c.Signer.Public(), c.Also)
}

// turn returns the mutex of a repository.
func (c *Chain) turn(repo string) *sync.Mutex {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns == nil {
		c.turns = make(map[string]*sync.Mutex)
	}
	if c.turns[repo] == nil {
		c.turns[repo] = new(sync.Mutex)
	}
	return c.turns[repo]
}

// head returns the last link of a repository. Returns "" if there is none.
func head(ctx context.Context, repo *gitd.Repo) (gitd.Hash, error) {
	h, err := repo.Resolve(ctx, Ref)
	if errors.Is(err, gitd.ErrNotFound) {
		return "", nil
	}
	return h, err
}

// Seal writes a commit with the record of a run and its link, and moves the ref of the run and the chain. The commit
// gets a trailer after those that its message ends with, and the signer of the chain. The manifest has its Content in n.Put or is that
// of n.From. Returns [gitd.ErrConflict] if the ref of the run is not at was.
func (c *Chain) Seal(ctx context.Context, repo *gitd.Repo, ref string, was gitd.Hash, n gitd.NewCommit) (gitd.Hash, error) {
	sum, err := manifestSum(ctx, repo, n)
	if err != nil {
		return "", err
	}
	before, err := head(ctx, repo)
	if err != nil {
		return "", err
	}
	if before == "" {
		if before, err = c.beginChain(ctx, repo, ref); err != nil {
			return "", err
		}
	}
	// The files are written while others may move the chain. If one does, only the two commits are written again.
	made, err := c.write(ctx, repo, ref, sum, before, n)
	if err != nil {
		return "", err
	}
	turn := c.turn(repo.Name())
	turn.Lock()
	defer turn.Unlock()
	for range attempts {
		now, err := head(ctx, repo)
		if err != nil {
			return "", err
		}
		if now != before {
			before, n.From, n.Put, n.Delete = now, made[0], nil, nil
			if made, err = c.write(ctx, repo, ref, sum, before, n); err != nil {
				return "", err
			}
		}
		// The order counts if a kill comes between, see Finish.
		err = repo.Update(ctx, gitd.RefUpdate{Name: Ref, New: made[1], Old: &before},
			gitd.RefUpdate{Name: ref, New: made[0], Old: &was})
		if err == nil {
			return made[0], nil
		}
		now, e := head(ctx, repo)
		if !errors.Is(err, gitd.ErrConflict) || e != nil || now == before {
			return "", err
		}
	}
	return "", fmt.Errorf("%s moves all the time: %w", Ref, gitd.ErrConflict)
}

// write writes a seal and its link after the link before. No ref moves.
func (c *Chain) write(ctx context.Context, repo *gitd.Repo, ref, sum string, before gitd.Hash, n gitd.NewCommit) ([]gitd.Hash, error) {
	subject, _, _ := strings.Cut(n.Message, "\n")
	if before != "" {
		n.Message += fmt.Sprintf("%s: %s\n", TrailerAfter, before)
	}
	n.Signer = c.Signer
	return repo.WriteCommits(ctx, n, func(commit gitd.Hash) gitd.NewCommit {
		return c.link(before, "Seal "+subject, []Entry{{Kind: Sealed, Commit: commit, Ref: ref, Manifest: sum}})
	})
}

// link returns a link.
func (c *Chain) link(before gitd.Hash, subject string, entries []Entry, with ...gitd.Ref) gitd.NewCommit {
	n := gitd.NewCommit{Author: c.Bot, Committer: c.Bot, When: c.Now(), Message: message(subject, entries, with...), Signer: c.Signer}
	if before != "" {
		n.Parents = []gitd.Hash{before}
	}
	return n
}

// manifestSum returns the SHA-256 of the manifest of a commit.
func manifestSum(ctx context.Context, repo *gitd.Repo, n gitd.NewCommit) (string, error) {
	text := []byte(nil)
	if i := slices.IndexFunc(n.Put, func(f gitd.File) bool { return f.Path == record.ManifestPath }); i >= 0 {
		text = n.Put[i].Content
	} else {
		var err error
		if text, err = repo.ReadFile(ctx, string(n.From), record.ManifestPath, record.MaxManifest); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// beginChain begins the chain of a repository if it has runs of a time before chains, other than that of ref. Returns the
// last link, or "" if there is none.
func (c *Chain) beginChain(ctx context.Context, repo *gitd.Repo, ref string) (gitd.Hash, error) {
	turn := c.turn(repo.Name())
	turn.Lock()
	defer turn.Unlock()
	before, err := head(ctx, repo)
	if err != nil || before != "" {
		return before, err
	}
	refs, err := repo.Refs(ctx, record.RunsPrefix)
	if err != nil {
		return "", err
	}
	var entries []Entry
	for _, r := range refs {
		_, err := repo.Entry(ctx, string(r.Hash), record.ManifestPath)
		switch {
		case errors.Is(err, gitd.ErrNotFound) || r.Name == ref:
			continue // it is at work
		case err != nil:
			return "", err
		}
		entries = append(entries, Entry{Kind: Adopted, Commit: r.Hash, Ref: r.Name})
	}
	return c.append(ctx, repo, before, "Begin the chain of seals", entries)
}

// Import makes the refs of runs of another server, with further updates, and names them in the chain.
func (c *Chain) Import(ctx context.Context, repo *gitd.Repo, runs []gitd.Ref, updates ...gitd.RefUpdate) error {
	if _, err := c.beginChain(ctx, repo, ""); err != nil {
		return err
	}
	turn := c.turn(repo.Name())
	turn.Lock()
	defer turn.Unlock()
	none := gitd.Hash("")
	entries := make([]Entry, len(runs))
	for i, r := range runs {
		entries[i] = Entry{Kind: Import, Commit: r.Hash, Ref: r.Name}
		updates = append(updates, gitd.RefUpdate{Name: r.Name, New: r.Hash, Old: &none})
	}
	before, err := head(ctx, repo)
	if err != nil {
		return err
	}
	_, err = c.append(ctx, repo, before, fmt.Sprintf("Import %d runs", len(runs)), entries, updates...)
	return err
}

// withOf returns the refs that updates make and that are no runs.
func withOf(updates []gitd.RefUpdate) []gitd.Ref {
	var list []gitd.Ref
	for _, u := range updates {
		if u.New != "" && !strings.HasPrefix(u.Name, record.RunsPrefix+"/") {
			list = append(list, gitd.Ref{Name: u.Name, Hash: u.New})
		}
	}
	return list
}

// append adds entries to a chain whose turn is held, in one move with further updates. The first link names the refs that
// these make, for Finish. Returns the last link.
func (c *Chain) append(ctx context.Context, repo *gitd.Repo, before gitd.Hash, subject string, entries []Entry,
	also ...gitd.RefUpdate) (gitd.Hash, error) {
	if len(entries)+len(also) == 0 {
		return before, nil
	}
	last, with := before, withOf(also)
	for some := range slices.Chunk(entries, perLink) {
		h, err := repo.WriteCommit(ctx, c.link(last, subject, some, with...))
		if err != nil {
			return "", err
		}
		last, with = h, nil
	}
	updates := also
	if last != before {
		updates = append([]gitd.RefUpdate{{Name: Ref, New: last, Old: &before}}, also...)
	}
	return last, repo.Update(ctx, updates...)
}

// Prune names seals that are about to be removed. It is durable when Prune returns. A seal whose ref moved since the seals
// were listed is not named, because it stays. Nothing happens in a repository without a chain.
func (c *Chain) Prune(ctx context.Context, repo *gitd.Repo, seals []gitd.Ref) error {
	turn := c.turn(repo.Name())
	turn.Lock()
	defer turn.Unlock()
	refs, err := repo.Refs(ctx, record.RunsPrefix)
	if err != nil {
		return err
	}
	at := make(map[string]gitd.Hash, len(refs))
	for _, r := range refs {
		at[r.Name] = r.Hash
	}
	var entries []Entry
	for _, s := range seals {
		if at[s.Name] == s.Hash {
			entries = append(entries, Entry{Kind: Pruned, Commit: s.Hash, Ref: s.Name})
		}
	}
	for range attempts {
		before, err := head(ctx, repo)
		if err != nil || before == "" {
			return err
		}
		if _, err = c.append(ctx, repo, before, fmt.Sprintf("Prune %d runs", len(entries)), entries); !errors.Is(err, gitd.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("%s moves all the time: %w", Ref, gitd.ErrConflict)
}

// Finish moves the refs of the runs that the last links of a repository seal or import, if a kill came between the chain and
// the refs. An import also gets its branch. A link that no signer made moves nothing. Finish is called when a server starts,
// before anything else seals.
func (c *Chain) Finish(ctx context.Context, repo *gitd.Repo) error {
	at, err := head(ctx, repo)
	if err != nil {
		return err
	}
	for at != "" {
		link, err := repo.CheckCommit(ctx, at, c.Signers())
		if err != nil {
			return fmt.Errorf("cannot read the last seal of %s: %w", repo.Name(), err)
		}
		entries, err := parseEntries(link.Message)
		if err != nil || link.Fault != nil && len(c.Signers()) > 0 {
			return nil // Check names a damaged link
		}
		// The refs of an import move in the order of its links, those of its branch first. If the last links lack none, the ones
		// before them lack none either.
		moved, err := finishLink(ctx, repo, entries, parseWith(link.Message))
		if err != nil || !moved || len(link.Parents) != 1 {
			return err
		}
		at = link.Parents[0]
	}
	return nil
}

// finishLink carries out a link. Reports whether it imports a run that was missing, so that the link before it may be part
// of the same import.
func finishLink(ctx context.Context, repo *gitd.Repo, entries []Entry, with []gitd.Ref) (moved bool, err error) {
	for _, e := range slices.Backward(entries) {
		done, err := finish(ctx, repo, e)
		if err != nil {
			return false, err
		}
		moved = moved || done && e.Kind == Import
	}
	if !moved {
		return false, nil
	}
	for _, w := range with {
		if err := restore(ctx, repo, w); err != nil {
			return false, err
		}
	}
	return true, nil
}

// restore makes a ref that is missing.
func restore(ctx context.Context, repo *gitd.Repo, w gitd.Ref) error {
	_, err := repo.Resolve(ctx, w.Name)
	if !errors.Is(err, gitd.ErrNotFound) {
		return err
	}
	none := gitd.Hash("")
	return repo.Update(ctx, gitd.RefUpdate{Name: w.Name, New: w.Hash, Old: &none})
}

// finish carries out an entry, unless that is done. Reports whether the ref moved.
func finish(ctx context.Context, repo *gitd.Repo, e Entry) (moved bool, err error) {
	at, err := repo.Resolve(ctx, e.Ref)
	if errors.Is(err, gitd.ErrNotFound) {
		at, err = "", nil
	}
	if err != nil || at == e.Commit {
		return false, err
	}
	made, err := repo.CheckCommit(ctx, e.Commit, nil)
	if err != nil {
		return false, ignoreMissing(err)
	}
	follows := e.Kind == Sealed && at != "" && len(made.Parents) > 0 && made.Parents[0] == at
	if follows || e.Kind == Import && at == "" {
		return true, repo.Update(ctx, gitd.RefUpdate{Name: e.Ref, New: e.Commit, Old: &at})
	}
	return false, nil
}

// ignoreMissing returns nil for [gitd.ErrNotFound].
func ignoreMissing(err error) error {
	if errors.Is(err, gitd.ErrNotFound) {
		return nil
	}
	return err
}
