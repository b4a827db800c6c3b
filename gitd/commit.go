package gitd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// NewCommit describes a commit for [Repo.WriteCommit].
type NewCommit struct {
	// From is a commit whose tree is the starting point. Empty means an empty tree.
	From Hash
	// Put adds or replaces files by slash-separated path. Delete removes files and folders before Put adds any.
	// Paths in Delete need not exist. A folder that becomes empty is removed. A file replaces a folder of its
	// name, and a folder replaces a file. A Put with Source streams, so a large output needs no memory.
	Put               []File
	Delete            []string
	Parents           []Hash
	Author, Committer Person    // an empty Committer means the Author
	When              time.Time // zero means now
	Message           string
	// Signer signs the commit. Nil means [Server.Signer].
	Signer *CommitSigner
	// Unsigned leaves the commit without a signature, also that of the server.
	Unsigned bool
}

// File is one file to be written.
type File struct {
	Path    string
	Mode    uint32 // mode of git, 0o100644 (also if zero), 0o100755 or 0o120000
	Content []byte
	// Source, if it is not empty, is a regular file on disk that is read instead of Content.
	Source string
	// Blob, if it is not empty, is a blob of the repository that is used instead of Content and Source.
	Blob Hash
}

// WriteCommit writes blobs, trees and the commit, durably, as one pack. No ref is changed.
func (r *Repo) WriteCommit(ctx context.Context, c NewCommit) (Hash, error) {
	written, err := r.WriteCommits(ctx, c)
	if err != nil {
		return "", err
	}
	return written[0], nil
}

// WriteCommits is [Repo.WriteCommit] for several commits in one pack. Each of then makes a commit of the name of the
// commit before it, which need not be its parent.
func (r *Repo) WriteCommits(ctx context.Context, first NewCommit, then ...func(before Hash) NewCommit) ([]Hash, error) {
	written, err := r.writeCommits(ctx, first, then)
	if err != nil {
		return nil, fmt.Errorf("cannot write a commit in %s: %w", r.name, err)
	}
	return written, nil
}

func (r *Repo) writeCommits(ctx context.Context, c NewCommit, then []func(Hash) NewCommit) ([]Hash, error) {
	if _, err := os.Lstat(filepath.Join(r.dir, "objects")); err != nil {
		return nil, fmt.Errorf("the repository is gone: %w", ErrNotFound)
	}
	w, err := r.newPack(ctx)
	if err != nil {
		return nil, err
	}
	defer w.Drop()
	h, err := r.addCommit(ctx, w, c)
	if err != nil {
		return nil, err
	}
	written := []Hash{h}
	for _, next := range then {
		if h, err = r.addCommit(ctx, w, next(h)); err != nil {
			return nil, err
		}
		written = append(written, h)
	}
	return written, placePack(w)
}

// addCommit writes a commit, its trees and its blobs into a pack.
func (r *Repo) addCommit(ctx context.Context, w *pack.Writer, c NewCommit) (Hash, error) {
	if err := r.checkParents(ctx, c.Parents); err != nil {
		return "", err
	}
	tree, err := r.writeTree(ctx, w, c)
	if err != nil {
		return "", err
	}
	data := r.newCommit(c, tree).Encode()
	if !c.Unsigned {
		if data, err = r.server.encodeCommit(r.newCommit(c, tree), c.Signer); err != nil {
			return "", err
		}
	}
	return w.AddNew("commit", data)
}

// writeTree writes the tree of a commit and its blobs.
func (r *Repo) writeTree(ctx context.Context, w *pack.Writer, c NewCommit) (Hash, error) {
	editor := &treeEditor{objects: &r.objects, pack: w, root: &openedFolder{entries: map[string]openedEntry{}}}
	if c.From != "" {
		tree, err := r.objects.TreeOf(ctx, c.From)
		if err != nil {
			return "", fmt.Errorf("starting point %s: %w", c.From, err)
		}
		editor.root = &openedFolder{was: tree}
	}
	for _, p := range c.Delete {
		if err := editor.remove(ctx, p); err != nil {
			return "", err
		}
	}

	put, err := checkPaths(c.Put)
	if err != nil {
		return "", err
	}
	for _, f := range c.Put {
		if err := editor.putFile(ctx, f, put); err != nil {
			return "", err
		}
	}
	tree, _, err := editor.writeFolder(ctx, editor.root)
	return tree, err
}

// checkParents returns [ErrInvalid] unless all parents are commits of the repository.
func (r *Repo) checkParents(ctx context.Context, parents []Hash) error {
	for _, p := range parents {
		if kind, err := r.objects.Kind(ctx, p); err != nil {
			return fmt.Errorf("parent %s: %w", p, err)
		} else if kind != "commit" {
			return fmt.Errorf("parent %s is a %s: %w", p, kind, ErrInvalid)
		}
	}
	return nil
}

// newCommit returns the commit that c describes, with the given tree.
func (r *Repo) newCommit(c NewCommit, tree Hash) object.RawCommit {
	when := c.When
	if when.IsZero() {
		when = r.server.now()
	}
	if c.Committer == (Person{}) {
		c.Committer = c.Author
	}
	return object.RawCommit{
		Tree: tree, Parents: c.Parents,
		Author: c.Author.Signature(when), Committer: c.Committer.Signature(when),
		Message: []byte(cleanMessage(c.Message)),
	}
}

// placePack moves a finished pack into the repository.
func placePack(w *pack.Writer) error {
	p, err := w.Place()
	if p == nil || err != nil {
		return err
	}
	return p.Close()
}

// needSHA1 returns [ErrInvalid] for a repository whose objects have SHA-256 names. Such a repository is served,
// but nothing can be written into it.
func (r *Repo) needSHA1(ctx context.Context) error {
	format := r.format.Load()
	if format == nil {
		out, err := r.output(ctx, "rev-parse", "--show-object-format")
		if err != nil {
			return fmt.Errorf("cannot read the object format: %w", err)
		}
		name := strings.TrimSpace(string(out))
		format = &name
		r.format.Store(format)
	}
	if *format != "sha1" {
		return fmt.Errorf("its objects are named by %s, only sha1 can be written: %w", *format, ErrInvalid)
	}
	return nil
}

// cleanMessage returns a message that git can read back. It has no NUL, and one newline at the end.
func cleanMessage(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "")
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return ""
	}
	return s + "\n"
}

// newPack starts a pack of new objects. It ends with ctx. Returns an error if the repository has
// SHA-256 names.
func (r *Repo) newPack(ctx context.Context) (*pack.Writer, error) {
	if err := r.needSHA1(ctx); err != nil {
		return nil, err
	}
	return pack.NewWriter(ctx, &r.objects.Packs), nil
}
