package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"

	"github.com/ramus-dev/ramus/gitd/gitfile"
	"github.com/ramus-dev/ramus/gitd/refview"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/object"
)

// Refs are read in process, from loose files and packed-refs. They are written as loose files, or by native git.
// Reading needs no lock. Git replaces both kinds of file by rename, and it writes packed-refs before it removes a
// loose file, so a reader that reads the loose files first misses nothing.

// Ref is a ref and the object that it points to.
type Ref struct {
	Name string `json:"name"`
	Hash Hash   `json:"hash"`
}

// Resolve returns the commit that a full ref name, a branch or tag name, or a (partial) object name names. It does
// not understand rev-parse syntax. Returns [ErrInvalid] for text that could be taken for an option or a range.
func (r *Repo) Resolve(ctx context.Context, rev string) (Hash, error) {
	h, err := r.resolve(ctx, rev)
	if err != nil {
		return "", fmt.Errorf("cannot resolve %.200q in %s: %w", rev, r.name, err)
	}
	return h, nil
}

func (r *Repo) resolve(ctx context.Context, rev string) (Hash, error) {
	if rev == "HEAD" {
		base, err := r.Base(ctx)
		if err != nil {
			return "", err
		}
		rev = "refs/heads/" + base
	}
	names := []string{rev}
	if !strings.HasPrefix(rev, "refs/") {
		names = []string{"refs/heads/" + rev, "refs/tags/" + rev}
	}

	whole := CheckHash(Hash(rev)) == nil
	for _, name := range names {
		// A branch with the name of an object would hide the object.
		if whole || object.RefFault(name) != "" {
			continue
		}
		h, err := r.readRef(ctx, name)
		if err == nil {
			return r.objects.Commit(ctx, h)
		} else if !errors.Is(err, ErrNotFound) {
			return "", err
		}
	}

	switch {
	case whole:
		return r.objects.Commit(ctx, Hash(rev))
	case len(rev) >= 4 && len(rev) < 64 && object.IsHex(rev):
		return r.resolveAbbreviated(ctx, rev)
	case object.RefFault(names[0]) != "":
		return "", fmt.Errorf("it %s: %w", object.RefFault(names[0]), ErrInvalid)
	case strings.HasPrefix(rev, "-"):
		return "", fmt.Errorf("it begins with '-': %w", ErrInvalid)
	}
	return "", ErrNotFound
}

// ResolveFor is [Repo.Resolve] for the bearer of a grant. Returns [ErrNotFound] for a ref that the grant does not
// show, and for a commit that no ref reaches which the grant shows.
func (r *Repo) ResolveFor(ctx context.Context, g Grant, rev string) (Hash, error) {
	h, err := r.resolveFor(ctx, g, rev)
	if err != nil {
		return "", fmt.Errorf("cannot resolve %.200q in %s: %w", rev, r.name, err)
	}
	return h, nil
}

func (r *Repo) resolveFor(ctx context.Context, g Grant, rev string) (Hash, error) {
	switch {
	case !g.MayRead(r.name):
		return "", ErrNotFound
	case g.ReadsAll():
		return r.resolve(ctx, rev)
	}
	if rev == "HEAD" {
		base, err := r.Base(ctx)
		if err != nil {
			return "", err
		}
		rev = "refs/heads/" + base
	}

	names := []string{rev}
	if !strings.HasPrefix(rev, "refs/") {
		names = []string{"refs/heads/" + rev, "refs/tags/" + rev}
	}
	for _, name := range names {
		if CheckHash(Hash(rev)) == nil || object.RefFault(name) != "" || !g.MayReadRef(r.name, name) {
			continue
		}
		h, err := r.readRef(ctx, name)
		if err == nil {
			return r.objects.Commit(ctx, h)
		} else if !errors.Is(err, ErrNotFound) {
			return "", err
		}
	}
	if !object.IsHex(rev) {
		return "", ErrNotFound
	}

	h, err := r.resolve(ctx, rev)
	if err != nil {
		return "", err
	}
	out, err := r.output(ctx, "for-each-ref", "--contains="+string(h), "--format=%(refname)")
	if err != nil {
		return "", err
	}
	for name := range strings.Lines(string(out)) {
		if g.MayReadRef(r.name, strings.TrimSpace(name)) {
			return h, nil
		}
	}
	return "", ErrNotFound
}

