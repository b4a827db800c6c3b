package worktree

import (
	"errors"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pathspec"
)

// folder is a folder of a work tree with its .gitignore and .gitattributes, which are read when they are first
// needed.
type folder struct {
	parent  *folder // nil for the root
	path    string
	name    string
	upper   *upperNode              // nil if the overlay has no entry for it
	lower   map[string]object.Entry // that show through the overlay
	indexed map[string]object.Entry

	ignore     pathspec.Ignore
	attributes *pathspec.Attributes
	// indexedAttributes are set if the work tree has lost its .gitattributes. Git may or may not use those of the
	// index, depending on its earlier work.
	indexedAttributes *pathspec.Attributes
	ignoreRead        bool
	attributesRead    bool
	excluded          pathspec.Verdict // of the folder itself, pathspec.Undecided if not asked yet
}

// pathFrom returns the path of something in p relative to q, which is p or a folder above it.
func (p *folder) pathFrom(q *folder, name string) string {
	path := joinPath(p.path, name)
	if q.path == "" {
		return path
	}
	return path[len(q.path)+1:]
}

// matchStepsMax bounds the cost of all patterns of a work tree, which is some seconds.
const matchStepsMax = 200_000_000

// checkMatching returns an error if the verdicts of patterns cannot be relied on.
func (w *walk) checkMatching() error {
	switch {
	case w.matching.Ambiguous:
		return fmt.Errorf("a pattern of .gitignore or .gitattributes means different things to different releases of git: %w", ErrNeedsGit)
	case w.matching.Steps > matchStepsMax:
		return fmt.Errorf("the patterns of .gitignore and .gitattributes cost too much: %w", ErrNeedsGit)
	}
	return nil
}

// isIgnored reports whether git leaves out an entry that it does not track yet. isFolder tells its kind.
func (w *walk) isIgnored(p *folder, name string, isFolder bool) (bool, error) {
	if excluded, err := w.isExcluded(p); excluded || err != nil {
		return excluded, err
	}
	verdict := pathspec.Undecided
	for q := p; q != nil && verdict == pathspec.Undecided; q = q.parent {
		if err := w.readIgnore(q); err != nil {
			return false, err
		}
		w.matching.Steps++
		verdict = q.ignore.Match(p.pathFrom(q, name), name, isFolder, &w.matching)
	}
	return verdict == pathspec.Ignored, w.checkMatching()
}

// isExcluded reports whether a whole folder is ignored. Then no pattern can include anything in it again.
func (w *walk) isExcluded(p *folder) (bool, error) {
	if p.parent == nil {
		return false, nil
	}
	if p.excluded == pathspec.Undecided {
		ignored, err := w.isIgnored(p.parent, p.name, true)
		if err != nil {
			return false, err
		}
		if p.excluded = pathspec.Kept; ignored {
			p.excluded = pathspec.Ignored
		}
	}
	return p.excluded == pathspec.Ignored, nil
}

func (w *walk) readIgnore(p *folder) error {
	if p.ignoreRead {
		return nil
	}
	data, _, err := w.readRules(p, ".gitignore")
	if err == nil {
		err = w.chargeRules(len(data))
	}
	if err != nil {
		return err
	}
	p.ignore, p.ignoreRead = pathspec.ParseIgnore(data), true
	return nil
}

func (w *walk) readAttributes(p *folder) error {
	if p.attributesRead {
		return nil
	}
	const name = ".gitattributes"
	data, exists, err := w.readRules(p, name)
	if err != nil {
		return err
	}
	parse := func(data []byte) (*pathspec.Attributes, error) {
		if err := w.chargeRules(len(data)); err != nil {
			return nil, err
		}
		rules, err := pathspec.ParseAttributes(data, p.parent == nil)
		if err != nil {
			return nil, fmt.Errorf("%q: %w: %w", joinPath(p.path, name), err, ErrNeedsGit)
		}
		return &rules, nil
	}
	if p.attributes, err = parse(data); err != nil {
		return err
	}

	if old, was := p.indexed[name]; was && !exists && old.Kind() == "blob" {
		if data, err = w.readRulesBlob(old.Hash); err != nil {
			return err
		}
		if p.indexedAttributes, err = parse(data); err != nil {
			return err
		}
	}
	p.attributesRead = true
	return nil
}

