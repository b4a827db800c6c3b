package web

import (
	"context"
	"fmt"
	"html/template"
	"maps"
	gopath "path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of the lines of a page of changes.
const (
	maxColoured    = 256 << 10 // bytes of one side of a file
	maxAllColoured = 1 << 20   // bytes of all files
	colouredWithin = 250 * time.Millisecond
	maxKnown       = 50_000 // lines of the files whose colours are kept
)

// lineMaker makes HTML of the lines of files. It belongs to one page.
type lineMaker struct {
	ctx    context.Context
	repo   *gitd.Repo
	split  bool
	out    strings.Builder
	pieces int // elements that the page has left for colours and words
	known  *colours
	bytes  int           // of coloured files
	spent  time.Duration // on colours
	// link begins the link of the number of each line, if people can comment there. after has HTML by the names of the lines that it
	// follows. Each is written once.
	link  string
	after map[string][]string
	rows  []*threadRow
}

// side are the pieces of the lines of a file on one side, by their numbers from 0. Nil means that it has no colours.
type side [][]markup.Piece

// line returns the pieces of a line, if they are those of its text.
func (s side) line(n int, text string) []markup.Piece {
	if n < 1 || n > len(s) {
		return []markup.Piece{{Text: text}}
	}
	rest := text
	for _, p := range s[n-1] {
		after, ok := strings.CutPrefix(rest, p.Text)
		if !ok {
			return []markup.Piece{{Text: text}}
		}
		rest = after
	}
	if rest != "" {
		return []markup.Piece{{Text: text}}
	}
	return s[n-1]
}

// colours returns a side of a file with its colours.
func (m *lineMaker) colours(blob gitd.Hash, mode, path string) side {
	if blob == "" || mode != "100644" && mode != "100755" || m.pieces <= 0 || m.spent > colouredWithin || m.bytes > maxAllColoured {
		return nil
	}
	key := string(blob) + " " + gopath.Base(path)
	if s, ok := m.known.get(key); ok {
		return s
	}
	began := time.Now()
	defer func() { m.spent += time.Since(began) }()
	content, err := m.repo.Blob(m.ctx, blob, maxColoured)
	if err != nil {
		return nil // too large, or gone
	}
	m.bytes += len(content)
	s := side(markup.CodeLines(strings.ReplaceAll(string(content), "\r\n", "\n"), path))
	m.known.put(key, s)
	return s
}

// colours keeps the colours of files, by their blobs and names. The zero value is empty.
type colours struct {
	mu    sync.Mutex // guards the rest
	by    map[string]side
	lines int // of all sides
}

func (c *colours) get(key string) (side, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.by[key]
	return s, ok
}

// put keeps a side. It forgets all others if there is no room.
func (c *colours) put(key string, s side) {
	if s == nil {
		return // it may have taken too long this time alone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil || c.lines+len(s) > maxKnown {
		c.by, c.lines = map[string]side{}, 0
	}
	if _, ok := c.by[key]; !ok {
		c.by[key], c.lines = s, c.lines+len(s)+1
	}
}

// file returns the lines of a file.
func (m *lineMaker) file(f *changes.File, v changesView) template.HTML {
	if len(f.Hunks) == 0 {
		return ""
	}
	var old, fresh side
	if !f.Submodule() {
		old, fresh = m.colours(f.OldBlob, f.OldMode, orPath(f)), m.colours(f.Blob, f.Mode, f.Change.Path)
	}
	m.out.Reset()
	class, large := "patch chroma", 0
	if m.split {
		class += " split"
	}
	for _, h := range f.Hunks {
		large = max(large, h.Old+len(h.Lines), h.New+len(h.Lines))
	}
	if large > 9999 {
		class += " far"
	}
	m.out.WriteString(`<div class="` + class + `">`)
	before := 0
	if v.Line > 0 {
		before = -1
	}
	for _, h := range f.Hunks {
		m.hunk(f, h, before, v)
		if last := h.Lines[len(h.Lines)-1]; true {
			before = max(last.New, before)
			for i := len(h.Lines) - 1; before == 0 && i >= 0; i-- {
				before = h.Lines[i].New
			}
		}
		if m.split {
			for _, p := range diff.Pairs(h.Lines) {
				m.pair(f.ID, p, old, fresh)
			}
			continue
		}
		m.lines(f.ID, h.Lines, old, fresh)
	}
	if left := len(fresh) - before; f.Next == 0 && before > 0 && left > 0 {
		m.out.WriteString(`<p class="hunk">`)
		m.more(f, left, v)
		m.out.WriteString("</p>")
	}
	m.out.WriteString("</div>")
	return template.HTML(m.out.String())
}

// more writes the link to the file with more equal lines.
func (m *lineMaker) more(f *changes.File, left int, v changesView) {
	for _, n := range contexts {
		if n > max(v.Context, 3) {
			fmt.Fprintf(&m.out, `<a data-open href="%s">Show more of %s</a> `,
				template.HTMLEscapeString(v.prefix+v.file(f.Change.Path, 0, n)), render.Plural(left, "line"))
			return
		}
	}
}

// hunk writes the line between two hunks. before is the number of the last new line before it, and -1 if that is unknown.
func (m *lineMaker) hunk(f *changes.File, h diff.Hunk, before int, v changesView) {
	left := h.New - 1 - before
	if before < 0 {
		left = 0
	}
	if left <= 0 && before == 0 && h.Section() == "" {
		return // the beginning of the file
	}
	m.out.WriteString(`<p class="hunk">`)
	if left > 0 {
		m.more(f, left, v)
	}
	m.out.WriteString(template.HTMLEscapeString(shown(h.Section())) + "</p>")
}

// shown returns the text of a line as people see it.
func shown(s string) string { return markup.Visible(strings.TrimSuffix(s, "\r")) }

// lines writes lines below each other.
func (m *lineMaker) lines(id string, lines []diff.Line, old, fresh side) {
	marks := map[*diff.Line][]diff.Span{}
	for _, p := range diff.Pairs(lines) {
		if p.Old != nil && p.New != nil && p.Old != p.New {
			marks[p.Old], marks[p.New] = diff.Words(shown(p.Old.Text), shown(p.New.Text))
		}
	}
	for i := range lines {
		l := &lines[i]
		if l.Sign == diff.Deleted {
			m.line(id, l, true, old, marks[l])
		} else {
			m.line(id, l, false, fresh, marks[l])
		}
	}
}

// pair writes lines next to each other.
func (m *lineMaker) pair(id string, p diff.Pair, old, fresh side) {
	var a, b []diff.Span
	if p.Old != nil && p.New != nil && p.Old != p.New {
		a, b = diff.Words(shown(p.Old.Text), shown(p.New.Text))
	}
	m.out.WriteString(`<div class="r">`)
	if p.Old != nil {
		m.line(id, p.Old, true, old, a)
	} else {
		m.out.WriteString(`<span class="l none"></span>`)
	}
	if p.New != nil {
		m.line(id, p.New, false, fresh, b)
	} else {
		m.out.WriteString(`<span class="l none"></span>`)
	}
	m.out.WriteString("</div>")
	if p.Old != nil {
		m.remarks(id + "-L" + strconv.Itoa(p.Old.Old))
	}
	if p.New != nil {
		m.remarks(id + "-R" + strconv.Itoa(p.New.New))
	}
}

// line writes a line of one side.
func (m *lineMaker) line(id string, l *diff.Line, left bool, s side, marks []diff.Span) {
	class, n, at := "l", l.New, id+"-R"
	if left {
		n, at = l.Old, id+"-L"
	}
	switch l.Sign {
	case diff.Added:
		class += " add"
	case diff.Deleted:
		class += " del"
	}
	number := strconv.Itoa(n)
	at += number
	m.out.WriteString(`<span class="` + class + `" id="` + at + `"><a href="`)
	if m.link != "" {
		m.out.WriteString(m.link + at)
	}
	m.out.WriteString("#" + at + `"`)
	if !m.split && l.Sign == diff.Same {
		m.out.WriteString(` data-o="` + strconv.Itoa(l.Old) + `"`)
	}
	m.out.WriteString(">" + number + "</a>")
	text := shown(l.Text)
	m.text(s.line(n, text), marks)
	switch {
	case l.Cut:
		m.out.WriteString("…")
	case l.Sign != diff.Same && strings.HasSuffix(l.Text, "\r"):
		m.out.WriteString("<i>␍</i>")
	}
	if l.Open {
		m.out.WriteString("<i> no newline at the end</i>")
	}
	m.out.WriteString("</span>")
	if !m.split {
		m.remarks(at)
	}
}

// remarks writes the comments on a line.
func (m *lineMaker) remarks(at string) {
	for _, html := range m.after[at] {
		m.out.WriteString(html)
	}
	delete(m.after, at)
}

// left returns the threads whose lines were not written.
func (m *lineMaker) left() (list []*threadRow) {
	for _, html := range slices.Concat(slices.Collect(maps.Values(m.after))...) {
		for _, r := range m.rows {
			if strings.Contains(html, `id="t-`+r.ID+`"`) {
				list = append(list, r)
			}
		}
	}
	return list
}

// text writes pieces with their colours, and marks the parts that differ.
func (m *lineMaker) text(pieces []markup.Piece, marks []diff.Span) {
	at, open := 0, false
	for _, p := range pieces {
		for text := p.Text; text != ""; {
			for len(marks) > 0 && marks[0].To <= at {
				marks = marks[1:]
			}
			part, marked := text, false
			if len(marks) > 0 {
				if marked = at >= marks[0].From; marked {
					part = text[:min(len(text), marks[0].To-at)]
				} else {
					part = text[:min(len(text), marks[0].From-at)]
				}
			}
			if marked != open {
				switch {
				case open:
					m.out.WriteString("</mark>")
					open = false
				case m.pieces > 0:
					m.out.WriteString("<mark>")
					m.pieces--
					open = true
				}
			}
			escaped := template.HTMLEscapeString(part)
			if p.Class != "" && m.pieces > 0 {
				m.out.WriteString(`<span class="` + p.Class + `">` + escaped + "</span>")
				m.pieces--
			} else {
				m.out.WriteString(escaped)
			}
			at, text = at+len(part), text[len(part):]
		}
	}
	if open {
		m.out.WriteString("</mark>")
	}
}
