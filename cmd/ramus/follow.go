package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
)

// followOptions configure the progress of a run that is shown.
type followOptions struct {
	output bool  // show the output of commands while they run
	turns  bool  // with output, show only that of agents; the results of their checks suffice
	json   bool  // print events as JSON, one per line
	after  int64 // leave out events up to this number
}

// follow shows the progress of a run until it has ended or waits for a person, and then its result. An interrupt stops
// the run.
func follow(ctx context.Context, e *env, c *client.Client, r record.Run, o followOptions) error {
	p := &progress{env: e, options: o}
	for event, err := range c.Events(ctx, r.Name(), o.after) {
		if err != nil {
			if ctx.Err() != nil {
				return stopRun(ctx, e, c, r)
			}
			return err
		}
		if o.json {
			if err := e.line(event); err != nil {
				return err
			}
		} else {
			p.show(event)
		}
	}
	r, err := c.Run(ctx, r.Name())
	if err != nil {
		return err
	}
	if !o.json {
		if err := summary(ctx, e, c, r, p); err != nil {
			return err
		}
	}
	if r.State == record.StateFailed {
		return &exitStatus{code: exitFailed}
	}
	return nil
}

func (e *env) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.out, "%s\n", b)
	return err
}

// stopRun stops a run whose follower was interrupted.
func stopRun(ctx context.Context, e *env, c *client.Client, r record.Run) error {
	fmt.Fprintf(e.err, "\nramus: interrupted; stopping %s\n", r.Name())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	if _, err := c.StopRun(ctx, r.Name()); err != nil {
		return err
	}
	return &exitStatus{code: exitInterrupted}
}

// progress prints events as lines for people.
type progress struct {
	*env
	options followOptions
	// start and now are the times of the first and the latest event, which may be in the past.
	start, now time.Time
	agent      bool // the latest step is an agent's turn
	// last is the stream and the step of the last piece of output. Output of another begins on a new line.
	last string
}

// maxQuestion bounds the question of a run, in characters. A question of an agent is shown whole.
const maxQuestion = 8 << 10

func (p *progress) line(node, format string, args ...any) {
	if p.last != "" {
		fmt.Fprintln(p.out)
		p.last = ""
	}
	at := p.colour(dim, fmt.Sprintf("%7s", took(p.now.Sub(p.start))))
	fmt.Fprintf(p.out, "%s  %s  %s\n", at, p.colour(blue, fmt.Sprintf("%-12s", p.oneLine(node, 24))),
		fmt.Sprintf(format, args...))
}

// name returns the name of a step for people: its node, and which of several visits.
func name(ev record.Event) string {
	if ev.Step != "" {
		return ev.Step
	}
	return ev.Node
}

func (p *progress) show(ev record.Event) {
	if p.now = ev.Time; p.start.IsZero() {
		p.start = ev.Time
	}
	switch ev.Type {
	case record.EventStepStarted:
		what := ev.Command
		if what == "" {
			what = ev.Task
		}
		if what == "" {
			what = ev.Kind
		}
		p.line(name(ev), "%s", p.oneLine(what, 100))
		p.agent = ev.Kind == string(record.KindAgent)
	case record.EventOutput:
		if p.options.output && (p.agent || !p.options.turns) {
			if p.last != ev.Kind+ev.Step && p.last != "" {
				fmt.Fprintln(p.out)
			}
			text := p.safe(ev.Message)
			fmt.Fprint(p.out, text)
			p.last = ev.Kind + ev.Step
			if strings.HasSuffix(text, "\n") {
				p.last = ""
			}
		}
	case record.EventStepFinished:
		p.finished(ev)
	case record.EventQueued:
		p.line("", "waiting for a container, position %s in the queue", p.oneLine(ev.Message, 20))
	case record.EventContainer:
		if why, waits := strings.CutPrefix(ev.Message, record.ContainerWaits); waits {
			p.line("", "waiting for a container: %s", p.oneLine(why, 300))
		}
	case record.EventGate:
		p.line(name(ev), "%s", p.colour(yellow, "? "+p.oneLine(ev.Message, maxQuestion)))
		p.offers(ev)
	case record.EventDecision:
		p.line(name(ev), "%s", p.oneLine(decided(ev), 200))
	case record.EventAgent:
		p.agentEvent(ev)
	case record.EventTool:
		p.line(name(ev), "%s", p.colour(dim, "tool "+p.oneLine(ev.Message, 100)))
	case record.EventBrowser:
		p.browserEvent(ev)
	case record.EventEgress:
		if ev.Reason == "refused" {
			p.line("", "%s", p.colour(yellow, "the network refused "+p.oneLine(ev.Message, 100)))
		}
	case record.EventMerge:
		p.merged(ev)
	case record.EventPrompt:
		var prompt record.Prompt
		_ = json.Unmarshal(ev.Data, &prompt) // without Data only the name of the person is missing
		p.line("", "%s", p.oneLine(strings.TrimPrefix(prompt.By.Name+": ", ": ")+ev.Message, 200))
	case record.EventCheck:
		p.line(name(ev), "%s", p.colour(yellow, p.oneLine(strings.ReplaceAll(ev.Reason, "_", " ")+": "+ev.Message, 200)))
	case record.EventQueue:
		p.line("", "%s", p.colour(dim, p.oneLine(ev.Message+" a text that waits", 200)))
	case record.EventInterrupt:
		p.line(name(ev), "%s", p.colour(yellow, "interrupted by "+p.oneLine(ev.Message, 100)))
	case record.EventRecovered, record.EventNote:
		p.line(name(ev), "%s", p.oneLine(ev.Message, 200))
	}
}