// resolveAbbreviated returns the only commit whose object name begins with prefix.
func (r *Repo) resolveAbbreviated(ctx context.Context, prefix string) (Hash, error) {
	out, err := r.output(ctx, "rev-parse", "--disambiguate="+prefix)
	if err != nil {
		return "", err
	}
	var found []Hash
	for _, name := range strings.Fields(string(out)) {
		h, err := r.objects.Commit(ctx, Hash(name))
		if err == nil && !slices.Contains(found, h) {
			found = append(found, h)
		} else if err != nil && !errors.Is(err, ErrNotFound) {
			return "", err
		}
	}
	switch len(found) {
	case 0:
		return "", ErrNotFound
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("it is ambiguous, %d commits begin with it: %w", len(found), ErrInvalid)
}

// readRef returns the object of a ref by its full name, through symbolic refs.
func (r *Repo) readRef(ctx context.Context, name string) (Hash, error) {
	if refview.HasReftable(r.dir) {
		refs, err := r.nativeRefs(ctx, name)
		if err == nil && len(refs) > 0 && refs[0].Name == name {
			return refs[0].Hash, nil
		}
		return "", errors.Join(err, ErrNotFound)
	}
	for range 5 { // git follows as many symbolic refs
		if object.RefFault(name) != "" {
			return "", fmt.Errorf("ref %.200q: %w", name, ErrInvalid)
		}
		b, err := gitfile.ReadSmall(filepath.Join(r.dir, filepath.FromSlash(name)))
		switch {
		case err == nil:
			text := strings.TrimSpace(string(b))
			if target, ok := strings.CutPrefix(text, "ref:"); ok {
				name = strings.TrimSpace(target)
				continue
			}
			if CheckHash(Hash(text)) != nil {
				return "", fmt.Errorf("ref %s is damaged: its file has no object name", name)
			}
			return Hash(text), nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		default:
			return "", err
		}
		packed, err := r.packedRefs()
		if err != nil {
			return "", err
		}
		if i, ok := slices.BinarySearchFunc(packed, name, func(p Ref, n string) int { return strings.Compare(p.Name, n) }); ok {
			return packed[i].Hash, nil
		}
		return "", ErrNotFound
	}
	return "", fmt.Errorf("ref %s: too many symbolic refs in a row: %w", name, ErrInvalid)
}

// packed is a parsed packed-refs file. It is replaced as a whole and never changed.
type packed struct {
	mu   sync.Mutex // guards the fields below
	info os.FileInfo
	refs []Ref
}

// packedRefs returns the refs of the packed-refs file, sorted. The caller must not change them.
func (r *Repo) packedRefs() ([]Ref, error) {
	p := &r.refs.packed
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := os.Open(filepath.Join(r.dir, "packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		p.info, p.refs = nil, nil
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot read the packed refs: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot read the packed refs: %w", err)
	}
	// Git replaces the file and never changes it, so it is either another file or the same.
	if p.info != nil && os.SameFile(p.info, info) && p.info.ModTime().Equal(info.ModTime()) && p.info.Size() == info.Size() {
		return p.refs, nil
	}
	refs, err := parsePackedRefs(f)
	if err != nil {
		return nil, err
	}
	p.info, p.refs = info, refs
	return refs, nil
}

func parsePackedRefs(in io.Reader) ([]Ref, error) {
	var refs []Ref
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' || line[0] == '^' {
			continue
		}
		h, name, ok := strings.Cut(line, " ")
		if !ok || CheckHash(Hash(h)) != nil || name == "" {
			return nil, fmt.Errorf("the packed refs are damaged at line %.100q", line)
		}
		refs = append(refs, Ref{Name: name, Hash: Hash(h)})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the packed refs: %w", err)
	}
	byName := func(a, b Ref) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(refs, byName) {
		slices.SortFunc(refs, byName)
	}
	return refs, nil
}

