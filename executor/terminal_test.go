package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/shell"
	"github.com/ramus-dev/ramus/executor/terminal"
	"github.com/ramus-dev/ramus/gitd"
)

var ada = gitd.Person{Name: "Ada", Email: "ada@example.com"}

// person is somebody at a terminal.
type person struct {
	w    *world
	v    *terminal.Viewer
	term *shell.Shell
	out  bytes.Buffer
	done []terminal.Done
	last terminal.State
}

// openTerminal opens a terminal, or finds it.
func (w *world) openTerminal(name string, call record.TerminalCall) *person {
	w.t.Helper()
	term, err := w.x.OpenTerminal(w.t.Context(),
		record.Request{Caller: caller(w.t, name), Repo: "demo", Terminal: &call, Asker: ada})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.sit(term, 0)
}

// sit looks at a terminal from an offset.
func (w *world) sit(term *shell.Shell, have int64) *person {
	w.t.Helper()
	v, err := term.View(terminal.ViewOptions{Have: have, Person: ada})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(v.Close)
	return &person{w: w, v: v, term: term}
}

// until reads until ok.
func (p *person) until(what string, ok func() bool) {
	p.w.t.Helper()
	ctx, cancel := context.WithTimeout(p.w.t.Context(), time.Minute)
	defer cancel()
	for !ok() {
		item, err := p.v.Next(ctx)
		if err != nil {
			p.w.t.Fatalf("%s: %v\nstate %+v, done %+v\n%q", what, err, p.last, p.done, p.out.String())
		}
		switch item.Kind {
		case terminal.ItemState:
			p.last = item.State
		case terminal.ItemOutput:
			p.out.Write(item.Data)
			p.v.Ack(item.Offset + int64(len(item.Data)))
		case terminal.ItemDone:
			p.done = append(p.done, item.Done)
		case terminal.ItemReset:
			p.w.t.Fatalf("%s: a reset (%s)", what, item.Reason)
		}
	}
}

// prompts waits until the shell has asked n times for a command.
func (p *person) prompts(n int) {
	p.w.t.Helper()
	p.until(fmt.Sprintf("prompt %d", n), func() bool { return strings.Count(p.out.String(), "\x1b]633;B\x07") >= n })
}

func (p *person) typed(text string) {
	p.w.t.Helper()
	if err := p.v.Input(p.w.t.Context(), []byte(text)); err != nil {
		p.w.t.Fatal(err)
	}
}

// TestTerminalCommits types three commands at once. Each is a commit of the person, also those that were typed while the server
// was restarted around them.
func TestTerminalCommits(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, engine string) {
		w := newWorldOn(t, engine, nil)
		p := w.openTerminal("run:typing", record.TerminalCall{})
		p.prompts(1)
		p.typed("echo one >>greeting.txt\necho two >two; false\nls\n")
		p.until("three commands", func() bool { return len(p.done) == 3 })
		if p.done[0].Commit == "" || p.done[1].Commit == "" || p.done[1].Exit != 1 || p.done[2].Commit != "" {
			t.Fatalf("done %+v", p.done)
		}
		log := w.inRepo("log", "--format=%an|%s|%(trailers:key=Ramus-Step,valueonly,separator=%x2C)|%(trailers:key=Ramus-Exit,valueonly,separator=%x2C)", "main..ramus/run-typing")
		if log != "Ada|echo two >two; false|shell/1|1\nAda|echo one >>greeting.txt|shell/1|0" {
			t.Errorf("log\n%s", log)
		}
		if got := w.inRepo("show", p.done[0].Commit+":greeting.txt"); got != "hello\none" {
			t.Errorf("the first commit has %q", got)
		}

		// A command of the caller works while the terminal is open, and has the files that the terminal made.
		if res, out, _ := w.exec("run:typing", "cat two; echo three >three"); out != "two\n" || res.Commit == "" {
			t.Errorf("exec: %+v %q", res, out)
		}
		p.typed("cat three; echo four >four\n")
		p.until("the fourth", func() bool { return len(p.done) == 4 })
		if p.done[3].Commit == "" {
			t.Errorf("done %+v", p.done[3])
		}

		// After a restart of the server the program goes on, and so does its output.
		p.prompts(5)
		p.typed("until [ -e go ]; do sleep 0.05; done; echo went on >went\n")
		p.until("the echo", func() bool { return strings.Contains(p.out.String(), "went on") })
		have := int64(p.out.Len())
		before := p.out.String()
		p.v.Close()
		w.stop(true)
		w.start()
		term, err := w.x.Shells.Named(caller(t, "run:typing"), "1")
		if err != nil {
			t.Fatal(err)
		}
		p = w.sit(term, -1)
		p.until("the earlier output", func() bool { return int64(p.out.Len()) >= have })
		if !strings.HasPrefix(p.out.String(), before) {
			t.Errorf("after the restart %q, before %q", p.out.String(), before)
		}
		if err := w.x.Touch(t.Context(), "run:typing", "go"); err != nil {
			t.Fatal(err)
		}
		p.until("the command over the restart", func() bool { return len(p.done) == 1 })
		if p.done[0].Commit == "" || w.inRepo("show", "ramus/run-typing:went") != "went on" {
			t.Errorf("done %+v", p.done)
		}
		if got := w.inRepo("log", "--format=%s", "main..ramus/run-typing"); strings.Count(got, "\n") != 4 {
			t.Errorf("commits\n%s", got)
		}

		// Going back changes the files under the terminal.
		first := strings.Fields(w.inRepo("log", "--reverse", "--format=%H", "main..ramus/run-typing"))[0]
		if _, err := w.x.Rollback(t.Context(), "run:typing", first, ada); err != nil {
			t.Fatal(err)
		}
		p.prompts(6)
		p.typed("ls two; exit 7\n")
		p.until("the end", func() bool { return !p.last.Running && len(p.done) >= 2 })
		if !strings.Contains(p.out.String(), "cannot access 'two'") && !strings.Contains(p.out.String(), "two: No such file") {
			t.Errorf("after going back %q", p.out.String())
		}
		r := w.ended(term.Status().Run)
		if r.State != record.StateComplete || r.ExitCode() != 7 {
			t.Errorf("%s %s %s, exit %d\n%s", r.State, r.Reason, r.Error, r.ExitCode(), w.journal(r.Name()))
		}
		if out := w.stdout(r.Name(), "shell/1/3"); !strings.Contains(out, "greeting.txt") {
			t.Errorf("the output of ls: %q", out)
		}
	})
}