// offers shows the answers that an agent accepts.
func (p *progress) offers(ev record.Event) {
	var g record.Gate
	if json.Unmarshal(ev.Data, &g) != nil {
		return
	}
	for _, o := range g.Options {
		p.line(name(ev), "%s", p.colour(dim, fmt.Sprintf("  --option %s: %s", p.oneLine(o.ID, 60), p.oneLine(o.Name, 100))))
	}
}

// agentEvent shows an event of an agent. A tool call is shown once, when it begins.
func (p *progress) agentEvent(ev record.Event) {
	switch ev.Kind {
	case "tool_call", "plan":
		p.line(name(ev), "%s", p.colour(dim, p.oneLine(ev.Message, 100)))
	case "permission":
		if strings.HasPrefix(ev.Message, agent.PermissionDeny) {
			p.line(name(ev), "%s", p.colour(yellow, p.oneLine(ev.Message, 200)))
		}
	}
}

// browserEvent shows the result of a browser check.
func (p *progress) browserEvent(ev record.Event) {
	var c record.BrowserCheck
	_ = json.Unmarshal(ev.Data, &c) // without Data only the reason is missing
	colour := yellow
	switch c.Verdict {
	case record.BrowserPass:
		colour = green
	case record.BrowserFail:
		colour = red
	}
	p.line(name(ev), "%s", p.colour(colour, "browser "+p.oneLine(ev.Message+" "+ev.Reason+": "+c.Reason, 300)))
}

func decided(ev record.Event) string {
	var d record.Decision
	if err := json.Unmarshal(ev.Data, &d); err != nil {
		return ev.Message
	}
	word := "rejected"
	if d.Approved {
		word = "approved"
	}
	if d.Option != "" {
		word += fmt.Sprintf(" (%s)", d.Option)
	}
	if d.By != "" {
		word += " by " + d.By
	}
	if d.Comment != "" {
		word += ": " + d.Comment
	}
	return word
}

func (p *progress) finished(ev record.Event) {
	ok := ev.OK == nil || *ev.OK
	var parts []string
	switch {
	case ev.Exit != nil:
		parts = append(parts, fmt.Sprintf("exit %d", *ev.Exit))
		ok = ok && *ev.Exit == 0
	case ok:
		parts = append(parts, "ok")
	default:
		parts = append(parts, "failed")
	}
	if ev.Reason != "" {
		parts = append(parts, p.oneLine(ev.Reason, 40))
	}
	mark, paint := "✓", green
	if !ok {
		mark, paint = "✗", red
	}
	text := p.colour(paint, mark+" "+strings.Join(parts, ", ")) + "  " + took(time.Duration(ev.DurationMS)*time.Millisecond)
	if ev.Commit != "" {
		text += "  " + p.colour(yellow, short(string(ev.Commit)))
	}
	p.line(name(ev), "%s", text)
	if shown := p.options.output && (p.agent || !p.options.turns); !ok && !shown {
		for _, s := range []*record.Stream{ev.Stdout, ev.Stderr} {
			if s != nil {
				p.tail(s.Tail)
			}
		}
		if ev.Message != "" {
			p.tail(ev.Message)
		}
	}
}

