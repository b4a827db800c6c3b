package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// DiffOptions are the options of [Repo.Diff].
type DiffOptions struct {
	Stat  bool     // a diffstat instead of a patch
	Paths []string // only these files and folders, taken literally
	// MergeBase compares to with the merge base of from and to, as "from...to" does.
	MergeBase bool
	// IgnoreSpace takes lines that differ in white space alone as equal, as -w does. A file without other differences has no patch.
	IgnoreSpace bool
	// Context is the number of equal lines around a difference. Zero means 3, and -1 none.
	Context int
	// Text leaves out the content of binary files.
	Text bool
	// NoRenames takes a renamed file as one that is deleted and another one that is added.
	NoRenames bool
}

// Change is one changed file.
type Change struct {
	Path    string `json:"path"`
	OldPath string `json:"old_path,omitempty"` // of a rename or copy
	Status  string `json:"status"`             // git's letter (A, M, D, R, C, T)
	Added   int    `json:"added"`              // lines, -1 for binary files
	Deleted int    `json:"deleted"`
	// Modes are six octal digits, and blobs are names of objects, or the commit of a submodule. They are empty on the side that has no
	// file, and in the list of [Repo.Review].
	OldMode string `json:"old_mode,omitempty"`
	Mode    string `json:"mode,omitempty"`
	OldBlob Hash   `json:"old_blob,omitempty"`
	Blob    Hash   `json:"blob,omitempty"`
}

// resolveEnds resolves both sides of a comparison.
func (r *Repo) resolveEnds(ctx context.Context, from, to string, mergeBase bool) (a, b Hash, err error) {
	if b, err = r.resolve(ctx, to); err != nil {
		return "", "", fmt.Errorf("%.200q: %w", to, err)
	}
	if a, err = r.resolve(ctx, from); err != nil {
		return "", "", fmt.Errorf("%.200q: %w", from, err)
	}
	if mergeBase {
		a, err = r.mergeBase(ctx, string(a), string(b))
	}
	return a, b, err
}

// diffCommand returns a comparison by git that no configuration changes. It uses no external program, no text
// conversion and no colour, and it finds renames.
func (r *Repo) diffCommand(format []string, a, b Hash, paths []string) gitcmd.Command {
	args := append([]string{"diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--no-color"}, format...)
	args = append(args, string(a), string(b), "--")
	return gitcmd.Command{Repo: r.dir, Args: append(args, paths...), Env: []string{"GIT_LITERAL_PATHSPECS=1"}}
}

// format returns the options of git for a difference.
func (o DiffOptions) format() []string {
	if o.Stat {
		return []string{"--stat=100", "--summary"}
	}
	list := []string{"--patch", "--binary"}
	if o.Text {
		list = []string{"--patch", "--full-index"}
	}
	if o.NoRenames {
		list = append(list, "--no-renames")
	}
	if o.IgnoreSpace {
		list = append(list, "--ignore-all-space")
	}
	if o.Context != 0 {
		list = append(list, fmt.Sprintf("--unified=%d", max(o.Context, 0)))
	}
	return list
}

