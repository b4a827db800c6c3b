package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
)

// Limits of the indexes of outputs.
const (
	indexedLines = 1000 // lines between two places that an index knows
	maxIndexes   = 64
	maxGroups    = 2000 // of one output
	maxGroupName = 300  // bytes
)

// outputIndexes remember where the lines of outputs begin. Outputs only grow, so that an index goes on where it ended. The zero value is ready for
// use. It is safe for concurrent use.
type outputIndexes struct {
	mu   sync.Mutex // guards all below
	by   map[string]*outputIndex
	used []string // the keys, the last used last
}

// outputIndex knows the places of the lines of one output.
type outputIndex struct {
	mu      sync.Mutex // guards all below
	offsets []int64    // of the lines 1, 1001, 2001 …
	lines   int64      // that have ended
	size    int64      // bytes of these lines
	rest    bool       // there is a line that has not ended
	groups  []outputGroup
}

// outputGroup has the lines between a mark that begins it and one that ends it. Its name is as it was printed.
type outputGroup struct {
	Name string
	// First is the line of the mark, and Last the last line. Last is 0 while the group is open.
	First, Last int64
}

// of returns the index of an output, which may be empty.
func (x *outputIndexes) of(key string) *outputIndex {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.Index(x.used, key); i >= 0 {
		x.used = slices.Delete(x.used, i, i+1)
	} else if len(x.used) == maxIndexes {
		delete(x.by, x.used[0])
		x.used = slices.Delete(x.used, 0, 1)
	}
	x.used = append(x.used, key)
	if x.by == nil {
		x.by = map[string]*outputIndex{}
	}
	if x.by[key] == nil {
		x.by[key] = &outputIndex{}
	}
	return x.by[key]
}

// read goes on to the end of an output. It returns the number of its lines.
func (x *outputIndex) read(out io.ReadSeeker) (lines int64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	end, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if end < x.size { // it is another output
		x.offsets, x.lines, x.size, x.rest, x.groups = nil, 0, 0, false, nil
	}
	if end > x.size {
		if _, err := out.Seek(x.size, io.SeekStart); err != nil {
			return 0, err
		}
		if err := x.add(bufio.NewReaderSize(out, 256<<10)); err != nil {
			return 0, err
		}
	}
	if x.rest {
		return x.lines + 1, nil
	}
	return x.lines, nil
}

// add reads further lines.
func (x *outputIndex) add(in *bufio.Reader) error {
	at := x.size
	for begins := true; ; {
		part, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return err
		}
		if begins && len(part) > 0 {
			if x.lines%indexedLines == 0 && int64(len(x.offsets)) == x.lines/indexedLines {
				x.offsets = append(x.offsets, at)
			}
		}
		at += int64(len(part))
		switch {
		case err == nil:
			x.lines++
			x.size = at
			if begins {
				x.mark(part)
			}
			begins = true
		case errors.Is(err, io.EOF):
			x.rest = at > x.size
			return nil
		default:
			begins = false
		}
	}
}

// The marks of groups, as GitHub Actions and Azure Pipelines have them.
var (
	groupMarks = [][]byte{[]byte("::group::"), []byte("##[group]")}
	endMarks   = [][]byte{[]byte("::endgroup::"), []byte("##[endgroup]")}
)

// groupName returns the name in a line that begins a group.
func groupName(line []byte) (name []byte, ok bool) {
	if len(line) == 0 || line[0] != ':' && line[0] != '#' {
		return nil, false
	}
	for _, m := range groupMarks {
		if name, ok := bytes.CutPrefix(line, m); ok {
			return bytes.TrimSpace(name), true
		}
	}
	return nil, false
}

// endsGroup reports whether a line ends a group.
func endsGroup(line []byte) bool {
	return slices.ContainsFunc(endMarks, func(m []byte) bool { return bytes.HasPrefix(line, m) })
}

// mark takes the last line, which may begin or end a group. A group that begins ends the one before, because groups have no groups in them.
func (x *outputIndex) mark(line []byte) {
	if line[0] != ':' && line[0] != '#' {
		return
	}
	name, begins := groupName(line)
	if !begins && !endsGroup(line) {
		return
	}
	if n := len(x.groups); n > 0 && x.groups[n-1].Last == 0 {
		if x.groups[n-1].Last = x.lines; begins {
			x.groups[n-1].Last = x.lines - 1
		}
	}
	if begins && len(x.groups) < maxGroups {
		x.groups = append(x.groups, outputGroup{Name: string(name[:min(len(name), maxGroupName)]), First: x.lines})
	}
}

// group returns the group of a line, and nil if it is in none.
func (x *outputIndex) group(line int64) *outputGroup {
	i, found := slices.BinarySearchFunc(x.groups, line, func(g outputGroup, line int64) int { return int(g.First - line) })
	if !found {
		i--
	}
	if i < 0 || x.groups[i].Last != 0 && x.groups[i].Last < line {
		return nil
	}
	g := x.groups[i]
	return &g
}

// outputPart has lines of an output.
type outputPart struct {
	first  int64 // the number of the first line
	lines  []string
	groups map[int64]*outputGroup // of the lines that are in one, by their numbers
	total  int64
	all    []outputGroup
}

// readPart returns the lines from one number to another, both with their ends cut off. Lines that do not exist are left out.
func (x *outputIndex) readPart(out io.ReadSeeker, from, to int64) (p outputPart, err error) {
	if p.total, err = x.read(out); err != nil {
		return p, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p.all = slices.Clone(x.groups)
	to = min(to, p.total)
	if p.first = from; from > to {
		return p, nil
	}
	near := (from - 1) / indexedLines
	if _, err := out.Seek(x.offsets[near], io.SeekStart); err != nil {
		return p, err
	}
	in, number := bufio.NewReaderSize(out, 64<<10), near*indexedLines+1
	p.groups = map[int64]*outputGroup{}
	var line []byte
	for number <= to {
		part, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return p, err
		}
		if room := maxShownLine - len(line); room > 0 && number >= from {
			line = append(line, part[:min(room, len(part))]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if number >= from {
			p.lines = append(p.lines, strings.TrimRight(string(line), "\r\n"))
			if g := x.group(number); g != nil {
				p.groups[number] = g
			}
			line = line[:0]
		}
		number++
		if err != nil {
			break
		}
	}
	return p, nil
}

// Limits of the search in one output.
const (
	maxFound     = 100
	maxFoundLine = 400 // bytes that are shown
)

// foundIn is a line with the words of a search.
type foundIn struct {
	Number int64
	Path   string
	Text   []piece
}

// findIn calls see with the lines that have a text after a line, without regard to the case of ASCII letters, until see returns false or ctx
// ends. Of a very long line only the begin counts.
func findIn(ctx context.Context, out io.Reader, words string, after int64, see func(number int64, line []byte) bool) error {
	in, want := bufio.NewReaderSize(out, 256<<10), lowerASCII(nil, []byte(words))
	var lower []byte
	number := int64(0)
	for begins := true; ; {
		part, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return err
		}
		if begins && len(part) > 0 {
			if number%indexedLines == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if number++; number > after {
				lower = lowerASCII(lower[:0], part)
				if bytes.Contains(lower, want) && !see(number, part) {
					return nil
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		begins = err == nil
	}
}

// lowerASCII appends a text with its ASCII letters in lower case.
func lowerASCII(to, text []byte) []byte {
	from := len(to)
	to = append(to, text...)
	for i, c := range to[from:] {
		if 'A' <= c && c <= 'Z' {
			to[from+i] = c + 'a' - 'A'
		}
	}
	return to
}