// chargeRules counts the bytes of rules. They need much more space in memory than in a file.
func (w *walk) chargeRules(size int) error {
	if w.rules += size; w.rules > pathspec.MaxFile {
		return fmt.Errorf("the .gitignore and .gitattributes files have more than %d bytes: %w", pathspec.MaxFile,
			ErrNeedsGit)
	}
	return nil
}

// readRules reads a file of rules. exists reports whether git finds one that it can open.
func (w *walk) readRules(p *folder, name string) (data []byte, exists bool, err error) {
	if p.upper != nil {
		if n := p.upper.child(name); n != nil {
			switch n.Kind {
			case 'd':
				return nil, true, nil
			case 'f':
				return w.readUpperRules(n)
			}
			return nil, false, nil // git follows no link here
		}
	}
	switch e := p.lower[name]; e.Mode {
	case 0, object.ModeSymlink:
		return nil, false, nil
	case object.ModeFolder, object.ModeCommit:
		return nil, true, nil
	default:
		data, err := w.readRulesBlob(e.Hash)
		return data, true, err
	}
}

// readUpperRules reads a file of rules from the overlay.
func (w *walk) readUpperRules(n *upperNode) (data []byte, exists bool, err error) {
	if n.Size > pathspec.MaxFile {
		return nil, false, fmt.Errorf("%.200q has more than %d bytes: %w", n.Path, pathspec.MaxFile, ErrNeedsGit)
	}
	in, closer, err := w.openUpper(n)
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

func (w *walk) readRulesBlob(h object.Hash) ([]byte, error) {
	obj, size, err := w.repo.Objects.Small(w.ctx, h)
	if errors.Is(err, object.ErrTooLarge) || err == nil && size > pathspec.MaxFile {
		return nil, fmt.Errorf("a .gitignore or .gitattributes has more than %d bytes: %w", pathspec.MaxFile, ErrNeedsGit)
	}
	return obj.Data, err
}

// conversionOf returns the conversion that git applies to a file in p.
func (w *walk) conversionOf(p *folder, name string) (pathspec.Conversion, error) {
	var present, indexed []pathspec.Source
	rules, doubt := false, false
	for q := p; q != nil; q = q.parent {
		if err := w.readAttributes(q); err != nil {
			return pathspec.Conversion{}, err
		}
		a, path := q.attributes, p.pathFrom(q, name)
		present = append(present, pathspec.Source{Attributes: a, Path: path})
		if q.indexedAttributes != nil {
			a, doubt = q.indexedAttributes, true
		}
		indexed = append(indexed, pathspec.Source{Attributes: a, Path: path})
		rules = rules || !a.Empty() || !q.attributes.Empty()
	}
	if !rules {
		return pathspec.Conversion{}, nil
	}

	c := w.conversionBy(name, present)
	if doubt && w.conversionBy(name, indexed) != c {
		return c, fmt.Errorf("%.200q is converted by a .gitattributes that was deleted: %w", joinPath(p.path, name),
			ErrNeedsGit)
	}
	if c.GitOnly != "" {
		return c, fmt.Errorf("%.200q has the attribute %s: %w", joinPath(p.path, name), c.GitOnly, ErrNeedsGit)
	}
	return c, w.checkMatching()
}

// conversionBy returns the conversion that some .gitattributes files ask for.
func (w *walk) conversionBy(name string, sources []pathspec.Source) pathspec.Conversion {
	c := pathspec.ConversionOf(pathspec.Resolve(name, sources, &w.matching))
	c.Large = c.Large && w.repo.Large != nil
	return c
}

// lowerFolder returns a lower folder from which something was moved, for its attributes.
func (w *walk) lowerFolder(path string) (*folder, error) {
	if p := w.lowerFolders[path]; p != nil {
		return p, nil
	}
	p, tree := &folder{path: path}, w.lowerTree
	if path != "" {
		up, name := splitName(path)
		var err error
		if p.parent, err = w.lowerFolder(up); err != nil {
			return nil, err
		}
		p.name, tree = name, p.parent.lower[name].Hash
	}
	t, err := w.namedEntries(tree)
	if err != nil {
		return nil, err
	}
	p.lower, w.lowerFolders[path] = t.named, p
	return p, nil
}
