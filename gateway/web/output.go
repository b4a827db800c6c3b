package web

import (
	"bufio"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Limits of the page of an output.
const (
	shownLines    = 500
	linesBefore   = 50      // the shown line
	maxShownLine  = 4 << 10 // bytes of one line
	maxOutputLine = 1 << 40
)

// outputData is the data of the page of an output. All texts are clean.
type outputData struct {
	Run                       record.Run
	Title, RunPath            string
	Workspace, WorkspacePath  string
	Step, Stream, Other       string // Other is the path of the other stream
	Lines                     []outputLine
	First, Before, Next, Last string // paths of other parts
	Whole                     string // the path of all of it as a file
	Working                   bool
}

type outputLine struct {
	Number int64
	Text   string
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

// outputPage shows a part of the output of a step. The parameter line is the line that is wanted, and 0 or "last" is the end.
func (api *API) outputPage(c *route.Call) (*Page, error) {
	s, r, err := api.namedRun(c)
	if err != nil {
		return nil, err
	}
	q := c.R.URL.Query()
	step, stream := q.Get("step"), q.Get("stream")
	if stream == "" {
		stream = "stdout"
	}
	wanted := int64(1)
	if text := q.Get("line"); text == "last" {
		wanted = maxOutputLine
	} else if text != "" {
		if wanted, err = strconv.ParseInt(text, 10, 64); err != nil || wanted < 1 || wanted >= maxOutputLine {
			return nil, route.NewProblem(route.KindInvalid, "the line %.40q is no number of a line", text)
		}
	}
	out, err := api.Executor.Output(c.R.Context(), r.Name(), step, stream)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	lines, more, err := readLines(out, wanted)
	if err != nil {
		return nil, err
	}
	d := &outputData{Run: r, Title: runTitle(r), RunPath: runPath(r), Workspace: s.Name, WorkspacePath: workspacePath(s.ID),
		Step: render.OneLine(step, 80), Stream: stream, Lines: lines, Working: !r.Ended(),
		Whole: "/api/runs/" + url.PathEscape(r.Name()) + "/output/" + url.PathEscape(step) + "/" + stream}
	other := "stderr"
	if stream == other {
		other = "stdout"
	}
	d.Other = outputPath(r, step, other, 0)
	if len(lines) > 0 {
		if first := lines[0].Number; first > 1 {
			d.First, d.Before = outputPath(r, step, stream, 0), outputPath(r, step, stream, max(1, first-shownLines+linesBefore))
		}
		if q.Get("line") != "" && wanted < maxOutputLine {
			for i := range lines {
				lines[i].Shown = lines[i].Number == wanted
			}
		}
	}
	if more {
		d.Next = outputPath(r, step, stream, lines[len(lines)-1].Number+1)
		d.Last = runPath(r) + "/output?" + url.Values{"step": {step}, "stream": {stream}, "line": {"last"}}.Encode()
	}
	p := &Page{Title: d.Step + " of " + d.Title, Nav: "workspaces", Template: "output", Data: d}
	if d.Working && !more {
		p.Refresh = 10
	}
	return p, nil
}

// readLines returns the lines from linesBefore before a line on, and whether there are more. If the output has not so many, they are its last
// ones. It reads all up to them, and keeps no more than it returns.
func readLines(from io.Reader, wanted int64) (lines []outputLine, more bool, err error) {
	in := bufio.NewReaderSize(from, 64<<10)
	last := max(1, wanted-linesBefore) + shownLines - 1
	var (
		ring   [shownLines][]byte // the last lines; each at its number
		number int64              // of the last line
	)
	for begins := true; number < last || !begins; {
		part, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return nil, false, err
		}
		if len(part) > 0 && begins {
			number++
			ring[number%shownLines] = ring[number%shownLines][:0]
		}
		line := &ring[number%shownLines]
		if room := maxShownLine - len(*line); room > 0 {
			*line = append(*line, part[:min(room, len(part))]...)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		begins = err == nil
	}
	for n := max(1, number-shownLines+1); n <= number; n++ {
		text := strings.TrimRight(string(ring[n%shownLines]), "\r\n")
		lines = append(lines, outputLine{Number: n, Text: render.Clean(text)})
	}
	_, err = in.Peek(1)
	return lines, err == nil, nil
}
