package changes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of a set.
const (
	MaxFiles   = 50
	MaxLines   = 500
	maxLarge   = 250      // changed lines beyond which a file has no lines unless the window names it
	maxLine    = 2000     // bytes
	maxRead    = 64 << 20 // bytes of the difference of one file
	maxContext = 10_000
	within     = 10 * time.Second
)

// Window chooses a part of the changes. The zero value is the first part of all work of a caller.
type Window struct {
	From        string `json:"from,omitempty" jsonschema:"branch, tag, ref or commit; where the work began if empty"`
	To          string `json:"to,omitempty" jsonschema:"branch, tag, ref or commit; the end of the branch if empty"`
	In          string `json:"in,omitempty" jsonschema:"an additional repository of the workspace; its own if empty"`
	Find        string `json:"find,omitempty" jsonschema:"a part of the paths; all files if empty"`
	Page        int    `json:"page,omitempty" jsonschema:"which part of the list, from 1"`
	Path        string `json:"path,omitempty" jsonschema:"the path of the only file"`
	Line        int    `json:"line,omitempty" jsonschema:"how many lines of the difference of that file are left out at its beginning"`
	Context     int    `json:"context,omitempty" jsonschema:"equal lines around a difference; 3 if 0"`
	IgnoreSpace bool   `json:"ignore_space,omitempty" jsonschema:"take lines that differ in white space alone as equal"`
}

// Set is a part of the changes.
type Set struct {
	From gitd.Hash `json:"from"`
	To   gitd.Hash `json:"to"`
	// All is the number of files that differ, and Added and Deleted count their lines. Found is the number of files that the window finds.
	All     int `json:"all"`
	Added   int `json:"added"`
	Deleted int `json:"deleted"`
	Found   int `json:"found"`
	Page    int `json:"page"`  // from 1
	Pages   int `json:"pages"` // at least 1
	// Files are those of the page, or the one that the window names.
	Files []*File `json:"files"`
	// Folders are those at the top with their numbers of files, if there are more files than a page has.
	Folders []Folder `json:"folders,omitempty"`
}

// Folder is a folder at the top with the number of its files that differ. The name "" is the top itself.
type Folder struct {
	Name  string `json:"name"`
	Files int    `json:"files"`
}

// File is a file that differs.
type File struct {
	gitd.Change
	// ID is the beginning of the ids of the lines on pages: ID-L12 is line 12 of the old file, and ID-R12 that of the new one.
	ID string `json:"id"`
	// Key names the content on both sides.
	Key string `json:"key"`
	// Shown is set if the hunks were read. They may be none, as for a change of the mode.
	Shown bool        `json:"shown"`
	Hunks []diff.Hunk `json:"hunks,omitempty"`
	// Next is the Line of the next part of the file's difference. Zero means that this is the last one.
	Next int `json:"next,omitempty"`
}

// Binary reports whether the file has no lines.
func (f *File) Binary() bool { return f.Added < 0 }

// Submodule reports whether the file is the commit of another repository.
func (f *File) Submodule() bool { return f.Mode == "160000" || f.OldMode == "160000" }

// fileID returns the id of a path.
func fileID(path string) string {
	sum := sha256.Sum256([]byte(path))
	return "f" + hex.EncodeToString(sum[:6])
}

// fileKey returns the key of a change.
func fileKey(c gitd.Change) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %s %s %s", c.Path, c.OldMode, c.Mode, c.OldBlob, c.Blob))
	return hex.EncodeToString(sum[:8])
}

// Span returns the commits where the work of a caller begins and ends, in its own repository.
func Span(ctx context.Context, r *gitd.Repo, st executor.CallerStatus) (from, to gitd.Hash, err error) {
	last := st.Last
	return span(ctx, r, st.Branch, record.Addition{Base: last.Base, BaseCommit: last.BaseCommit,
		Start: cmp.Or(last.Start, last.BaseCommit), Head: cmp.Or(st.Head, last.Head)})
}

