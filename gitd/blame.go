package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// TrailerSquashed names, in a squash commit that [Repo.Merge] made, the commit whose changes it has.
const TrailerSquashed = "Ramus-Squashed"

// Bounds of [Repo.Blame].
const (
	blameBytes = 8 << 20 // of the file
	blameLines = 100_000 // of an answer
	blameCPU   = time.Minute
	// blameGrafts bounds the grafts, because git reads them from a pipe.
	blameGrafts = 500
)

// BlameOptions are the options of [Repo.Blame].
type BlameOptions struct {
	// From and To are the first and the last line, from 1. Zero means the first and the last of the file.
	From, To int
	// Grafts replaces the parents of commits. A squash commit becomes a merge by a second parent.
	Grafts map[Hash][]Hash
}

// BlamedLine is one line of a file and the commit that it comes from.
type BlamedLine struct {
	Commit Hash   `json:"commit"`
	Line   int    `json:"line"` // in the file at the revision, from 1
	Was    int    `json:"was"`  // in the file at Commit
	Path   string `json:"path"` // of the file at Commit
	Text   string `json:"text"` // without its line end
	// First is set if history ends at Commit, so that the line may be older.
	First bool `json:"first,omitempty"`
}

// Blame returns the lines of a file at a commit, each with the commit that it comes from, as git blame finds it:
// through merges and through renames of the file. Returns [ErrTooLarge] for a file of more than 8 MiB, and for more than
// 100,000 lines at once.
func (r *Repo) Blame(ctx context.Context, rev, path string, o BlameOptions) ([]BlamedLine, error) {
	lines, err := r.blame(ctx, rev, path, o)
	if err != nil {
		return nil, fmt.Errorf("cannot find the commits of %.200q at %.200q in %s: %w", path, rev, r.name, err)
	}
	return lines, nil
}

func (r *Repo) blame(ctx context.Context, rev, path string, o BlameOptions) ([]BlamedLine, error) {
	e, err := r.findEntry(ctx, rev, path)
	if err != nil {
		return nil, err
	}
	if e.Mode == object.ModeFolder || e.Kind() != "blob" {
		return nil, fmt.Errorf("it is no file: %w", ErrInvalid)
	}
	content, err := r.Blob(ctx, e.Hash, blameBytes)
	if err != nil {
		return nil, err
	}
	have := bytes.Count(content, []byte("\n"))
	if len(content) > 0 && content[len(content)-1] != '\n' {
		have++
	}
	from, to := max(o.From, 1), o.To
	if to == 0 {
		to = have
	}
	switch {
	case o.From < 0 || to < 0 || o.To != 0 && o.To < from:
		return nil, fmt.Errorf("the lines %d to %d: %w", o.From, o.To, ErrInvalid)
	case have == 0 && o.From == 0:
		return []BlamedLine{}, nil
	case from > have || to > have:
		return nil, fmt.Errorf("it has %d lines: %w", have, ErrNotFound)
	case to-from >= blameLines:
		return nil, fmt.Errorf("%d lines are too many at once, at most %d: %w", to-from+1, blameLines, ErrTooLarge)
	}

	commit, err := r.resolve(ctx, rev)
	if err != nil {
		return nil, err
	}
	c, err := r.blameCommand(commit, path, from, to, o.Grafts)
	if err != nil {
		return nil, err
	}
	out, err := r.server.git.Output(ctx, c)
	if err != nil {
		return nil, err
	}
	return parseBlame(out, to-from+1)
}

// blameCommand returns a blame that no configuration changes.
func (r *Repo) blameCommand(commit Hash, path string, from, to int, grafts map[Hash][]Hash) (gitcmd.Command, error) {
	c := gitcmd.Command{Repo: r.dir, CPU: blameCPU, Memory: r.server.limits.Memory,
		Config: []string{"blame.ignoreRevsFile=", "core.quotePath=true"},
		Args:   []string{"blame", "--porcelain", fmt.Sprintf("-L%d,%d", from, to)}}
	if len(grafts) > blameGrafts {
		return c, fmt.Errorf("more than %d squashes: %w", blameGrafts, ErrTooLarge)
	}
	if len(grafts) > 0 {
		var list strings.Builder
		for _, of := range slices.Sorted(maps.Keys(grafts)) {
			for _, h := range append([]Hash{of}, grafts[of]...) {
				if err := CheckHash(h); err != nil {
					return c, err
				}
				list.WriteString(string(h) + " ")
			}
			list.WriteString("\n")
		}
		c.Args, c.In = append(c.Args, "-S", "/dev/stdin"),
			strings.NewReader(strings.ReplaceAll(list.String(), " \n", "\n"))
	}
	c.Args = append(c.Args, string(commit), "--", path)
	return c, nil
}

// errBlame is the error of an output that is not git's.
var errBlame = errors.New("git printed lines in an unknown form")

