package gitd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of [Repo.Collisions].
const (
	collideAtOnce  = 256 // pairs of one child of git
	collideBytes   = 64 << 20
	collideCPU     = 2 * time.Minute
	collidePaths   = 200 // of files whose lines are looked for at once
	collideRegions = 20  // of one file
	// collideNames is the number of bytes of the paths that are kept of one merge. git bounds no path in a tree. Paths of
	// ordinary repositories have less than 100 bytes.
	collideNames = 32 << 10
)

// Collision is the result of a merge of two commits that was computed and not kept.
type Collision struct {
	Ours   Hash `json:"ours"`
	Theirs Hash `json:"theirs"`
	// Files are the first files in conflict, sorted by path. Empty means that the commits merge cleanly.
	Files []CollidingFile `json:"files,omitempty"`
	// More is the number of further files in conflict.
	More int `json:"more,omitempty"`
}

// CollidingFile is a file in conflict.
type CollidingFile struct {
	// Path is cut after [object.MaxPath] bytes, and not within a rune.
	Path string `json:"path"`
	cut  bool   // Path is cut
	// Kind is git's name of the conflict, such as "contents", "modify/delete", "binary" or "rename/rename". It is empty
	// if git names none.
	Kind string `json:"kind,omitempty"`
	// Regions are the places of a conflict of contents, in the order of the file. There are at most 20.
	Regions []CollidingRegion `json:"regions,omitempty"`
}

// CollidingRegion is a place in a file that both sides changed.
type CollidingRegion struct {
	Ours   LineRange `json:"ours"`
	Theirs LineRange `json:"theirs"`
}

// LineRange is a range of lines of a file, both included, from 1. To is From-1 if there is no line.
type LineRange struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Collisions computes the merge of each pair of commits and keeps none of them. The results are in the order of pairs.
// Each names at least one of the files in conflict, at most as many as files says, and counts the others. The rules of
// .gitattributes are those of the commit rules. Commits without a common one collide in each file that both have.
func (r *Repo) Collisions(ctx context.Context, rules Hash, pairs [][2]Hash, files int) ([]Collision, error) {
	var all []Collision
	for chunk := range slices.Chunk(pairs, collideAtOnce) {
		some, err := r.collisions(ctx, rules, chunk, files)
		if err != nil {
			return nil, fmt.Errorf("cannot look for conflicts in %s: %w", r.name, gitcmd.ExplainFullDisk(err, r.dir))
		}
		all = append(all, some...)
	}
	return all, nil
}

