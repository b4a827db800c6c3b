package gitd

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// Hash is a Git object name, 40 hexadecimal digits (64 for SHA-256). The empty Hash means "none".
type Hash string

// Repo is one bare repository. Methods are safe for concurrent use. A Repo
// holds processes and file handles only while it is used; it needs no closing.
type Repo struct {
	server  *Server
	name    string
	dir     string
	id      fileID // the folder that dir was when this Repo was made
	refs    refWriter
	objects objectReader
	// merging and maintaining hold one token each: merges of one repository
	// take turns instead of losing against each other's compare-and-swap, and
	// two repacks at once would do the same work twice. Channels, so that a
	// waiting caller can give up.
	merging, maintaining chan struct{}
}

// Name is the repository's name without ".git".
func (r *Repo) Name() string { return r.name }

// Dir is the repository's folder on disk.
func (r *Repo) Dir() string { return r.dir }

// Base is the branch that HEAD names, without refs/heads/: the canonical base.
func (r *Repo) Base(ctx context.Context) (string, error) {
	b, err := readSmall(filepath.Join(r.dir, "HEAD"))
	if err != nil {
		return "", fmt.Errorf("cannot read the base of %s: %w", r.name, err)
	}
	name, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "ref: refs/heads/")
	if !ok {
		return "", fmt.Errorf("repository %s has no base: its HEAD names no branch: %w", r.name, ErrInvalid)
	}
	return name, nil
}

// Upstream is where the repository was imported from, without credentials;
// empty when it was created here.
func (r *Repo) Upstream(ctx context.Context) (string, error) {
	for _, key := range []string{"ramus.upstream", "remote.origin.url"} {
		out, err := r.output(ctx, "config", "--local", "--get", key)
		if err == nil {
			return withoutPassword(strings.TrimSuffix(string(out), "\n")), nil
		}
		// git config exits with 1 when there is no such key.
		if exitCode(err) != 1 {
			return "", fmt.Errorf("cannot read the upstream of %s: %w", r.name, err)
		}
	}
	return "", nil
}

// output runs git in the repository and returns what it prints.
func (r *Repo) output(ctx context.Context, args ...string) ([]byte, error) {
	return r.server.output(ctx, child{repo: r.dir, args: args})
}

