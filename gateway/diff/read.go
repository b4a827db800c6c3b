package diff

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

// maxHead bounds the lines before hunks, in bytes. Two paths of 4 KiB with escapes have fewer.
const maxHead = 64 << 10

// Limits bound a reading. Zero means the limit of [Read].
type Limits struct {
	Bytes int // of the input; 2 MiB
	Lines int // of all hunks that are kept; 5000
	File  int // lines of one file that are kept; Lines
	Line  int // bytes of one line; 4000
	Files int // 10,000
	// From is the number of lines of each file that are left out at its beginning. A file that changed its type has two
	// differences, one after the other, which count as one.
	From int
}

func (l *Limits) setDefaults() {
	for _, x := range []struct {
		value *int
		most  int
	}{{&l.Bytes, 2 << 20}, {&l.Lines, 5000}, {&l.Line, 4000}, {&l.Files, 10_000}} {
		if *x.value <= 0 {
			*x.value = x.most
		}
	}
	if l.File <= 0 {
		l.File = l.Lines
	}
}

// Read reads a difference that git wrote, or another program in the same form. The line that begins with diff may be missing before the only file. whole reports whether it reached the end before a limit of bytes, lines or files. The file at
// such a limit is cut. Returns the error of r.
func Read(r io.Reader, l Limits) (list []*File, whole bool, err error) {
	l.setDefaults()
	p := parser{in: bufio.NewReaderSize(io.LimitReader(r, int64(l.Bytes)), 64<<10), limits: l}
	for !p.full {
		text, cut, err := p.readLine()
		if errors.Is(err, io.EOF) {
			if whole = p.read < l.Bytes; !whole {
				p.cut()
			}
			return p.list, whole, nil
		}
		if err != nil {
			return nil, false, err
		}
		p.add(text, cut)
	}
	p.cut()
	return p.list, false, nil
}

// parser is the state of a reading.
type parser struct {
	in     *bufio.Reader
	limits Limits
	list   []*File
	file   *File // the last one of list, or nil
	hunk   *Hunk // the last one of file if one of its lines is kept, or nil
	last   *Line // the last line that was kept, or nil
	before int   // lines of the difference before, if it is of the same file
	read   int   // bytes
	kept   int   // lines of all files
	of     int   // lines of the file that were kept
	full   bool

	// oldAt and newAt are the numbers of the next lines of the hunk, and oldLeft and newLeft how many follow.
	oldAt, newAt, oldLeft, newLeft int
	head                           string
	body                           bool // the head of the file is over
}

// cut marks the last file as cut.
func (p *parser) cut() {
	if p.file != nil {
		p.file.Cut = true
	}
}

// readLine reads a line of any length. cut reports whether text is its beginning only.
func (p *parser) readLine() (text string, cut bool, err error) {
	size, most := 0, p.limits.Line+1 // the sign comes first
	if p.oldLeft+p.newLeft == 0 {
		most = maxHead
	}
	var b strings.Builder
	for {
		part, err := p.in.ReadSlice('\n')
		p.read += len(part)
		size += len(part)
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		room := most - b.Len()
		cut = cut || len(part) > room
		b.Write(part[:min(max(room, 0), len(part))])
		switch {
		case ended, errors.Is(err, io.EOF) && size > 0:
			return b.String(), cut || !ended && p.read >= p.limits.Bytes, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", false, err
		}
	}
}

