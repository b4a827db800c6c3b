package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
	"github.com/ramus-dev/ramus/internal/text"
)

// Limits of the pages of the files and the commits of a repository.
const (
	maxSource       = 4 << 20 // bytes of a file that is shown
	sourceLines     = 400
	maxPieces       = 2500 // elements of colours on one page
	maxFolder       = 1000 // entries of a folder
	shownCommits    = 50
	maxLogCommits   = 10_000
	explainedWithin = 10 * time.Second
)

// sourceData is the data of the pages of files and commits. All texts except At are clean.
type sourceData struct {
	Repo, RepoPath string
	At             string // the branch or commit as the path of the page has it; empty means the base
	Commit         gitd.Hash
	Path           string // of the file or folder
	Name           string // the last part of it; of the repository if it is empty
	Crumbs         []fileRow
	Note           string
	Entries        []fileRow // of a folder
	More           bool      // the folder has more entries
	Blocks         []sourceBlock
	Explained      bool   // lines have their causes
	Files, Log     string // paths of the pages about the same place
	Why, Plain     string // the same lines with their causes, and without
	First, Before  string
	Next           string
	Commits        []commitRow
}

// sourceBlock has lines that follow each other, which have one cause if causes are shown.
type sourceBlock struct {
	Cause *causeRow
	Lines []sourceLine
}

type sourceLine struct {
	Number int
	Shown  bool // the line that the page was opened at
	Pieces []markup.Piece
}

// causeRow is the cause of lines.
type causeRow struct {
	Text, By, Agent, Subject string
	Command, End, From       string // Command is that of a cause whose Text is a prompt. From is the place where the person asked
	Href                     string // the command in its timeline or in its run
	Commit                   gitd.Hash
	When                     time.Time
}

type commitRow struct {
	gitd.Commit
	Files, Run, RunPath string
	Verdict             *Badge // of the run that ended with the commit; nil if there is none
}

// sourcePath returns the path of the page of a file, a folder or the commits of a repository.
func sourcePath(repo, page string, values url.Values) string {
	for name, list := range values {
		if len(list) == 0 || list[0] == "" {
			values.Del(name)
		}
	}
	if len(values) == 0 {
		return repoPath(repo) + "/" + page
	}
	return repoPath(repo) + "/" + page + "?" + values.Encode()
}

// sourcePages serves the files and commits of repositories.
type sourcePages struct {
	finder   *finder
	rows     *rowMaker
	executor *executor.Executor
	find     *lookup.Lookup
	past     Past
}

func (h *sourcePages) register(t *table) {
	t.strangerPage("/repos/{repo}/files", "A folder or a file of a repository, and where its lines come from", h.sourcePage)
	t.strangerPage("/repos/{repo}/log", "The commits of a repository, or of one of its files", h.logPage)
}

// openSource finds the repository and the commit that the parameter at names, with the rights of the person. The commit is empty if the base
// has none.
func (h *sourcePages) openSource(c *route.Call) (*gitd.Repo, *sourceData, error) {
	r, err := h.finder.workRepo(c)
	if err != nil {
		return nil, nil, err
	}
	q := c.R.URL.Query()
	d := &sourceData{Repo: r.Name(), RepoPath: repoPath(r.Name()), At: q.Get("at"), Path: strings.Trim(q.Get("path"), "/")}
	rev, err := h.find.Revision(c.R.Context(), c.Who, r, d.At)
	if err != nil {
		return nil, nil, err
	}
	d.Commit, err = r.Resolve(c.R.Context(), rev)
	if d.At == "" && errors.Is(err, gitd.ErrNotFound) {
		d.Note, err = "The base has no commit yet. Push one, or import.", nil
	}
	if err != nil {
		return nil, nil, err
	}
	d.Files = sourcePath(d.Repo, "files", url.Values{"at": {d.At}, "path": {d.Path}})
	d.Log = sourcePath(d.Repo, "log", url.Values{"at": {d.At}, "path": {d.Path}})
	d.Name = render.OneLine(path.Base("/"+d.Path), 200)
	if d.Path == "" {
		d.Name = d.Repo
	}
	above := ""
	for part := range strings.SplitSeq(d.Path, "/") {
		if part != "" {
			above = path.Join(above, part)
			d.Crumbs = append(d.Crumbs, fileRow{Name: render.OneLine(part, 200),
				Href: sourcePath(d.Repo, "files", url.Values{"at": {d.At}, "path": {above}})})
		}
	}
	return r, d, nil
}

