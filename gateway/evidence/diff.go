package evidence

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
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
func (api *API) showDiff(c *route.Call, p *runPage, r record.Run, m *record.Manifest) error {
	if len(m.Changed) == 0 {
		return nil
	}
	in, err := api.Executor.Artifact(c.R.Context(), r.Name(), "evidence/changes.diff")
	var parts map[string][]diffText
	var whole bool
	switch {
	case err == nil:
		parts, whole, err = readDiff(in)
		if err := errors.Join(err, in.Close()); err != nil {
			return err
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
		f := &diffFile{Status: change.Status, Path: render.ClipClean(change.Path, 500), Lines: parts[diffHead(change)]}
		if change.OldPath != "" {
			f.Path = render.ClipClean(change.OldPath, 500) + " → " + f.Path
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
	Name  string // both paths, as git names them
	Lines []diffText
}

// ReadDiff returns the parts of a diff of git in the order of their names. It stops at the limits of a page. whole reports whether it
// reached the end of the diff.
func ReadDiff(r io.Reader) (list []DiffPart, whole bool, err error) {
	parts, whole, err := readDiff(r)
	for _, head := range slices.Sorted(maps.Keys(parts)) {
		list = append(list, DiffPart{render.ClipClean(strings.TrimPrefix(head, "diff --git "), 500), parts[head]})
	}
	return list, whole, err
}

// diffHead returns the line with which git begins the diff of a file.
func diffHead(c gitd.Change) string {
	old := c.OldPath
	if old == "" {
		old = c.Path
	}
	return "diff --git " + quotePath("a/"+old) + " " + quotePath("b/"+c.Path)
}

// quotePath returns a path as git writes it with core.quotePath unset. A path with unusual bytes is quoted.
func quotePath(name string) string {
	var b strings.Builder
	quoted := false
	for i := range len(name) {
		switch ch := name[i]; {
		case ch == '"' || ch == '\\':
			b.WriteByte('\\')
			b.WriteByte(ch)
			quoted = true
		case ch >= 0x20 && ch < 0x7f:
			b.WriteByte(ch)
		default:
			quoted = true
			if at := strings.IndexByte("\a\b\t\n\v\f\r", ch); at >= 0 {
				b.WriteByte('\\')
				b.WriteByte("abtnvfr"[at])
			} else {
				fmt.Fprintf(&b, "\\%03o", ch)
			}
		}
	}
	if quoted {
		return `"` + b.String() + `"`
	}
	return b.String()
}

// readDiff splits a diff into the parts of its files. The keys of parts are the first lines of the parts. readDiff
// stops at the limits. whole reports whether it reached the end of the diff.
func readDiff(r io.Reader) (parts map[string][]diffText, whole bool, err error) {
	parts = make(map[string][]diffText)
	in := bufio.NewReaderSize(io.LimitReader(r, diffBytes), 64<<10)
	var head string
	inHunk, binary := false, false
	count, read := 0, 0
	for count < diffLines {
		line, err := diffReadLine(in)
		read += line.size
		if errors.Is(err, io.EOF) {
			return parts, read < diffBytes, nil
		}
		if err != nil {
			return nil, false, err
		}
		text := line.text
		switch {
		case strings.HasPrefix(text, "diff --git "):
			head, inHunk, binary = text, false, false
			parts[head] = nil
			continue
		case head == "" || binary:
			continue
		case !inHunk && text == "GIT binary patch":
			binary = true
			continue
		case strings.HasPrefix(text, "@@"):
			inHunk = true
		case !inHunk && (strings.HasPrefix(text, "index ") || strings.HasPrefix(text, "--- ") ||
			strings.HasPrefix(text, "+++ ")):
			continue // the row of the file shows it already
		}
		parts[head] = append(parts[head], diffText{diffClass(text, inHunk), render.ClipClean(text, diffLine)})
		count++
	}
	return parts, false, nil
}

func diffClass(text string, inHunk bool) string {
	switch {
	case !inHunk:
		return "meta"
	case strings.HasPrefix(text, "@@"):
		return "hunk"
	case strings.HasPrefix(text, "+"):
		return "add"
	case strings.HasPrefix(text, "-"):
		return "del"
	case strings.HasPrefix(text, `\`):
		return "meta"
	}
	return "same"
}

type readLine struct {
	text string // the beginning of the line, without the newline
	size int
}

// diffReadLine reads a line of any length and returns its beginning and its size.
func diffReadLine(in *bufio.Reader) (readLine, error) {
	var l readLine
	for {
		part, err := in.ReadSlice('\n')
		l.size += len(part)
		if room := 2*diffLine - len(l.text); room > 0 {
			l.text += string(part[:min(room, len(part))])
		}
		switch {
		case err == nil:
			l.text = strings.TrimSuffix(l.text, "\n")
			return l, nil
		case errors.Is(err, io.EOF) && l.size > 0:
			return l, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return l, err
		}
	}
}
