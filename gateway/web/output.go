package web

import (
	"context"
	"html/template"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Limits of the page of an output.
const (
	shownLines    = 500
	linesBefore   = 50      // the shown line
	maxShownLine  = 4 << 10 // bytes of one line
	maxOutputLine = 1 << 40
	maxColours    = 800 // elements of one part, other than lines
	listedGroups  = 200
	chunkLines    = 50
	partLines     = 250 // of a part that scripts load
)

// outputData is the data of the page of an output. All texts are clean.
type outputData struct {
	Run                       record.Run
	Title, RunPath            string
	Workspace, WorkspacePath  string
	Path                      string // of the page, without parameters
	Step, Stream, Other       string // Other is the path of the other stream
	StepName                  string // as it is
	Blocks                    []outputBlock
	Shown                     int64  // the line that the page was opened at, or 0
	From, To, Total           int64  // the numbers of the first and the last line that are shown, and of all lines
	First, Before, Next, Last string // paths of other parts
	// PartBefore and PartNext are the paths of parts for the window of scripts, and Again that of the part which begins with the last line.
	PartBefore, PartNext, Again string
	Whole                       string // the path of all of it as a file
	Working                     bool
	Groups                      []foundIn
	Query                       string
	Found                       []foundIn
	More                        string // the path of further lines with the words
}

// outputBlock has lines that follow each other, of one group or of none.
type outputBlock struct {
	Group  *outputGroup
	Chunks []outputChunk
}

// outputChunk has lines that a browser lays out together.
type outputChunk []outputLine

// Full reports whether the chunk has as many lines as chunks have.
func (c outputChunk) Full() bool { return len(c) == chunkLines }

func (b *outputBlock) add(l outputLine) {
	if n := len(b.Chunks); n == 0 || b.Chunks[n-1].Full() {
		b.Chunks = append(b.Chunks, make(outputChunk, 0, chunkLines))
	}
	last := &b.Chunks[len(b.Chunks)-1]
	*last = append(*last, l)
}

type outputLine struct {
	Number int64
	HTML   template.HTML
	Shown  bool // the line that the page was opened at
}

// outputPath returns the path of a line of an output.
func outputPath(r record.Run, step, stream string, line int64) string {
	v := url.Values{"step": {step}, "stream": {stream}}
	at := ""
	if line > 0 {
		v.Set("line", itoa(line))
		at = "#L" + itoa(line)
	}
	return runPath(r) + "/output?" + v.Encode() + at
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// lineNumber returns a parameter that is the number of a line, and 0 if it is missing.
func lineNumber(q url.Values, name string) (int64, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n >= maxOutputLine {
		return 0, route.NewProblem(route.KindInvalid, "the line %.40q is no number of a line", text)
	}
	return n, nil
}

// outputPages serves the output of steps.
type outputPages struct {
	finder   *finder
	executor *executor.Executor
	indexes  outputIndexes
}

func (h *outputPages) register(t *table) {
	t.page("/workspaces/{workspace}/runs/{run}/output", "A part of the output of a step, by the number of a line", h.outputPage)
	t.file("/workspaces/{workspace}/runs/{run}/output/file", "The whole output of a step, as a file for people", route.MediaBytes, h.sendOutput)
}

// outputPage shows a part of the output of a step. The parameter line is the line that is wanted, or "last", and from and to are the lines of a part. The
// parameter q has words to find in the whole output, in lines after the one that the parameter after names.
func (h *outputPages) outputPage(c *route.Call) (*Page, error) {
	s, r, err := h.finder.namedRun(c)
	if err != nil {
		return nil, err
	}
	q := c.R.URL.Query()
	d := &outputData{Run: r, Title: runTitle(r), RunPath: runPath(r), Workspace: s.Name, WorkspacePath: workspacePath(s.ID),
		Path: runPath(r) + "/output", StepName: q.Get("step"), Step: render.OneLine(q.Get("step"), 80), Stream: q.Get("stream"), Working: !r.Ended(),
		Query: strings.TrimSpace(q.Get("q"))}
	if d.Stream == "" {
		d.Stream = "stdout"
	}
	other := "stderr"
	if d.Stream == other {
		other = "stdout"
	}
	d.Other = outputPath(r, d.StepName, other, 0)
	d.Whole = d.Path + "/file?" + url.Values{"step": {d.StepName}, "stream": {d.Stream}}.Encode()
	opened, err := h.executor.Output(c.R.Context(), r.Name(), d.StepName, d.Stream)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	out, ok := opened.(io.ReadSeeker)
	if !ok {
		out = strings.NewReader("") // it printed nothing
	}
	if err := h.showLines(d, out, q); err != nil {
		return nil, err
	}
	if err := d.find(c.R.Context(), out, q); err != nil {
		return nil, err
	}
	p := &Page{Title: d.Step + " of " + d.Title, Nav: "workspaces", Template: "output", Data: d}
	if d.Working && d.Next == "" {
		p.Refresh = 10
	}
	return p, nil
}

// sendOutput sends the whole output of a step as a file.
func (h *outputPages) sendOutput(c *route.Call) error {
	_, r, err := h.finder.namedRun(c)
	if err != nil {
		return err
	}
	step, stream := c.R.URL.Query().Get("step"), c.R.URL.Query().Get("stream")
	out, err := h.executor.Output(c.R.Context(), r.Name(), step, stream)
	if err != nil {
		return err
	}
	defer out.Close()
	page.MarkPrivate(c.W.Header())
	c.MarkAttachment(step + "." + stream)
	if _, err := io.Copy(c.W, out); err != nil {
		return c.CutShort(err)
	}
	return nil
}

// showLines fills in the lines that the parameters name.
func (h *outputPages) showLines(d *outputData, out io.ReadSeeker, q url.Values) (err error) {
	index := h.indexes.of(d.Run.Repo + " " + d.Run.Name() + " " + d.Stream + " " + d.StepName)
	if d.Total, err = index.read(out); err != nil {
		return err
	}
	from, err := lineNumber(q, "from")
	if err != nil {
		return err
	}
	to, err := lineNumber(q, "to")
	if err != nil {
		return err
	}
	if from == 0 { // the page is full, if there are enough lines
		from = maxOutputLine
		if q.Get("line") != "last" {
			if d.Shown, err = lineNumber(q, "line"); err != nil {
				return err
			}
			from = d.Shown - linesBefore
		}
		from = max(1, min(from, d.Total-shownLines+1))
	}
	if to == 0 || to > from+shownLines-1 {
		to = from + shownLines - 1
	}
	p, err := index.readPart(out, from, to)
	if err != nil {
		return err
	}
	d.setBlocks(p)
	d.setParts(p)
	return nil
}

// setBlocks divides the lines of a part by their groups.
func (d *outputData) setBlocks(p outputPart) {
	shown := markup.Lines(p.lines, maxColours)
	for i, html := range shown {
		number := p.first + int64(i)
		g := p.groups[number]
		if n := len(d.Blocks); n == 0 || first(g) != first(d.Blocks[n-1].Group) {
			d.Blocks = append(d.Blocks, outputBlock{Group: clean(g)})
		}
		if g != nil && (number == g.First || endsGroup([]byte(p.lines[i]))) {
			continue // the mark is the head of the group
		}
		d.Blocks[len(d.Blocks)-1].add(outputLine{Number: number, HTML: html, Shown: number == d.Shown})
	}
	for _, g := range p.all[:min(len(p.all), listedGroups)] {
		d.Groups = append(d.Groups, foundIn{Number: g.First, Path: outputPath(d.Run, d.StepName, d.Stream, g.First),
			Text: []piece{{Text: render.OneLine(render.Clean(g.Name), 200)}}})
	}
}

// first returns the line with which a group begins, and 0 for no group.
func first(g *outputGroup) int64 {
	if g == nil {
		return 0
	}
	return g.First
}

// clean returns a group with a name for people.
func clean(g *outputGroup) *outputGroup {
	if g == nil {
		return nil
	}
	return &outputGroup{Name: render.OneLine(render.Clean(g.Name), 200), First: g.First, Last: g.Last}
}

// setParts sets the links to other parts.
func (d *outputData) setParts(p outputPart) {
	if len(p.lines) == 0 {
		return
	}
	part := func(from, to int64) string {
		v := url.Values{"step": {d.StepName}, "stream": {d.Stream}, "from": {itoa(from)}}
		if to > 0 {
			v.Set("to", itoa(to))
		}
		return d.Path + "?" + v.Encode()
	}
	d.From, d.To, d.Total = p.first, p.first+int64(len(p.lines))-1, p.total
	if d.From > 1 {
		d.First, d.Before = outputPath(d.Run, d.StepName, d.Stream, 0), part(max(1, d.From-shownLines), d.From-1)
		d.PartBefore = part(max(1, d.From-partLines), d.From-1)
	}
	if d.To < d.Total {
		d.Next, d.PartNext = part(d.To+1, 0), part(d.To+1, d.To+partLines)
		d.Last = d.Path + "?" + url.Values{"step": {d.StepName}, "stream": {d.Stream}, "line": {"last"}}.Encode()
	}
	d.Again = part(d.To, 0)
}

// find fills in the lines with the words of the parameter q.
func (d *outputData) find(ctx context.Context, out io.ReadSeeker, q url.Values) error {
	if d.Query == "" {
		return nil
	}
	if len(d.Query) > 400 {
		return route.NewProblem(route.KindInvalid, "the words have %d bytes: want 400 at most", len(d.Query))
	}
	after, err := lineNumber(q, "after")
	if err != nil {
		return err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return err
	}
	with := func(v url.Values) string {
		v.Set("step", d.StepName)
		v.Set("stream", d.Stream)
		v.Set("q", d.Query)
		return d.Path + "?" + v.Encode()
	}
	return findIn(ctx, out, d.Query, after, func(number int64, line []byte) bool {
		if len(d.Found) == maxFound {
			v := url.Values{"after": {itoa(d.Found[maxFound-1].Number)}}
			d.More = with(v)
			return false
		}
		v := url.Values{"line": {itoa(number)}}
		if after > 0 {
			v.Set("after", itoa(after))
		}
		text := strings.TrimRight(string(line[:min(len(line), maxFoundLine)]), "\r\n")
		d.Found = append(d.Found, foundIn{Number: number, Path: with(v) + "#L" + itoa(number),
			Text: markWords(render.Clean(text), []string{d.Query})})
		return true
	})
}