// sourcePage shows a folder or a file of a repository. With the parameter why, lines have the commands that they come from.
func (h *sourcePages) sourcePage(c *route.Call) (*Page, error) {
	r, d, err := h.openSource(c)
	if err != nil {
		return nil, err
	}
	ctx := c.R.Context()
	p := &Page{Title: d.Name + " · " + d.Repo, Nav: "repos", Template: "source", Data: d}
	if d.Path == "" {
		p.Title = "Files of " + d.Repo
	}
	if d.Commit == "" {
		return p, nil
	}
	if d.Path == "" {
		return p, showFolder(ctx, r, d)
	}
	parent := path.Dir(d.Path)
	if parent == "." {
		parent = ""
	}
	list, err := r.Tree(ctx, string(d.Commit), parent, false)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.Path != d.Path {
			continue
		}
		switch {
		case e.Type == "tree":
			return p, showFolder(ctx, r, d)
		case e.Type == "commit":
			d.Note = "A submodule, at the commit " + string(e.Hash) + "."
			return p, nil
		}
		return p, h.showSource(c, r, d, e)
	}
	return nil, route.NotFound("file", d.Path)
}

// showFolder fills in the entries of a folder, folders first.
func showFolder(ctx context.Context, r *gitd.Repo, d *sourceData) error {
	list, err := r.Tree(ctx, string(d.Commit), d.Path, false)
	if err != nil {
		return err
	}
	var files []fileRow
	for _, e := range list[:min(len(list), maxFolder)] {
		row := fileRow{Name: render.OneLine(path.Base(e.Path), 200), Icon: "file",
			Href: sourcePath(d.Repo, "files", url.Values{"at": {d.At}, "path": {e.Path}})}
		switch {
		case e.Type == "tree":
			row.Icon = "folder"
			d.Entries = append(d.Entries, row)
			continue
		case e.Type == "commit":
			row.Note = "submodule"
		case e.Mode == "120000":
			row.Note = "link"
		default:
			row.Size = bytesize.Text(e.Size)
		}
		files = append(files, row)
	}
	d.Entries, d.More = append(d.Entries, files...), len(list) > maxFolder
	return nil
}

// showSource fills in the lines of a file.
func (h *sourcePages) showSource(c *route.Call, r *gitd.Repo, d *sourceData, e gitd.TreeEntry) error {
	ctx, q := c.R.Context(), c.R.URL.Query()
	if e.Size > maxSource {
		d.Note = "The file is too large for a page. Clone the repository to read it."
		return nil
	}
	content, err := r.Blob(ctx, e.Hash, maxSource)
	if err != nil {
		return err
	}
	if bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content) {
		d.Note = "The file is not text."
		return nil
	}
	wanted := 1
	if at := q.Get("line"); at != "" {
		if wanted, err = strconv.Atoi(at); err != nil || wanted < 1 {
			return route.NewProblem(route.KindInvalid, "the line %.40q is no number of a line", at)
		}
	}
	source := strings.ReplaceAll(string(content), "\r\n", "\n")
	if source == "" {
		d.Note = "The file is empty."
		return nil
	}
	total := strings.Count(strings.TrimSuffix(source, "\n"), "\n") + 1
	from := min(max(1, wanted-linesBefore), max(1, total-sourceLines+1))
	to := min(total, from+sourceLines-1)
	at := func(line int, why string) string {
		v := url.Values{"at": {d.At}, "path": {d.Path}, "why": {why}}
		if line > 1 {
			v.Set("line", strconv.Itoa(line))
		}
		return sourcePath(d.Repo, "files", v)
	}
	why := q.Get("why")
	d.Explained = why == "1"
	d.Why, d.Plain = at(wanted, "1"), at(wanted, "")
	if from > 1 {
		d.First, d.Before = at(1, why), at(max(1, from-sourceLines+linesBefore), why)
	}
	if to < total {
		d.Next = at(to+1+linesBefore, why)
	}
	block := sourceBlock{Lines: linesOf(source, d.Path, from, to)}
	if i := wanted - from; q.Get("line") != "" && i < len(block.Lines) {
		block.Lines[i].Shown = true
	}
	d.Blocks = []sourceBlock{block}
	if d.Explained {
		return h.explainSource(c, d, from, to)
	}
	return nil
}

// linesOf returns lines of a file, with colours if its language is known and it is within the bounds of colours.
func linesOf(source, file string, from, to int) (lines []sourceLine) {
	colours, n, coloured := side(markup.CodeLines(source, file)), 0, 0
	for l := range strings.Lines(source) {
		if n++; n < from {
			continue
		}
		if n > to {
			break
		}
		one := sourceLine{Number: n}
		for _, x := range colours.line(n, markup.Visible(text.Clip(strings.TrimSuffix(l, "\n"), maxShownLine))) {
			if coloured++; coloured > maxPieces {
				x.Class = ""
			}
			one.Pieces = append(one.Pieces, x)
		}
		lines = append(lines, one)
	}
	return lines
}