// TestTerminalQuiet runs a program without marks. Its changes are committed while it is quiet, and at its end.
func TestTerminalQuiet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(x *executor.Executor) { x.SetQuiet(40 * time.Millisecond) })
	p := w.openTerminal("run:quiet",
		record.TerminalCall{Command: &record.Command{Args: []string{"sh", "-c",
			"echo half >file; read line; echo $line >file; exit 3"}}})
	for w.inRepo("for-each-ref", "--format=x", "refs/heads/ramus/run-quiet") == "" ||
		w.inRepo("ls-tree", "--name-only", "ramus/run-quiet", "file") == "" {
		time.Sleep(20 * time.Millisecond)
	}
	if got := w.inRepo("log", "-1", "--format=%an %(trailers:key=Ramus-Step,valueonly)", "ramus/run-quiet"); got != "Ada shell/1" {
		t.Errorf("the commit in the middle: %q", got)
	}
	p.typed("whole\n")
	p.until("the end", func() bool { return !p.last.Running && len(p.done) == 1 })
	if p.done[0].Exit != 3 || p.done[0].Commit == "" || w.inRepo("show", "ramus/run-quiet:file") != "whole" {
		t.Errorf("done %+v", p.done)
	}
	if r := w.ended(p.term.Status().Run); r.State != record.StateFailed || r.Reason != record.ReasonCommandFailed {
		t.Errorf("%s %s", r.State, r.Reason)
	}
}

// TestTerminalEnds closes a terminal, and loses a container.
func TestTerminalEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	c := caller(t, "run:ends")
	p := w.openTerminal("run:ends", record.TerminalCall{})
	p.prompts(1)
	same := w.openTerminal("run:ends", record.TerminalCall{Name: "1"})
	if same.term.Status().Run != p.term.Status().Run {
		t.Error("the name opens another terminal")
	}
	p.typed("echo x >x; sleep 100\n")
	p.until("the echo", func() bool { return strings.Contains(p.out.String(), "\x1b]633;C") })
	if err := w.x.Shells.Close(t.Context(), c, "1", ada); err != nil {
		t.Fatal(err)
	}
	if got := w.inRepo("show", "ramus/run-ends:x"); got != "x" {
		t.Errorf("x: %q", got)
	}
	if len(w.x.Shells.All(c)) != 0 {
		t.Error("it is still listed")
	}
	if st := p.term.State(); st.Running || !st.Stopped {
		t.Errorf("a terminal that was closed: %+v", st)
	}
	p = w.openTerminal("run:ends", record.TerminalCall{})
	p.prompts(1)
	if err := w.x.Fleet.Remove(t.Context(), c.String()); err != nil {
		t.Fatal(err)
	}
	p.until("the end", func() bool { return !p.last.Running })
	if r := w.ended(p.term.Status().Run); r.Reason != record.ReasonContainerLost || p.last.Stopped {
		t.Errorf("%s %s, stopped %v", r.State, r.Reason, p.last.Stopped)
	}
	for n := range shell.Max + 1 {
		_, err := w.x.OpenTerminal(t.Context(), record.Request{Caller: c, Repo: "demo",
			Terminal: &record.TerminalCall{Command: &record.Command{Shell: "sleep 100"}}, Asker: ada})
		if (err != nil) != (n == shell.Max) {
			t.Errorf("terminal %d: %v", n+1, err)
		}
	}
	if err := w.x.Stop(t.Context(), "run:ends", ada); err != nil {
		t.Error(err)
	}
}
