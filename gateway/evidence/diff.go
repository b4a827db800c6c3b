package evidence

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Limits of a diff on a page: its bytes, its lines, and the bytes of one line.
const (
	diffBytes = 2 << 20
	diffLines = 5000
	diffLine  = 2000
)

// diffFile is one changed file.
type diffFile struct {
	Status, Path, Added, Deleted, Note string
	Open                               bool
	Lines                              []diffText
}

// diffText is one line of a diff.
type diffText struct{ Class, Text string }

// showDiff fills in the changed files. Each has its part of the diff, unless the diff is over the limits.
func (api *API) showDiff(c *route.Call, p *RunPage, r record.Run, m *record.Manifest) error {
	if len(m.Changed) == 0 {
		return nil
	}
	in, err := api.Executor.Artifact(c.R.Context(), r.Name(), "evidence/changes.diff")
	parts := map[[2]string]*diff.File{} // by the paths
	var whole bool
	switch {
	case err == nil:
		var list []*diff.File
		list, whole, err = readParts(in)
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
		for _, f := range list {
			parts[[2]string{f.Old, f.New}] = f
		}
	case !errors.Is(err, record.ErrNotFound):
		return err
	}
	var added, deleted, lines int
	for _, change := range m.Changed {
		added, deleted = added+max(change.Added, 0), deleted+max(change.Deleted, 0)
		if len(p.Files) >= pageFilesMax {
			continue
		}
		f := &diffFile{Status: change.Status, Path: render.ClipClean(arrow(change.OldPath, change.Path), 1000)}
		if part := parts[[2]string{cmp.Or(change.OldPath, change.Path), change.Path}]; part != nil {
			f.Lines = diffRows(part)
		}
		switch {
		case change.Added < 0:
			f.Note, f.Lines = "binary", nil
		default:
			f.Added, f.Deleted = fmt.Sprintf("+%d", change.Added), fmt.Sprintf("−%d", change.Deleted)
			if len(f.Lines) == 0 && !whole {
				f.Note = "not shown"
			}
		}
		lines += len(f.Lines)
		f.Open = lines <= 200
		p.Files = append(p.Files, f)
	}
	p.FilesNote = fmt.Sprintf("%d, %d lines added, %d deleted", len(m.Changed), added, deleted)
	if len(m.Changed) > len(p.Files) {
		p.FilesNote += fmt.Sprintf("; the first %d are listed", len(p.Files))
	}
	if !whole {
		p.FilesNote += "; the diff is longer than a page can be, see the link below"
	}
	return nil
}

// DiffPart is the diff of one file, for a page. Its texts are clean.
type DiffPart struct {
	Name  string // both paths if they differ
	Lines []diffText
}

// ReadDiff returns the parts of a diff of git. It stops at the limits of a page. whole reports whether it reached the end of the diff.
func ReadDiff(r io.Reader) (list []DiffPart, whole bool, err error) {
	parts, whole, err := readParts(r)
	for _, f := range parts {
		list = append(list, DiffPart{render.ClipClean(arrow(f.Old, f.New), 1000), diffRows(f)})
	}
	return list, whole, err
}

// arrow returns both paths of a file, or one if they are the same.
func arrow(old, fresh string) string {
	if old == "" || old == fresh {
		return fresh
	}
	return old + " → " + fresh
}

// diffRows returns the difference of a file as rows of a page. The row of the file shows its name and blobs already.
func diffRows(f *diff.File) (list []diffText) {
	for _, note := range f.Notes {
		list = append(list, diffText{"meta", render.ClipClean(note, diffLine)})
	}
	for _, h := range f.Hunks {
		list = append(list, diffText{"hunk", render.ClipClean(h.Head, diffLine)})
		for _, l := range h.Lines {
			class := "same"
			switch l.Sign {
			case diff.Added:
				class = "add"
			case diff.Deleted:
				class = "del"
			}
			text := render.ClipClean(l.Text, diffLine)
			if l.Cut && len(l.Text) <= diffLine {
				text += "…"
			}
			list = append(list, diffText{class, l.Sign + text})
			if l.Open {
				list = append(list, diffText{"meta", `\ No newline at end of file`})
			}
		}
	}
	return list
}

// readParts reads a diff up to the limits of a page.
func readParts(r io.Reader) ([]*diff.File, bool, error) {
	return diff.Read(r, diff.Limits{Bytes: diffBytes, Lines: diffLines, Line: diffLine})
}