// turn takes the token of ch, or gives up with ctx; the result gives it back.
func turn(ctx context.Context, ch chan struct{}) (func(), error) {
	select {
	case ch <- struct{}{}:
		return func() { <-ch }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Ref is a ref and what it points to.
type Ref struct {
	Name string `json:"name"`
	Hash Hash   `json:"hash"`
}

// Resolve turns a full ref name, a branch or tag name, or a (partial) object name into a
// commit. Not rev-parse syntax: text that could be read as an option or a range is [ErrInvalid].
func (r *Repo) Resolve(ctx context.Context, rev string) (Hash, error) { panic("not built") }

// Refs lists the refs whose name is prefix or stands below it ("refs/ramus/runs"), sorted.
func (r *Repo) Refs(ctx context.Context, prefix string) ([]Ref, error) { panic("not built") }

// RefUpdate changes one ref by compare-and-swap.
type RefUpdate struct {
	Name string
	New  Hash  // empty deletes the ref
	Old  *Hash // nil: whatever it is; pointing to "": it must not exist
}

// Update changes refs, all or none, and returns when that is durable. A ref
// that is not at its Old value makes the error [ErrConflict].
func (r *Repo) Update(ctx context.Context, updates ...RefUpdate) error { panic("not built") }

// Person is an author or committer.
type Person struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// NewCommit describes a commit for [Repo.WriteCommit].
type NewCommit struct {
	// From is a commit whose tree is the starting point; empty starts from an empty tree.
	From Hash
	// Put adds or replaces files by slash-separated path; Delete removes them.
	// A Put with Reader streams, so that a large output needs no memory.
	Put               []File
	Delete            []string
	Parents           []Hash
	Author, Committer Person
	When              time.Time
	Message           string
}

// File is one file to be written.
type File struct {
	Path    string
	Mode    uint32 // git mode: 0o100644 (also when zero), 0o100755, 0o120000
	Content []byte
	// Source, when not empty, is a file on disk that is read instead of Content.
	Source string
}

// WriteCommit writes blobs, trees and the commit, durably; no ref is changed.
func (r *Repo) WriteCommit(ctx context.Context, c NewCommit) (Hash, error) { panic("not built") }

// ReadFile returns a file at a commit. A file larger than max bytes is [ErrTooLarge]; max 0 means 64 MiB.
func (r *Repo) ReadFile(ctx context.Context, rev, path string, max int64) ([]byte, error) {
	panic("not built")
}

// OpenFile is ReadFile as a stream, with the file's size.
func (r *Repo) OpenFile(ctx context.Context, rev, path string) (io.ReadCloser, int64, error) {
	panic("not built")
}

// TreeEntry is one entry of a folder at a commit.
type TreeEntry struct {
	Path string `json:"path"`
	Mode string `json:"mode"`
	Type string `json:"type"` // blob, tree, commit
	Hash Hash   `json:"hash"`
	Size int64  `json:"size"`
}

// Tree lists the folder path ("" is the root) at a commit; recursive lists files of all folders below.
func (r *Repo) Tree(ctx context.Context, rev, path string, recursive bool) ([]TreeEntry, error) {
	panic("not built")
}

// Trailer is one "Key: value" line at a commit message's end.
type Trailer struct{ Key, Value string }

// Commit is a commit as people read it.
type Commit struct {
	Hash      Hash      `json:"hash"`
	Tree      Hash      `json:"tree"`
	Parents   []Hash    `json:"parents"`
	Author    Person    `json:"author"`
	Committer Person    `json:"committer"`
	When      time.Time `json:"when"` // committer date
	Subject   string    `json:"subject"`
	Body      string    `json:"body"`
	Trailers  []Trailer `json:"trailers"`
}

// Trailer returns the last value of a trailer, or "".
func (c Commit) Trailer(key string) string {
	for i := len(c.Trailers) - 1; i >= 0; i-- {
		if c.Trailers[i].Key == key {
			return c.Trailers[i].Value
		}
	}
	return ""
}

// LogOptions narrow [Repo.Log].
type LogOptions struct {
	Not   string // leave out what is reachable from this rev
	Max   int    // at most so many; 0 means 1000
	First bool   // follow first parents only
}

// Log lists commits reachable from rev, newest first.
func (r *Repo) Log(ctx context.Context, rev string, o LogOptions) ([]Commit, error) {
	panic("not built")
}

// Commit returns one commit.
func (r *Repo) Commit(ctx context.Context, rev string) (Commit, error) { panic("not built") }

// DiffOptions shape [Repo.Diff].
type DiffOptions struct {
	Stat  bool     // a diffstat instead of a patch
	Paths []string // only these
	// MergeBase compares to with the merge base of both, as "from...to" does.
	MergeBase bool
}

// Diff writes the difference between two commits as git does, with binary patches, never with colour.
func (r *Repo) Diff(ctx context.Context, from, to string, o DiffOptions, w io.Writer) error {
	panic("not built")
}

// Change is one changed file.
type Change struct {
	Path    string `json:"path"`
	OldPath string `json:"old_path,omitempty"` // of a rename or copy
	Status  string `json:"status"`             // git's letter: A, M, D, R, C, T
	Added   int    `json:"added"`              // lines; -1 for binary files
	Deleted int    `json:"deleted"`
}

// Changed lists what differs between two commits (from the merge base when mergeBase is set).
func (r *Repo) Changed(ctx context.Context, from, to string, mergeBase bool) ([]Change, error) {
	panic("not built")
}

// MergeBase returns the best common ancestor, or [ErrNotFound].
func (r *Repo) MergeBase(ctx context.Context, a, b string) (Hash, error) { panic("not built") }

// Strategy is how a branch is brought into another.
type Strategy string

// The merge strategies.
const (
	StrategyMerge  Strategy = "merge"  // a merge commit; history kept
	StrategyRebase Strategy = "rebase" // the branch's commits replayed on the target
	StrategySquash Strategy = "squash" // one commit on the target
	StrategyFF     Strategy = "ff"     // only if the target has not moved
)

// MergeRequest asks for a merge.
type MergeRequest struct {
	From, Into        string // branch names; Into's ref is changed by compare-and-swap, From never
	Strategy          Strategy
	Message           string // of the merge or squash commit; empty: a subject that names both branches
	Author, Committer Person
	When              time.Time
	// Keep makes rebase keep commits that become empty.
	Keep bool
}

// MergeResult is the outcome of a merge. Conflicts are a result, not an error:
// nothing was changed then.
type MergeResult struct {
	Merged    bool     `json:"merged"`
	Commit    Hash     `json:"commit,omitempty"`     // Into's new tip
	Old       Hash     `json:"old,omitempty"`        // Into's tip before
	UpToDate  bool     `json:"up_to_date,omitempty"` // there was nothing to merge
	Conflicts []string `json:"conflicts,omitempty"`  // paths
	At        Hash     `json:"at,omitempty"`         // rebase: the commit that did not apply
}

// Merge brings From into Into without a work tree.
func (r *Repo) Merge(ctx context.Context, m MergeRequest) (MergeResult, error) { panic("not built") }

// Pack runs gc-free maintenance: geometric repack, commit-graph, pack-refs.
func (r *Repo) Maintain(ctx context.Context) error { panic("not built") }