// tail shows the last lines of the output of a failed command.
func (p *progress) tail(text string) {
	const most = 12
	text = strings.TrimRight(p.safe(text), "\n")
	if strings.TrimSpace(text) == "" {
		return
	}
	lines := strings.Split(text, "\n")
	for _, l := range lines[max(0, len(lines)-most):] {
		fmt.Fprintf(p.out, "         %s %s\n", p.colour(dim, "|"), l)
	}
}

func (p *progress) merged(ev record.Event) {
	var m record.LandedAll
	if json.Unmarshal(ev.Data, &m) != nil {
		return
	}
	switch {
	case len(m.With) > 0 && m.InTheWay():
		p.line("merge", "%s", p.colour(red, "✗ "+p.oneLine(m.String(), 1000)))
	case len(m.With) > 0:
		p.line("merge", "%s", p.colour(green, "✓ "+p.oneLine(m.String(), 1000)))
	case m.Pull != nil:
		p.line("merge", "%s", p.colour(green, "✓ "+p.oneLine(m.String(), 400)))
	case m.Merged:
		p.line("merge", "%s  %s", p.colour(green, "✓ merged"), p.colour(yellow, short(string(m.Commit))))
	case len(m.Conflicts) > 0:
		p.line("merge", "%s", p.colour(red, "✗ conflict in "+p.oneLine(strings.Join(m.Conflicts, ", "), 200)))
	}
}

// summary prints the result of a run, and commands for the next steps.
func summary(ctx context.Context, e *env, c *client.Client, r record.Run, p *progress) error {
	word := e.colour(green, string(r.State))
	switch {
	case r.Gate != nil:
		word = e.colour(yellow, string(r.State))
	case r.State == record.StateFailed:
		word = e.colour(red, string(r.State))
		if r.Reason != "" {
			word += " (" + string(r.Reason) + ")"
		}
	}
	commits := 0
	if r.Head != "" && r.Head != r.Start {
		list, err := c.Commits(ctx, r.Repo, string(r.Head), string(r.Start))
		if err != nil {
			return err
		}
		commits = len(list)
	}
	fmt.Fprintf(e.out, "\n%s  %s in %s, %s on %s\n", e.colour("1", e.oneLine(r.Name(), 200)), word,
		took(p.now.Sub(p.start)), count(commits, "commit"), e.oneLine(r.Branch, 200))
	if r.Error != "" && r.Gate == nil {
		fmt.Fprintf(e.out, "  %s\n", e.oneLine(r.Error, 400))
	}
	if r.Hint != "" {
		fmt.Fprintf(e.out, "  hint: %s\n", e.oneLine(r.Hint, 400))
	}
	if r.Gate != nil {
		fmt.Fprintf(e.out, "  waiting for a person: %s\n  continue with: ramus approve %s   (or --reject)\n",
			e.oneLine(r.Gate.Message, maxQuestion), r.Name())
	}
	if r.Merged != "" {
		fmt.Fprintf(e.out, "  merged into %s at %s\n", e.oneLine(r.Base, 100), short(string(r.Merged)))
	}
	if r.Pull != nil {
		fmt.Fprintf(e.out, "  pull request #%d: %s\n", r.Pull.Number, e.oneLine(r.Pull.URL, 400))
	}
	if commits > 0 {
		if err := c.Diff(ctx, r.Caller.String(), true, nil, &indented{e: e}); err != nil {
			return err
		}
	}
	line, err := cloneLine(ctx, c, r.Repo, r.Branch)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "\n  %s\n", line)
	return nil
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// indented writes text for people with an indentation of two columns.
type indented struct {
	e   *env
	mid bool // in the middle of a line
}

func (w *indented) Write(b []byte) (int, error) {
	for _, line := range strings.SplitAfter(w.e.safe(string(b)), "\n") {
		if line == "" {
			continue
		}
		if !w.mid {
			if _, err := io.WriteString(w.e.out, "  "); err != nil {
				return 0, err
			}
		}
		if _, err := io.WriteString(w.e.out, line); err != nil {
			return 0, err
		}
		w.mid = !strings.HasSuffix(line, "\n")
	}
	return len(b), nil
}