// span returns both commits for a branch as a run has it.
func span(ctx context.Context, r *gitd.Repo, branch string, a record.Addition) (from, to gitd.Hash, err error) {
	head, err := r.Resolve(ctx, "refs/heads/"+branch)
	switch {
	case errors.Is(err, gitd.ErrNotFound) && a.Head != "":
		head = a.Head // the branch was deleted after a merge
	case err != nil:
		return "", "", err
	}
	// A caller that rebased onto a newer base has commits of the base on its branch, which are not its work. A merged
	// caller has all its work in the base, and left the base as it was when the last run began.
	for _, base := range []string{"refs/heads/" + a.Base, string(a.BaseCommit)} {
		if base == "" {
			continue
		}
		left, err := r.MergeBase(ctx, base, string(head))
		if err == nil && left != head {
			return left, head, nil
		}
		if err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return "", "", err
		}
	}
	return a.Start, head, nil
}

// Ends returns the repository and the commits that a window compares. Returns an error if who may not see one of them.
func Ends(ctx context.Context, find *lookup.Lookup, who route.Who, st executor.CallerStatus, w Window) (r *gitd.Repo, from, to gitd.Hash, err error) {
	if w.In == "" || w.In == st.Repo {
		if r, err = find.Git.Repo(st.Repo); err != nil {
			return nil, "", "", err
		}
		from, to, err = Span(ctx, r, st)
	} else {
		a, ok := st.Last.Addition(w.In)
		if !ok {
			return nil, "", "", route.NotFound("repository", w.In)
		}
		if r, err = find.Repo(who, w.In); err != nil {
			return nil, "", "", err
		}
		if from, to, err = span(ctx, r, st.Branch, a); err == nil {
			_, err = find.Revision(ctx, who, r, string(to))
		}
	}
	if err != nil {
		return nil, "", "", err
	}
	for _, x := range []struct {
		rev string
		end *gitd.Hash
	}{{w.From, &from}, {w.To, &to}} {
		if x.rev == "" {
			continue
		}
		rev, err := find.Revision(ctx, who, r, x.rev)
		if err != nil {
			return nil, "", "", err
		}
		if *x.end, err = r.Resolve(ctx, rev); err != nil {
			return nil, "", "", err
		}
	}
	return r, from, to, nil
}

// Changes reads changes. The zero value is ready. It is safe for concurrent use.
type Changes struct{ lists lists }

// Read returns a part of the changes between two commits. skip reports whether the lines of a file by its key are left out, and may be nil.
// Returns a problem if the window is wrong or names a file without changes.
func (c *Changes) Read(ctx context.Context, r *gitd.Repo, from, to gitd.Hash, w Window, skip func(key string) bool) (Set, error) {
	if w.Page < 0 || w.Line < 0 || w.Context < 0 || w.Context > maxContext {
		return Set{}, route.NewProblem(route.KindInvalid, "the window is wrong: page and line are at least 0, and context is at most %d", maxContext)
	}
	timed, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	s, err := c.read(timed, r, from, to, w, skip)
	return s, explain(ctx, timed, err)
}

// explain returns err, or the problem that git took too long if timed has ended and the caller still waits.
func explain(ctx, timed context.Context, err error) error {
	if err != nil && timed.Err() != nil && ctx.Err() == nil {
		return route.NewProblem(route.KindTimeout, "git needs more than %s to compare the commits", within).
			WithHint("name one file, or compare commits with fewer changes")
	}
	return err
}

