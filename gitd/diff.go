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
}

// Change is one changed file.
type Change struct {
	Path    string `json:"path"`
	OldPath string `json:"old_path,omitempty"` // of a rename or copy
	Status  string `json:"status"`             // git's letter (A, M, D, R, C, T)
	Added   int    `json:"added"`              // lines, -1 for binary files
	Deleted int    `json:"deleted"`
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

// Diff writes the difference between two commits as git does, with binary patches and without colour.
func (r *Repo) Diff(ctx context.Context, from, to string, o DiffOptions, w io.Writer) error {
	for _, p := range o.Paths {
		if !filepath.IsLocal(p) {
			return fmt.Errorf("cannot compare %.200q in %s: it is not a path below the root of the repository: %w", p,
				r.name, ErrInvalid)
		}
	}
	a, b, err := r.resolveEnds(ctx, from, to, o.MergeBase)
	if err == nil {
		format := []string{"--patch", "--binary"}
		if o.Stat {
			format = []string{"--stat=100", "--summary"}
		}
		c := r.diffCommand(format, a, b, o.Paths)
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
