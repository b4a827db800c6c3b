package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pathspec"
)

// place is a folder of a work tree, with the files in it that say what git ignores and how
// it converts. They are read when somebody asks for them first.
type place struct {
	up    *place // nil: the root
	path  string
	name  string
	over  *overlayNode            // what the overlay has here; nil: nothing
	under map[string]object.Entry // what shows through it
	index map[string]object.Entry // what the index has here

	ignore     pathspec.Ignore
	attributes *pathspec.Attributes
	// instead are the attributes of the index, where the work tree has lost its file: git may
	// see them still, or not any more, depending on what it did before.
	instead        *pathspec.Attributes
	ignoreRead     bool
	attributesRead bool
	excluded       pathspec.Verdict // of the folder itself; pathspec.Undecided: not asked yet
}

// from is the path of something in or below p, as a folder above p (or p) sees it.
func (p *place) from(q *place, name string) string {
	path := join(p.path, name)
	if q.path == "" {
		return path
	}
	return path[len(q.path)+1:]
}

func join(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}

func splitName(path string) (folder, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// matchStepsMax bounds what all patterns of a work tree may cost: some seconds.
const matchStepsMax = 200_000_000

// settle tells whether what was matched can be relied on.
func (w *snapshotWalk) settle() error {
	switch {
	case w.matching.Ambiguous:
		return fmt.Errorf("a pattern of .gitignore or .gitattributes means different things to different releases of git: %w", ErrPortable)
	case w.matching.Steps > matchStepsMax:
		return fmt.Errorf("the patterns of .gitignore and .gitattributes cost too much: %w", ErrPortable)
	}
	return nil
}

// ignored tells whether git leaves out what it does not track yet.
func (w *snapshotWalk) ignored(p *place, name string, folder bool) (bool, error) {
	if out, err := w.excluded(p); out || err != nil {
		return out, err
	}
	said := pathspec.Undecided
	for q := p; q != nil && said == pathspec.Undecided; q = q.up {
		if err := w.readIgnore(q); err != nil {
			return false, err
		}
		w.matching.Steps++
		said = q.ignore.Match(p.from(q, name), name, folder, &w.matching)
	}
	return said == pathspec.Ignored, w.settle()
}

// excluded tells whether a whole folder is ignored: then nothing in it can be taken back.
func (w *snapshotWalk) excluded(p *place) (bool, error) {
	if p.up == nil {
		return false, nil
	}
	if p.excluded == pathspec.Undecided {
		out, err := w.ignored(p.up, p.name, true)
		if err != nil {
			return false, err
		}
		if p.excluded = pathspec.Kept; out {
			p.excluded = pathspec.Ignored
		}
	}
	return p.excluded == pathspec.Ignored, nil
}

func (w *snapshotWalk) readIgnore(p *place) error {
	if p.ignoreRead {
		return nil
	}
	data, _, err := w.ruleFile(p, ".gitignore")
	if err == nil {
		err = w.ruled(len(data))
	}
	if err != nil {
		return err
	}
	p.ignore, p.ignoreRead = pathspec.ParseIgnore(data), true
	return nil
}

func (w *snapshotWalk) readAttributes(p *place) error {
	if p.attributesRead {
		return nil
	}
	const name = ".gitattributes"
	data, there, err := w.ruleFile(p, name)
	if err != nil {
		return err
	}
	parse := func(data []byte) (*pathspec.Attributes, error) {
		if err := w.ruled(len(data)); err != nil {
			return nil, err
		}
		rules, err := pathspec.ParseAttributes(data, p.up == nil)
		if err != nil {
			return nil, fmt.Errorf("%q: %w: %w", join(p.path, name), err, ErrPortable)
		}
		return &rules, nil
	}
	if p.attributes, err = parse(data); err != nil {
		return err
	}
	if old, was := p.index[name]; was && !there && old.Kind() == "blob" {
		if data, err = w.ruleBlob(old.Hash); err != nil {
			return err
		}
		if p.instead, err = parse(data); err != nil {
			return err
		}
	}
	p.attributesRead = true
	return nil
}

// ruled counts the rules that are kept in memory, where they need much more than in a file.
func (w *snapshotWalk) ruled(size int) error {
	if w.rules += size; w.rules > pathspec.MaxFile {
		return fmt.Errorf("the .gitignore and .gitattributes files have more than %d bytes: %w", pathspec.MaxFile, ErrPortable)
	}
	return nil
}

// ruleFile reads a file of rules; there: git finds one that it can open.
func (w *snapshotWalk) ruleFile(p *place, name string) (data []byte, there bool, err error) {
	if p.over != nil {
		if n := p.over.kid(name); n != nil {
			switch n.Kind {
			case 'd':
				return nil, true, nil
			case 'f':
				return w.smallFile(n)
			}
			return nil, false, nil // git follows no link here
		}
	}
	switch e := p.under[name]; e.Mode {
	case 0, object.ModeSymlink:
		return nil, false, nil
	case object.ModeFolder, object.ModeCommit:
		return nil, true, nil
	default:
		data, err := w.ruleBlob(e.Hash)
		return data, true, err
	}
}

// smallFile reads a file of rules from the overlay.
func (w *snapshotWalk) smallFile(n *overlayNode) (data []byte, there bool, err error) {
	if n.Size > pathspec.MaxFile {
		return nil, false, fmt.Errorf("%.200q has more than %d bytes: %w", n.Path, pathspec.MaxFile, ErrPortable)
	}
	in, closer, err := w.open(n)
	if errors.Is(err, errGone) {
		return nil, false, nil
	}
	if err == nil {
		defer closer.Close()
		data, err = io.ReadAll(in)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%.200q: %w", n.Path, err)
	}
	return data, true, nil
}

func (w *snapshotWalk) ruleBlob(h Hash) ([]byte, error) {
	obj, size, err := w.repo.objects.Small(w.ctx, h)
	if errors.Is(err, ErrTooLarge) || err == nil && size > pathspec.MaxFile {
		return nil, fmt.Errorf("a .gitignore or .gitattributes has more than %d bytes: %w", pathspec.MaxFile, ErrPortable)
	}
	return obj.Data, err
}

// conversion is what git does to a file in p.
func (w *snapshotWalk) conversion(p *place, name string) (pathspec.Conversion, error) {
	var now, instead []pathspec.Source
	rules, doubt := false, false
	for q := p; q != nil; q = q.up {
		if err := w.readAttributes(q); err != nil {
			return pathspec.Conversion{}, err
		}
		a, path := q.attributes, p.from(q, name)
		now = append(now, pathspec.Source{Attributes: a, Path: path})
		if q.instead != nil {
			a, doubt = q.instead, true
		}
		instead = append(instead, pathspec.Source{Attributes: a, Path: path})
		rules = rules || !a.Empty() || !q.attributes.Empty()
	}
	if !rules {
		return pathspec.Conversion{}, nil
	}
	c := pathspec.ConversionOf(pathspec.Resolve(name, now, &w.matching))
	if doubt && pathspec.ConversionOf(pathspec.Resolve(name, instead, &w.matching)) != c {
		return c, fmt.Errorf("%.200q is converted by a .gitattributes that was deleted: %w", join(p.path, name), ErrPortable)
	}
	if c.GitOnly != "" {
		return c, fmt.Errorf("%.200q has the attribute %s: %w", join(p.path, name), c.GitOnly, ErrPortable)
	}
	return c, w.settle()
}

// underPlace is a folder of Under that something was moved out of, for its attributes.
func (w *snapshotWalk) underPlace(path string) (*place, error) {
	if p := w.places[path]; p != nil {
		return p, nil
	}
	p, tree := &place{path: path}, w.underTree
	if path != "" {
		up, name := splitName(path)
		var err error
		if p.up, err = w.underPlace(up); err != nil {
			return nil, err
		}
		p.name, tree = name, p.up.under[name].Hash
	}
	t, err := w.named(tree)
	if err != nil {
		return nil, err
	}
	p.under, w.places[path] = t.named, p
	return p, nil
}

// Verbatim tells whether a checkout of the commit writes the files with these paths byte for
// byte as they are stored: no filter, no encoding, no other line ends. What git alone can
// write is [ErrPortable].
func (r *Repo) Verbatim(ctx context.Context, commit Hash, paths []string) error {
	w, err := r.checkoutOf(ctx, commit)
	if err != nil {
		return fmt.Errorf("cannot look for attributes in %s: %w", r.name, err)
	}
	for _, path := range paths {
		if err := w.verbatim(path); err != nil {
			return fmt.Errorf("cannot write %.200q of %s as it is: %w", path, r.name, err)
		}
	}
	return nil
}

// verbatim refuses a file of Under that its checkout converts.
func (w *snapshotWalk) verbatim(path string) error {
	folder, name := splitName(path)
	p, err := w.underPlace(folder)
	if err != nil {
		return err
	}
	c, err := w.conversion(p, name)
	if err == nil && c.CRLF {
		err = fmt.Errorf("it has the attribute eol=crlf: %w", ErrPortable)
	}
	return err
}