func (c *Changes) read(ctx context.Context, r *gitd.Repo, from, to gitd.Hash, w Window, skip func(key string) bool) (Set, error) {
	all, err := c.lists.read(ctx, r, from, to)
	if err != nil {
		return Set{}, err
	}
	s := Set{From: from, To: to, All: len(all), Page: 1, Pages: 1, Files: []*File{}}
	folders := map[string]int{}
	var found []gitd.Change
	for _, x := range all {
		s.Added, s.Deleted = s.Added+max(x.Added, 0), s.Deleted+max(x.Deleted, 0)
		if w.Path != "" && x.Path != w.Path || !strings.Contains(x.Path, w.Find) && !strings.Contains(x.OldPath, w.Find) {
			continue
		}
		found = append(found, x)
	}
	if w.Path != "" && len(found) == 0 {
		return Set{}, route.NotFound("change", w.Path)
	}
	if s.Found = len(found); s.Found > MaxFiles {
		s.Pages = (s.Found + MaxFiles - 1) / MaxFiles
		s.Page = min(max(w.Page, 1), s.Pages)
	}
	if len(all) > MaxFiles {
		for _, x := range all {
			name := ""
			if top, _, ok := strings.Cut(x.Path, "/"); ok {
				name = top + "/"
			}
			if folders[name]++; folders[name] == 1 {
				s.Folders = append(s.Folders, Folder{Name: name})
			}
		}
		for i := range s.Folders {
			s.Folders[i].Files = folders[s.Folders[i].Name]
		}
	}
	at := (s.Page - 1) * MaxFiles
	for _, x := range found[at:min(at+MaxFiles, len(found))] {
		s.Files = append(s.Files, &File{Change: x, ID: fileID(x.Path), Key: fileKey(x)})
	}
	return s, fill(ctx, r, &s, w, skip)
}

// fill reads the lines of the files that have some.
func fill(ctx context.Context, r *gitd.Repo, s *Set, w Window, skip func(string) bool) error {
	lines := 0
	var moved, other []*File
	for _, f := range s.Files {
		if f.Binary() {
			f.Shown = true
			continue
		}
		// A part of the equal lines counts, too.
		size := f.Added + f.Deleted + min(f.Added+f.Deleted, 1+f.Added/4)*2*cmp.Or(w.Context, 3)
		if w.Path == "" && (f.Added+f.Deleted > maxLarge || lines+size > MaxLines || skip != nil && skip(f.Key)) {
			continue
		}
		lines += size
		if f.Shown = true; f.OldPath != "" {
			moved = append(moved, f)
		} else {
			other = append(other, f)
		}
	}
	// Among fewer files git finds other renames, unless these are all renamed.
	if err := fillLines(ctx, r, s, w, other, true); err != nil {
		return err
	}
	return fillLines(ctx, r, s, w, moved, false)
}

// fillLines reads the lines of files that were all renamed, or of which none was.
func fillLines(ctx context.Context, r *gitd.Repo, s *Set, w Window, files []*File, noRenames bool) error {
	if len(files) == 0 {
		return nil
	}
	byPath := map[string]*File{}
	o := gitd.DiffOptions{Text: true, IgnoreSpace: w.IgnoreSpace, Context: w.Context, NoRenames: noRenames}
	for _, f := range files {
		byPath[f.Path] = f
		o.Paths = append(o.Paths, f.Path)
		if f.OldPath != "" {
			o.Paths = append(o.Paths, f.OldPath)
		}
	}
	l := diff.Limits{Bytes: maxRead, Lines: MaxLines + maxLarge, Line: maxLine, Files: 2 * len(o.Paths)}
	if w.Path != "" {
		l.Lines, l.From = MaxLines, w.Line
	}
	list, whole, err := readDiff(ctx, r, s.From, s.To, o, l)
	if err != nil {
		return err
	}
	for _, f := range files {
		f.Shown = whole // a limit leaves out the files that follow
	}
	for _, d := range list {
		f := byPath[cmp.Or(d.New, d.Old)]
		if f == nil || d.Old != "" && d.Old != cmp.Or(f.OldPath, f.Path) {
			continue
		}
		f.Shown = true
		f.Hunks = append(f.Hunks, d.Hunks...) // git writes two differences for a file that became a link
		if d.Cut && len(f.Hunks) > 0 {
			f.Next = l.From
			for _, h := range f.Hunks {
				f.Next += len(h.Lines)
			}
		}
	}
	return nil
}

// readDiff reads the difference of some files. It ends git at the limits, and reports whether it reached none.
func readDiff(ctx context.Context, r *gitd.Repo, from, to gitd.Hash, o gitd.DiffOptions, l diff.Limits) (_ []*diff.File, whole bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := r.Diff(ctx, string(from), string(to), o, out)
		out.CloseWithError(err)
		ended <- err
	}()
	list, whole, err := diff.Read(in, l)
	cancel()
	in.Close()
	if ran := <-ended; whole && err == nil {
		err = ran
	}
	return list, whole, err
}