// Refs lists the refs whose name is prefix or below it ("refs/ramus/runs"), sorted. An empty prefix means all.
func (r *Repo) Refs(ctx context.Context, prefix string) ([]Ref, error) {
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix == "" {
		prefix = "refs"
	}
	if prefix != "refs" && (object.RefFault(prefix) != "" || !strings.HasPrefix(prefix, "refs/")) {
		return nil, fmt.Errorf("cannot list the refs below %.200q: no such place for refs: %w", prefix, ErrInvalid)
	}
	refs, err := r.listRefs(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("cannot list the refs of %s: %w", r.name, err)
	}
	return refs, nil
}

func (r *Repo) listRefs(ctx context.Context, prefix string) ([]Ref, error) {
	if refview.HasReftable(r.dir) {
		return r.nativeRefs(ctx, prefix)
	}
	loose := map[string]Hash{}
	err := filepath.WalkDir(filepath.Join(r.dir, filepath.FromSlash(prefix)),
		func(file string, d fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
					return nil // packed or deleted meanwhile
				}
				return err
			}
			if d.IsDir() {
				return ctx.Err()
			}
			rel, err := filepath.Rel(r.dir, file)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(rel)
			if object.RefFault(name) != "" {
				return nil // a lock file, or not a file of git
			}
			h, err := r.readRef(ctx, name)
			if errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
				return nil // deleted meanwhile, or a symbolic ref to nothing
			} else if err != nil {
				// One damaged file must not hide all other refs.
				r.server.log().Warn("left a ref out of a list", "repo", r.name, "ref", name, "err", err)
				return nil
			}
			loose[name] = h
			return nil
		})
	if err != nil {
		return nil, err
	}

	all, err := r.packedRefs()
	if err != nil {
		return nil, err
	}
	var refs []Ref
	for _, p := range refsBelow(all, prefix) {
		if _, ok := loose[p.Name]; !ok {
			refs = append(refs, p)
		}
	}

	for name, h := range loose {
		refs = append(refs, Ref{name, h})
	}
	slices.SortFunc(refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs, nil
}

// refsBelow returns those of the sorted refs whose name is prefix or below it.
func refsBelow(refs []Ref, prefix string) []Ref {
	var out []Ref
	for i := sort.Search(len(refs), func(i int) bool { return refs[i].Name >= prefix }); i < len(refs); i++ {
		name := refs[i].Name
		if !strings.HasPrefix(name, prefix) {
			break
		}
		if len(name) == len(prefix) || name[len(prefix)] == '/' {
			out = append(out, refs[i])
		}
	}
	return out
}

func (r *Repo) nativeRefs(ctx context.Context, prefix string) ([]Ref, error) {
	out, err := r.output(ctx, "for-each-ref", "--format=%(objectname) %(refname)", "--", prefix)
	if err != nil {
		return nil, err
	}
	return parsePackedRefs(bytes.NewReader(out))
}

// RefUpdate changes one ref by compare-and-swap.
type RefUpdate struct {
	Name string
	New  Hash  // empty deletes the ref
	Old  *Hash // nil means any value, a pointer to "" means that the ref must not exist
}