// Diff writes the difference between two commits as git does, with binary patches unless o leaves them out, and without colour.
func (r *Repo) Diff(ctx context.Context, from, to string, o DiffOptions, w io.Writer) error {
	for _, p := range o.Paths {
		if !filepath.IsLocal(p) {
			return fmt.Errorf("cannot compare %.200q in %s: it is not a path below the root of the repository: %w", p,
				r.name, ErrInvalid)
		}
	}
	a, b, err := r.resolveEnds(ctx, from, to, o.MergeBase)
	if err == nil {
		c := r.diffCommand(o.format(), a, b, o.Paths)
		c.Out = w
		err = r.server.git.Run(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("cannot compare %.200q with %.200q in %s: %w", from, to, r.name, err)
	}
	return nil
}

// Changed lists the changes between two commits, or from their merge base if mergeBase is set.
func (r *Repo) Changed(ctx context.Context, from, to string, mergeBase bool) ([]Change, error) {
	a, b, err := r.resolveEnds(ctx, from, to, mergeBase)
	var list []Change
	if err == nil {
		var out []byte
		if out, err = r.server.git.Output(ctx, r.diffCommand([]string{"-z", "--raw", "--numstat"}, a, b, nil)); err == nil {
			list, err = parseChanges(string(out))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot compare %.200q with %.200q in %s: %w", from, to, r.name, err)
	}
	return list, nil
}

// Review lists the changes between two commits and writes the patch. It runs git once for both.
func (r *Repo) Review(ctx context.Context, from, to string, patch io.Writer) ([]Change, error) {
	a, b, err := r.resolveEnds(ctx, from, to, false)
	var list []Change
	if err == nil {
		split := &patchSplitter{patch: patch}
		c := r.diffCommand([]string{"-z", "--raw", "--numstat", "--patch", "--binary"}, a, b, nil)
		c.Out = split
		if err = r.server.git.Run(ctx, c); err == nil {
			list, err = parseChanges(split.list.String())
		}
		for i := range list { // evidence keeps the list, and the names of its commits say as much
			list[i] = Change{Path: list[i].Path, OldPath: list[i].OldPath, Status: list[i].Status, Added: list[i].Added, Deleted: list[i].Deleted}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot compare %.200q with %.200q in %s: %w", from, to, r.name, err)
	}
	return list, nil
}

// patchSplitter keeps the records that git prints before a patch, and passes the patch on. An empty field
// separates the two.
type patchSplitter struct {
	list  bytes.Buffer
	at    int // offset in list of the next field
	seen  int // offset in list up to which the end of that field was searched
	names int // number of following fields that are names
	patch io.Writer
	ended bool // the list
}

func (s *patchSplitter) Write(p []byte) (int, error) {
	if s.ended {
		return s.patch.Write(p)
	}
	if s.list.Len()+len(p) > gitcmd.OutputMax {
		return 0, fmt.Errorf("a list of more than %d bytes: %w", gitcmd.OutputMax, ErrTooLarge)
	}
	s.list.Write(p)
	for {
		end := bytes.IndexByte(s.list.Bytes()[s.seen:], 0)
		if end < 0 {
			s.seen = s.list.Len()
			return len(p), nil
		}
		field := s.list.Bytes()[s.at : s.seen+end]
		s.seen += end + 1
		s.at = s.seen
		switch {
		case s.names > 0:
			s.names--
		case len(field) == 0:
			s.ended = true
			rest := bytes.Clone(s.list.Bytes()[s.at:])
			s.list.Truncate(s.at - 1)
			_, err := s.patch.Write(rest)
			return len(p), err
		case field[0] == ':': // a record with its status at the end, and one name follows, or two for a rename
			s.names = 1
			if at := bytes.LastIndexByte(field, ' '); at >= 0 &&
				(bytes.HasPrefix(field[at+1:], []byte("R")) || bytes.HasPrefix(field[at+1:], []byte("C"))) {
				s.names = 2
			}
		default: // counts and a name, for a rename two names follow
			if counts := bytes.SplitN(field, []byte{'\t'}, 3); len(counts) == 3 && len(counts[2]) == 0 {
				s.names = 2
			}
		}
	}
}

// parseChanges parses the output of `diff-tree -z --raw --numstat`. All raw records come first, then the line
// counts in the same order.
func parseChanges(out string) ([]Change, error) {
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	next := func() (string, bool) {
		if len(fields) == 0 {
			return "", false
		}
		f := fields[0]
		fields = fields[1:]
		return f, true
	}

	bad := errors.New("git listed changes in an unknown form")
	list := []Change{}
	if out == "" {
		return list, nil
	}
	for len(fields) > 0 && strings.HasPrefix(fields[0], ":") {
		head, _ := next()
		words := strings.Fields(head)
		if len(words) != 5 || words[4] == "" {
			return nil, bad
		}
		c := Change{Status: words[4][:1]}
		// A side without a file has zeros.
		if c.OldMode = strings.TrimPrefix(words[0], ":"); strings.Trim(c.OldMode, "0") != "" {
			c.OldBlob = Hash(words[2])
		} else {
			c.OldMode = ""
		}
		if c.Mode = words[1]; strings.Trim(c.Mode, "0") != "" {
			c.Blob = Hash(words[3])
		} else {
			c.Mode = ""
		}
		var ok bool
		if c.Status == "R" || c.Status == "C" {
			if c.OldPath, ok = next(); !ok {
				return nil, bad
			}
		}
		if c.Path, ok = next(); !ok {
			return nil, bad
		}
		list = append(list, c)
	}

	for i := range list {
		f, _ := next()
		counts := strings.SplitN(f, "\t", 3)
		if len(counts) != 3 {
			return nil, bad
		}
		if counts[2] == "" { // for a rename both paths follow
			next()
			next()
		}
		for j, n := range []*int{&list[i].Added, &list[i].Deleted} {
			if counts[j] == "-" {
				*n = -1
				continue
			}
			var err error
			if *n, err = strconv.Atoi(counts[j]); err != nil {
				return nil, bad
			}
		}
	}
	return list, nil
}