// explainSource divides the lines of a file by their causes.
func (h *sourcePages) explainSource(c *route.Call, d *sourceData, from, to int) error {
	ctx, cancel := context.WithTimeout(c.R.Context(), explainedWithin)
	defer cancel()
	a, err := h.past.Why(ctx, c.Who, past.Why{Of: string(d.Commit), Repo: d.Repo, Path: d.Path, Line: from, To: to, Brief: true})
	if err != nil {
		if ctx.Err() != nil && c.R.Context().Err() == nil {
			d.Note = "git took too long to find where the lines come from."
			return nil
		}
		return err
	}
	lines := d.Blocks[0].Lines
	if len(a.Lines) != len(lines) {
		d.Note = "Where the lines come from is not known."
		return nil
	}
	d.Blocks = nil
	for i, l := range a.Lines {
		if i == 0 || l.Cause != a.Lines[i-1].Cause {
			d.Blocks = append(d.Blocks, sourceBlock{Cause: causeRowOf(a.Causes[l.Cause], c.Who.Stranger())})
		}
		last := &d.Blocks[len(d.Blocks)-1]
		last.Lines = append(last.Lines, lines[i])
	}
	return nil
}

// causeRowOf returns the row of a cause. A stranger gets only the parts that the commit has.
func causeRowOf(c provenance.Cause, stranger bool) *causeRow {
	if stranger {
		c = provenance.Cause{Author: c.Author, Subject: c.Subject, Commit: c.Commit, When: c.When}
	}
	person := c.Person
	if person == (gitd.Person{}) {
		person = c.Author
	}
	row := &causeRow{By: personName(person), Agent: render.OneLine(c.Agent, 80), Subject: render.OneLine(render.Clean(c.Subject), 160),
		Commit: c.Commit, When: c.When}
	said, command := cmp.Or(c.Command, c.Task), ""
	if len(c.Prompts) > 0 {
		said, command = c.Prompts[len(c.Prompts)-1].Text, said
	}
	row.Text, row.Command = render.OneLine(render.Clean(said), 200), render.OneLine(render.Clean(command), 120)
	if c.Exit != nil {
		row.End = fmt.Sprintf("exit %d", *c.Exit)
	}
	if c.Origin != nil {
		row.From = render.OneLine(render.Clean(c.Origin.Session), 120)
	}
	caller, id, ok := cutLast(c.Run, "/")
	parsed, err := record.ParseCaller(caller)
	switch {
	case !ok || err != nil:
	case c.Inside:
		row.Href = runPath(record.Run{Caller: parsed, ID: id}) + "#" + url.PathEscape(c.Step)
	default:
		row.Href = workspacePath(parsed.Slug()) + "/timeline?" + url.Values{"at": {string(cmp.Or(c.Was, c.Commit))}}.Encode()
	}
	return row
}

// logPage shows the commits of a repository, or of one of its files or folders, the newest first.
func (h *sourcePages) logPage(c *route.Call) (*Page, error) {
	r, d, err := h.openSource(c)
	if err != nil {
		return nil, err
	}
	p := &Page{Title: "Commits of " + d.Repo, Nav: "repos", Template: "log", Data: d}
	if d.Commit == "" {
		return p, nil
	}
	skip, err := skipOf(c.R.URL.Query(), maxLogCommits)
	if err != nil {
		return nil, err
	}
	o := gitd.LogOptions{Max: skip + shownCommits + 1}
	if d.Path != "" {
		o.Paths = []string{d.Path}
	}
	list, err := r.Log(c.R.Context(), string(d.Commit), o)
	if err != nil {
		return nil, err
	}
	page := func(skip int) string {
		v := url.Values{"at": {d.At}, "path": {d.Path}}
		if skip > 0 {
			v.Set("skip", strconv.Itoa(skip))
		}
		return sourcePath(d.Repo, "log", v)
	}
	if skip > 0 {
		d.First = page(0)
	}
	if len(list) > skip+shownCommits {
		d.Next = page(skip + shownCommits)
	}
	for _, x := range list[min(skip, len(list)):min(skip+shownCommits, len(list))] {
		x.Subject, x.Author.Name = render.OneLine(render.Clean(x.Subject), 200), render.ClipClean(x.Author.Name, 80)
		row := commitRow{Commit: x, Files: sourcePath(d.Repo, "files", url.Values{"at": {string(x.Hash)}, "path": {d.Path}})}
		if caller, err := record.ParseCaller(x.Trailer(record.TrailerCaller)); err == nil {
			// Anybody can write a trailer. The link is shown if there is such a run that the person sees.
			if run, ok := h.executor.Find(caller, x.Trailer(record.TrailerRun)); ok && run.Repo == d.Repo && c.Who.SeesRun(run) &&
				!c.Who.Stranger() {
				row.Run, row.RunPath = run.Caller.String(), runPath(run)
				if run.Head == x.Hash {
					row.Verdict = h.rows.verdictAt(c.R.Context(), run, x.Hash)
				}
			}
		}
		d.Commits = append(d.Commits, row)
	}
	return p, nil
}