// add takes the next line.
func (p *parser) add(text string, cut bool) {
	switch {
	case p.oldLeft+p.newLeft > 0 && p.addLine(text, cut):
	case strings.HasPrefix(text, "diff "):
		if p.beginFile(); p.full {
			return
		}
		if paths, ok := strings.CutPrefix(text, "diff --git "); ok {
			p.file.Old, p.file.New = headPaths(paths)
			p.continueFile()
		}
	case p.file == nil && !strings.HasPrefix(text, "--- ") && !strings.HasPrefix(text, "@@ "):
	case p.file == nil: // a difference of one file, without a line that names both
		p.beginFile()
		p.add(text, cut)
	case strings.HasPrefix(text, "@@ "):
		p.body = true
		p.beginHunk(text)
	case strings.HasPrefix(text, `\`):
		if p.last != nil {
			p.last.Open = true
		}
	case !p.body:
		p.addHead(text)
	}
}

// beginFile begins another file.
func (p *parser) beginFile() {
	if p.full = len(p.list) == p.limits.Files; p.full {
		p.file = nil
		return
	}
	p.file, p.hunk, p.last, p.of, p.body = new(File), nil, nil, 0, false
	p.list = append(p.list, p.file)
	p.oldLeft, p.newLeft, p.before = 0, 0, 0
}

// continueFile finds out whether the difference is the second one of a file, which became a link for example.
func (p *parser) continueFile() {
	if len(p.list) < 2 {
		return
	}
	if last := p.list[len(p.list)-2]; last.New != "" && last.Old == p.file.Old && last.New == p.file.New {
		p.before = last.Lines
		for _, h := range last.Hunks {
			p.of += len(h.Lines)
		}
	}
}

// addHead takes a line between the first one of a file and its hunks.
func (p *parser) addHead(text string) {
	f := p.file
	word, rest, _ := strings.Cut(text, " ")
	switch {
	case text == "GIT binary patch", strings.HasPrefix(text, "Binary files "):
		f.Binary, p.body = true, true
	case word == "---" || word == "+++":
		path := &f.Old
		if word == "+++" {
			path = &f.New
		}
		if name, ok := sidePath(rest); ok {
			*path = name
		}
	case word == "index" || text == "":
	default:
		if len(f.Notes) < 16 {
			f.Notes = append(f.Notes, text)
		}
		for prefix, path := range map[string]*string{"rename from ": &f.Old, "rename to ": &f.New, "copy from ": &f.Old, "copy to ": &f.New} {
			if name, ok := strings.CutPrefix(text, prefix); ok {
				*path = unquote(name)
			}
		}
	}
}

// beginHunk takes the head of a hunk. One that cannot be read is left out with its lines.
func (p *parser) beginHunk(text string) {
	p.hunk, p.last, p.oldLeft, p.newLeft = nil, nil, 0, 0
	ranges, _, ok := strings.Cut(strings.TrimPrefix(text, "@@ "), " @@")
	old, fresh, both := strings.Cut(ranges, " ")
	if !ok || !both {
		return
	}
	var good [2]bool
	p.oldAt, p.oldLeft, good[0] = parseRange(old, "-")
	p.newAt, p.newLeft, good[1] = parseRange(fresh, "+")
	if !good[0] || !good[1] {
		p.oldLeft, p.newLeft = 0, 0
		return
	}
	p.head = text
}

// parseRange parses a range of lines such as "-3,2". The number of lines is 1 if it is missing.
func parseRange(s, sign string) (at, lines int, ok bool) {
	s, ok = strings.CutPrefix(s, sign)
	first, count, counted := strings.Cut(s, ",")
	at, err := strconv.Atoi(first)
	lines = 1
	if err == nil && counted {
		lines, err = strconv.Atoi(count)
	}
	const most = 1 << 30
	return at, lines, ok && err == nil && (at > 0 || at == 0 && lines == 0) && lines >= 0 && at < most && lines < most
}

// addLine takes a line of a hunk. Returns false if the hunk has ended too early.
func (p *parser) addLine(text string, cut bool) bool {
	if strings.HasPrefix(text, `\`) {
		if p.last != nil {
			p.last.Open = true
		}
		return true
	}
	l := Line{Sign: Same, Cut: cut}
	if text != "" { // an empty line is an equal one whose only space was lost
		l.Sign, l.Text = text[:1], text[1:]
	}
	old, fresh := l.Sign != Added, l.Sign != Deleted
	if l.Sign != Same && l.Sign != Added && l.Sign != Deleted || old && p.oldLeft == 0 || fresh && p.newLeft == 0 {
		p.oldLeft, p.newLeft = 0, 0
		return false
	}
	atOld, atNew := p.oldAt, p.newAt
	if old {
		l.Old = p.oldAt
		p.oldAt, p.oldLeft = p.oldAt+1, p.oldLeft-1
	}
	if fresh {
		l.New = p.newAt
		p.newAt, p.newLeft = p.newAt+1, p.newLeft-1
	}
	p.file.Lines++
	switch {
	case p.before+p.file.Lines <= p.limits.From:
		p.last = nil
		return true
	case p.of == p.limits.File:
		p.file.Cut, p.last = true, nil
		return true
	case p.kept == p.limits.Lines:
		p.full = true
		return true
	}
	if p.hunk == nil {
		p.file.Hunks = append(p.file.Hunks, Hunk{Old: atOld, New: atNew, Head: p.head})
		p.hunk = &p.file.Hunks[len(p.file.Hunks)-1]
	}
	p.hunk.Lines = append(p.hunk.Lines, l)
	p.last = &p.hunk.Lines[len(p.hunk.Lines)-1]
	p.of, p.kept = p.of+1, p.kept+1
	return true
}
