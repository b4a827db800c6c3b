package pushed

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
)

// Bounds of the lines that a push shows.
const (
	maxLine   = 500  // bytes
	maxOutput = 2000 // lines of outputs
)

// screen shows lines to the person who pushes. An error of out cancels the push, so it is not looked at here.
type screen struct {
	out    io.Writer         // nil for nobody
	open   map[string]string // by step and stream, the last line of the output, which has no end yet
	output int               // lines of outputs that were shown
}

// line shows a line. Texts in it may come from anybody.
func (s *screen) line(format string, args ...any) {
	if s.out != nil {
		text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
		_, _ = io.WriteString(s.out, "ramus: "+render.ClipClean(text, maxLine)+"\n")
	}
}

// event shows an event of the run.
func (s *screen) event(e record.Event) {
	switch e.Type {
	case record.EventQueued:
		s.line("waits: %s", e.Message)
	case record.EventStepStarted:
		what := e.Command
		if what == "" {
			what = e.Task
		}
		s.line("%s  %s", e.Step, what)
	case record.EventOutput:
		s.print(e.Step+" "+e.Kind, e.Message)
	case record.EventStepFinished:
		s.flush(e.Step+" stdout", e.Stdout)
		s.flush(e.Step+" stderr", e.Stderr)
		result := ""
		if e.Exit != nil {
			result = fmt.Sprintf("exit %d, ", *e.Exit)
		}
		if e.Reason != "" {
			result += e.Reason + ", "
		}
		s.line("%s  %s%s", e.Step, result, render.Duration(time.Duration(e.DurationMS)*time.Millisecond))
	case record.EventGate:
		s.line("a question: %s", e.Message)
	}
}

// print shows the whole lines of a part of an output.
func (s *screen) print(of, part string) {
	if s.out == nil || s.output > maxOutput {
		return
	}
	if s.open == nil {
		s.open = map[string]string{}
	}
	text := s.open[of] + part
	for {
		line, rest, ended := strings.Cut(text, "\n")
		if !ended && len(text) < maxLine {
			break
		}
		text = rest
		s.show(line)
	}
	s.open[of] = text
}

// flush shows the rest of an output that has ended. Of an output that had ended before anybody looked, its end is
// shown.
func (s *screen) flush(of string, whole *record.Stream) {
	if _, seen := s.open[of]; !seen && whole != nil {
		s.print(of, whole.Tail)
	}
	if rest := s.open[of]; rest != "" {
		s.show(rest)
	}
	delete(s.open, of)
}

// show shows a line of an output.
func (s *screen) show(line string) {
	switch s.output++; {
	case s.output == maxOutput+1:
		s.line("there is more output, which `ramus follow` and the evidence have")
	case s.output <= maxOutput:
		_, _ = io.WriteString(s.out, "  "+render.ClipClean(line, maxLine)+"\n")
	}
}

// end shows the result of the run.
func (s *screen) end(r record.Run) {
	took := render.Duration(r.EndedAt.Sub(r.CreatedAt))
	switch {
	case !r.Ended():
		s.line("%s waits for an answer: `ramus approve %s`", r.Name(), r.Name())
	case r.State == record.StateComplete:
		s.line("complete in %s", took)
	default:
		s.line("FAILED after %s (%s): %s", took, r.Reason, r.Error)
		if r.Hint != "" {
			s.line("%s", r.Hint)
		}
	}
	if r.Ended() && r.Changed() {
		s.line("`git fetch origin %s` brings its commits", r.Branch)
	}
}