// parseBlame parses the output of `git blame --porcelain`, which has at most most lines of the file. The path of a
// commit is printed with its first line, and again if it changes.
func parseBlame(out []byte, most int) ([]BlamedLine, error) {
	type source struct {
		path  string
		first bool
	}
	sources := map[Hash]*source{}
	lines := make([]BlamedLine, 0, min(most, 1<<16))
	var at *BlamedLine
	for len(out) > 0 {
		row, rest, ended := bytes.Cut(out, []byte("\n"))
		out = rest
		if at == nil {
			line, err := parseBlameHead(string(row))
			if err != nil || len(lines) == most {
				return nil, errBlame
			}
			at = &line
			if sources[at.Commit] == nil {
				sources[at.Commit] = &source{}
			}
			continue
		}
		s := sources[at.Commit]
		if len(row) > 0 && row[0] == '\t' {
			at.Path, at.First, at.Text = s.path, s.first, string(row[1:])
			if at.Path == "" || !ended {
				return nil, errBlame
			}
			lines, at = append(lines, *at), nil
			continue
		}
		key, value, _ := strings.Cut(string(row), " ")
		switch key {
		case "filename":
			path, err := unquotePath(value)
			if err != nil {
				return nil, errBlame
			}
			s.path = path
		case "boundary":
			s.first = true
		}
	}
	if at != nil {
		return nil, errBlame
	}
	return lines, nil
}

// parseBlameHead parses "COMMIT WAS LINE [COUNT]".
func parseBlameHead(row string) (line BlamedLine, err error) {
	words := strings.Split(row, " ")
	if len(words) != 3 && len(words) != 4 || CheckHash(Hash(words[0])) != nil {
		return line, errBlame
	}
	line.Commit = Hash(words[0])
	for i, n := range []*int{&line.Was, &line.Line} {
		if *n, err = strconv.Atoi(words[1+i]); err != nil || *n < 1 {
			return line, errBlame
		}
	}
	return line, nil
}

// unquotePath returns the path that git printed, in quotation marks if it has unusual bytes. All bytes above 127 are
// octal escapes then.
func unquotePath(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	return strconv.Unquote(s)
}

// trailerLine matches a line of the paragraph of trailers.
var trailerLine = pattern.New(`^[A-Za-z0-9-]+: \S`)

// addTrailer adds a trailer to a message that ends with a newline.
func addTrailer(message []byte, key, value string) []byte {
	paragraphs := bytes.Split(bytes.TrimRight(message, "\n"), []byte("\n\n"))
	last := paragraphs[len(paragraphs)-1]
	trailers := len(paragraphs) > 1
	for line := range bytes.SplitSeq(last, []byte("\n")) {
		trailers = trailers && trailerLine.Match(line)
	}
	if trailers {
		return fmt.Appendf(message, "%s: %s\n", key, value)
	}
	return fmt.Appendf(message, "\n%s: %s\n", key, value)
}

// Commits returns commits by their names, in that order, at the cost of one git.
func (r *Repo) Commits(ctx context.Context, hashes []Hash) ([]Commit, error) {
	list, err := r.commits(ctx, hashes)
	if err != nil {
		return nil, fmt.Errorf("cannot read %d commits in %s: %w", len(hashes), r.name, err)
	}
	return list, nil
}

func (r *Repo) commits(ctx context.Context, hashes []Hash) ([]Commit, error) {
	if len(hashes) == 0 {
		return []Commit{}, nil
	}
	var ids strings.Builder
	for _, h := range hashes {
		if err := CheckHash(h); err != nil {
			return nil, err
		}
		ids.WriteString(string(h) + "\n")
	}
	out, err := r.server.git.Output(ctx, gitcmd.Command{Repo: r.dir, In: strings.NewReader(ids.String()),
		Args: []string{"rev-list", "--no-walk=unsorted", "--stdin", "--no-commit-header", "--format=" + commitFormat}})
	if err != nil {
		return nil, err
	}
	found, err := parseCommits(string(out))
	if err != nil {
		return nil, err
	}
	byHash := make(map[Hash]Commit, len(found)) // git prints a commit once
	for _, c := range found {
		byHash[c.Hash] = c
	}
	list := make([]Commit, 0, len(hashes))
	for _, h := range hashes {
		c, ok := byHash[h]
		if !ok {
			return nil, fmt.Errorf("%s: %w", h, ErrNotFound)
		}
		list = append(list, c)
	}
	return list, nil
}

// IsCopy reports whether two commits have one author, with the date, and one message. A rebase makes such copies. It
// starts no process. Returns [ErrNotFound] if one of them is not in the repository.
func (r *Repo) IsCopy(ctx context.Context, a, b Hash) (bool, error) {
	var raw [2]object.RawCommit
	for i, h := range []Hash{a, b} {
		var err error
		if raw[i], err = r.objects.ReadCommit(ctx, h); err != nil {
			return false, fmt.Errorf("cannot read the commit %.80s in %s: %w", h, r.name, err)
		}
	}
	return raw[0].Author == raw[1].Author && bytes.Equal(raw[0].Message, raw[1].Message), nil
}