func (r *Repo) collisions(ctx context.Context, rules Hash, pairs [][2]Hash, files int) ([]Collision, error) {
	if err := r.needSHA1(ctx); err != nil {
		return nil, err
	}
	var in strings.Builder
	for _, p := range pairs {
		for _, h := range p {
			if err := CheckHash(h); err != nil {
				return nil, err
			}
			if _, err := r.objects.Commit(ctx, h); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(&in, "%s %s\n", p[0], p[1])
	}
	sc, err := r.newMergeScratch()
	if err != nil {
		return nil, err
	}
	defer sc.remove()
	if err := sc.writeAttributes(ctx, rules); err != nil {
		return nil, err
	}
	out, err := sc.bounded(ctx, in.String(), "merge-tree", "--write-tree", "--stdin", "--allow-unrelated-histories")
	if err != nil {
		return nil, err
	}
	merged, err := parseMerges(ctx, out, pairs, files)
	if err != nil {
		return nil, err
	}
	if err := sc.findRegions(ctx, merged); err != nil {
		return nil, err
	}
	list := make([]Collision, len(merged))
	for i, m := range merged {
		list[i] = m.Collision
	}
	return list, nil
}

// bounded returns the output of a command of git that reads in.
func (sc *mergeScratch) bounded(ctx context.Context, in string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := sc.command(args...)
	c.Env = append(c.Env, "GIT_LITERAL_PATHSPECS=1")
	b := &gitcmd.Buffer{Max: collideBytes, Full: func() {
		cancel(fmt.Errorf("more than %d bytes of conflicts: %w", collideBytes, ErrTooLarge))
	}}
	c.In, c.Out, c.CPU, c.Memory = strings.NewReader(in), b, collideCPU, sc.r.server.limits.Memory
	if err := sc.r.server.git.Run(ctx, c); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// triedMerge is a merge whose objects are in a scratch.
type triedMerge struct {
	Collision
	tree Hash           // with the markers of conflicts
	at   map[string]int // the index in Files by path, while they are read
}

// parseMerges parses the output of git merge-tree --stdin for pairs. Of each merge it has 1 if it is clean, the tree,
// the entries in conflict, an empty field, and if it is not clean the messages, and an empty field. Of a message it has the
// number of its paths, these, the kind, and a text. Of each merge it keeps the first files, as many as files says.
func parseMerges(ctx context.Context, out []byte, pairs [][2]Hash, files int) ([]triedMerge, error) {
	fields := fieldReader{rest: out}
	list := make([]triedMerge, 0, len(pairs))
	for _, p := range pairs {
		m := triedMerge{Collision: Collision{Ours: p[0], Theirs: p[1]}}
		status := fields.next()
		m.tree = Hash(fields.next())
		if CheckHash(m.tree) != nil || status != "0" && status != "1" {
			return nil, fmt.Errorf("git merge-tree answered %.40q for %s and %s", status, p[0], p[1])
		}
		for ctx.Err() == nil {
			_, file, found := strings.Cut(fields.next(), "\t")
			if !found {
				break
			}
			m.addFile(file, "")
		}
		if status == "0" {
			for ctx.Err() == nil {
				n, err := strconv.Atoi(fields.next())
				if err != nil || n > len(fields.rest) {
					break
				}
				var paths []string
				for range n {
					paths = append(paths, fields.next())
				}
				kind, conflict := strings.CutPrefix(fields.next(), "CONFLICT (")
				fields.next()
				for _, file := range paths {
					if conflict {
						m.addFile(file, strings.TrimSuffix(kind, ")"))
					}
				}
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if status == "0" && len(m.Files) == 0 {
			return nil, fmt.Errorf("git merge-tree names no file of %s and %s", p[0], p[1])
		}
		m.keep(files)
		list = append(list, m)
	}
	return list, nil
}

// addFile adds a file, or the kind of its conflict. The first kind is the most special one.
func (m *triedMerge) addFile(path, kind string) {
	if i, known := m.at[path]; known {
		if f := &m.Files[i]; f.Kind == "" {
			f.Kind = kind
		}
		return
	}
	if m.at == nil {
		m.at = map[string]int{}
	}
	m.at[path] = len(m.Files)
	m.Files = append(m.Files, CollidingFile{Path: path, Kind: kind})
}

// keep sorts the files that were read, keeps the first ones, and counts the others.
func (m *triedMerge) keep(files int) {
	m.at = nil
	slices.SortFunc(m.Files, func(a, b CollidingFile) int { return strings.Compare(a.Path, b.Path) })
	names := 0
	for i := range m.Files {
		f := &m.Files[i]
		if len(f.Path) > object.MaxPath {
			f.Path, f.cut = strings.Clone(text.Head(f.Path, object.MaxPath)), true
		}
		names += len(f.Path)
		if i > 0 && (i >= files || names > collideNames) {
			m.More = len(m.Files) - i
			m.Files = slices.Clone(m.Files[:i])
			return
		}
	}
}

// fieldReader reads fields that end with NUL.
type fieldReader struct{ rest []byte }

// next returns the next field, or "" after the last.
func (f *fieldReader) next() string {
	field, rest, _ := bytes.Cut(f.rest, []byte{0})
	f.rest = rest
	return string(field)
}

// findRegions finds the regions of conflicts of contents. They are at the markers that git has written into the merged
// files. A comparison of a side with the merged tree gives their lines in the files of that side.
func (sc *mergeScratch) findRegions(ctx context.Context, merged []triedMerge) error {
	var in strings.Builder
	paths := map[string]bool{}
	var sides []side
	for i := range merged {
		m := &merged[i]
		marked := false
		for _, f := range m.Files {
			if f.Kind == "contents" && !f.cut && len(paths) < collidePaths {
				paths[f.Path], marked = true, true
			}
		}
		if !marked {
			continue
		}
		for _, s := range []side{{merge: m, commit: m.Ours}, {merge: m, commit: m.Theirs, open: 1}} {
			tree, err := sc.r.objects.TreeOf(ctx, s.commit)
			if err != nil {
				return err
			}
			fmt.Fprintf(&in, "%s %s\n", tree, m.tree)
			sides = append(sides, s)
		}
	}
	if len(sides) == 0 {
		return nil
	}
	args := []string{"diff-tree", "--stdin", "-r", "-p", "-U0", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--no-color", "--src-prefix=a/", "--dst-prefix=b/", "--"}
	for p := range paths {
		args = append(args, p)
	}
	out, err := sc.bounded(ctx, in.String(), args...)
	if err != nil {
		return err
	}
	newRegionReader(bytes.NewReader(out), sides).read()
	return nil
}

// side is a side of a merge.
type side struct {
	merge  *triedMerge
	commit Hash
	// open is the number of the marker before the lines of the side. The next marker is after them.
	open int
}

// marker returns the beginning of a marker of a region, of which there are three.
func (s side) marker(n int) string {
	return [...]string{"<<<<<<< " + string(s.merge.Ours), "=======", ">>>>>>> " + string(s.merge.Theirs)}[n]
}

// regionReader reads the comparisons of sides with their merged trees, without context, and sets the regions of the
// files.
type regionReader struct {
	lines *bufio.Reader
	sides []side
	at    int            // in sides, from 1
	file  *CollidingFile // nil for a file without a conflict
	seen  int            // regions of file in this comparison
	next  int            // the marker that comes next
	from  int            // the first line of the region that is open
}

func newRegionReader(in io.Reader, sides []side) *regionReader {
	return &regionReader{lines: bufio.NewReader(in), sides: sides}
}

// read reads until the end, or until a line that git does not write.
func (rr *regionReader) read() {
	for {
		line, err := rr.lines.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "@@ ") && rr.at > 0:
			if !rr.hunk(line) {
				return
			}
		case strings.HasPrefix(line, "+++ ") && rr.at > 0:
			path, _ := unquotePath(strings.TrimSuffix(strings.TrimPrefix(line, "+++ "), "\t"))
			rr.file, rr.seen, rr.next = rr.sides[rr.at-1].merge.file(strings.TrimPrefix(path, "b/")), 0, 0
		case len(line) == 81 && line[40] == ' ' && CheckHash(Hash(line[:40])) == nil:
			if rr.at++; rr.at > len(rr.sides) {
				return
			}
			rr.file = nil
		}
		if err != nil {
			return
		}
	}
}

// hunk reads the lines of a hunk, and reports whether they are all there.
func (rr *regionReader) hunk(head string) bool {
	h, ok := parseHunk(head)
	if !ok {
		return false
	}
	s := rr.sides[rr.at-1]
	for range h.removed + h.added {
		line, err := rr.lines.ReadString('\n')
		if err != nil {
			return false
		}
		added, isAdded := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "+")
		if !isAdded || rr.file == nil || !strings.HasPrefix(added, s.marker(rr.next)) {
			continue
		}
		switch rr.next {
		case s.open:
			rr.from = h.before + 1
		case s.open + 1:
			rr.file.setRegion(rr.seen, s.open == 0, LineRange{rr.from, max(h.before+h.removed, rr.from-1)})
			rr.seen++
		}
		rr.next = (rr.next + 1) % 3
	}
	return true
}

// file returns the file in conflict at a path, or nil.
func (m *triedMerge) file(path string) *CollidingFile {
	for i := range m.Files {
		if m.Files[i].Path == path {
			return &m.Files[i]
		}
	}
	return nil
}

// setRegion sets the lines of one side in a region.
func (f *CollidingFile) setRegion(n int, ours bool, lines LineRange) {
	if n >= collideRegions {
		return
	}
	if n >= len(f.Regions) {
		f.Regions = append(f.Regions, CollidingRegion{})
	}
	if ours {
		f.Regions[n].Ours = lines
	} else {
		f.Regions[n].Theirs = lines
	}
}

// hunk is the head of a hunk without context.
type hunk struct {
	before         int // lines of the old file before the hunk
	removed, added int
}

// parseHunk parses "@@ -FROM[,COUNT] +FROM[,COUNT] @@". The position of a hunk that removes nothing is that of the line
// before it.
func parseHunk(line string) (h hunk, ok bool) {
	words := strings.Fields(line)
	if len(words) < 4 || words[0] != "@@" || words[3] != "@@" {
		return h, false
	}
	from, removed, ok := parseSpan(words[1], "-")
	if !ok {
		return h, false
	}
	_, added, ok := parseSpan(words[2], "+")
	if removed > 0 {
		from--
	}
	return hunk{before: from, removed: removed, added: added}, ok
}

// parseSpan parses a sign and FROM[,COUNT]. The default of COUNT is 1.
func parseSpan(word, sign string) (from, count int, ok bool) {
	rest, ok := strings.CutPrefix(word, sign)
	if !ok {
		return 0, 0, false
	}
	first, second, both := strings.Cut(rest, ",")
	from, err := strconv.Atoi(first)
	if err != nil || from < 0 {
		return 0, 0, false
	}
	if !both {
		return from, 1, true
	}
	count, err = strconv.Atoi(second)
	return from, count, err == nil && count >= 0
}