// Update changes refs, all or none, and returns when the change is durable. Returns [ErrConflict] if a ref is not
// at its Old value. A symbolic ref is itself changed, not the ref that it points to.
func (r *Repo) Update(ctx context.Context, updates ...RefUpdate) error {
	if len(updates) == 0 {
		return nil
	}
	err := r.server.checkDuty(ctx, r.name)
	if err == nil {
		err = r.update(ctx, updates)
	}
	if err == nil {
		if slices.ContainsFunc(updates, func(u RefUpdate) bool { return u.New == "" }) {
			r.followDeleted(ctx)
		}
		if slices.ContainsFunc(updates, func(u RefUpdate) bool { return !strings.HasPrefix(u.Name, grant.OwnRefs) }) {
			r.server.tellChanged(r.name)
		}
		if err := r.server.settle(ctx, r.name); err != nil {
			return fmt.Errorf("the change of %s in %s is on this disk alone: %w", updates[0].Name, r.name, err)
		}
		return nil
	}
	err = gitcmd.ExplainFullDisk(err, r.dir)
	if len(updates) == 1 {
		return fmt.Errorf("cannot change %s in %s: %w", updates[0].Name, r.name, err)
	}
	return fmt.Errorf("cannot change %d refs in %s: %w", len(updates), r.name, err)
}

func (r *Repo) update(ctx context.Context, updates []RefUpdate) error {
	seen := map[string]bool{}
	for _, u := range updates {
		if err := CheckRef(u.Name); err != nil {
			return err
		}
		if seen[u.Name] {
			return fmt.Errorf("ref %s is named twice: %w", u.Name, ErrInvalid)
		}
		seen[u.Name] = true
		if u.Old != nil && *u.Old != "" {
			if err := CheckHash(*u.Old); err != nil {
				return err
			}
		}
		if u.New == "" {
			continue
		}
		if err := CheckHash(u.New); err != nil {
			return err
		}
		kind, err := r.objects.Kind(ctx, u.New)
		if err != nil {
			return fmt.Errorf("object %s: %w", u.New, err)
		}
		if kind != "commit" && strings.HasPrefix(u.Name, "refs/heads/") {
			return fmt.Errorf("object %s is a %s, a branch needs a commit: %w", u.New, kind, ErrInvalid)
		}
	}

	// Callers want to know which ref is in conflict. Git reports it only as text, so the refs are compared here.
	// Git compares again, under its locks.
	if err := r.expectOld(ctx, updates); err != nil {
		return err
	}
	return r.refs.write(ctx, updates)
}

// expectOld returns [ErrConflict] if a ref is not at its Old value.
func (r *Repo) expectOld(ctx context.Context, updates []RefUpdate) error {
	for _, u := range updates {
		if u.Old == nil {
			continue
		}
		is, err := r.readRef(ctx, u.Name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		switch {
		case is == *u.Old:
		case *u.Old == "":
			return fmt.Errorf("%s exists, at %s: %w", u.Name, is, ErrConflict)
		case is == "":
			return fmt.Errorf("%s does not exist, expected at %s: %w", u.Name, *u.Old, ErrConflict)
		default:
			return fmt.Errorf("%s is at %s, expected at %s: %w", u.Name, is, *u.Old, ErrConflict)
		}
	}
	return nil
}

// checkNameFree returns [ErrConflict] if a ref makes one of the updates impossible. Git keeps refs as files, so
// a/b and a cannot both exist.
func (r *Repo) checkNameFree(ctx context.Context, updates []RefUpdate) error {
	for _, u := range updates {
		if u.New == "" {
			continue
		}
		for dir := path.Dir(u.Name); strings.Count(dir, "/") >= 1; dir = path.Dir(dir) {
			if _, err := r.readRef(ctx, dir); err == nil {
				return fmt.Errorf("%s cannot exist below the ref %s: %w", u.Name, dir, ErrConflict)
			}
		}
		refs, err := r.listRefs(ctx, u.Name)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if ref.Name != u.Name {
				return fmt.Errorf("%s cannot be a ref while %s exists: %w", u.Name, ref.Name, ErrConflict)
			}
		}
	}
	return nil
}
