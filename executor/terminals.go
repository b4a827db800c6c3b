package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/terminal"
	"github.com/ramus-dev/ramus/gitd"
)

// A terminal is a run of KindTerminal. Its program is a background command of the caller's container, so it outlives
// this process, and its run has no turn. Each command that a person types there is a step, and is committed like one.

// Bounds of terminals.
const (
	// MaxTerminals is the number of terminals of one caller.
	MaxTerminals = 8
	// terminalKept is how long a terminal that has ended can still be looked at.
	terminalKept = 10 * time.Minute
	// terminalIdle is how long a terminal without viewers, output and input stays open.
	terminalIdle = 12 * time.Hour
	// promptWait is how long a shell waits for the commit of the command before its prompt.
	promptWait = 10 * time.Second
	// promptWaits is the number of such waits at a time.
	promptWaits = 16
	maxName     = 20
)

// TerminalStatus is a terminal of a caller.
type TerminalStatus struct {
	Name    string         `json:"id"`
	Run     string         `json:"run"` // CALLER/RUN
	Caller  record.Caller  `json:"caller"`
	Title   string         `json:"title,omitempty"`
	Command string         `json:"command,omitempty"` // empty for a shell
	By      gitd.Person    `json:"by"`                // who opened it
	Created time.Time      `json:"created"`
	State   terminal.State `json:"state"`
}

// Terminal is an open terminal of a caller, or one that ended a short time ago.
type Terminal struct {
	*terminal.Terminal
	s *shell
}

// Status describes the terminal.
func (t Terminal) Status() TerminalStatus {
	r := t.s.l.Initial
	st := TerminalStatus{Name: t.Name, Run: r.Name(), Caller: r.Caller, By: r.Asker, Created: r.CreatedAt, State: t.State()}
	st.Title = st.State.Title
	if r.Terminal.Command != nil {
		st.Command = r.Command
	}
	return st
}

// OpenTerminal opens a terminal for a caller. It returns once the terminal is claimed. The program starts meanwhile, or
// the terminal ends with a reason. A request whose key or whose name is that of an open terminal returns that one.
func (x *Executor) OpenTerminal(ctx context.Context, r record.Request) (Terminal, error) {
	if r.Terminal == nil {
		return Terminal{}, fmt.Errorf("%w request: it asks for no terminal", record.ErrInvalid)
	}
	release := func() {}
	if !r.Caller.IsZero() {
		var err error
		if release, err = x.runs.lock(ctx, "terminals "+r.Caller.String()); err != nil {
			return Terminal{}, err
		}
	}
	defer release()
	call := *r.Terminal
	open := x.shells.of(r.Caller)
	for _, s := range open {
		if call.Name != "" && s.Name == call.Name && call.Command == nil || r.Key != "" && s.l.Initial.ID == r.Key {
			if r.Permit != nil {
				if err := r.Permit(s.l.Initial, ""); err != nil {
					return Terminal{}, err
				}
			}
			return Terminal{s.Terminal, s}, nil
		}
	}
	if len(open) >= MaxTerminals {
		return Terminal{}, fmt.Errorf("cannot open a terminal for %s: %w: it has %d already; close one", r.Caller,
			record.ErrConflict, MaxTerminals)
	}
	if call.Name == "" {
		for n := 1; ; n++ {
			call.Name = strconv.Itoa(n)
			if x.shells.find(r.Caller, call.Name) == nil {
				break
			}
		}
	}
	r.Terminal = &call
	l, run, err := x.submit(ctx, r, nil)
	if err != nil {
		return Terminal{}, err
	}
	if l == nil || l.terminal == nil {
		return Terminal{}, fmt.Errorf("cannot open the terminal %s: %w: it has ended", run.Name(), record.ErrConflict)
	}
	return Terminal{l.terminal.Terminal, l.terminal}, nil
}

// setTerminal fills in a plan for a terminal.
func (p *plan) setTerminal(call record.TerminalCall) error {
	valid := len(call.Name) > 0 && len(call.Name) <= maxName && call.Name[0] != '-'
	for _, c := range call.Name {
		valid = valid && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if !valid {
		return fmt.Errorf("%w terminal %.100q: a-z, 0-9 and '-', at most %d", record.ErrInvalid, call.Name, maxName)
	}
	p.run.Kind, p.run.Terminal, p.run.Command = record.KindTerminal, &call, "terminal "+call.Name
	if call.Command == nil {
		return nil
	}
	c := *call.Command
	if len(c.Args) == 0 && strings.TrimSpace(c.Shell) == "" {
		return fmt.Errorf("%w request: the command is empty", record.ErrInvalid)
	}
	p.command = call.Command
	var err error
	if c.Env, err = envNames(c.Env); err != nil {
		return err
	}
	c.Stdin = nil
	call.Command, p.run.Command = &c, c.Shell
	if len(c.Args) > 0 {
		p.run.Command = quoteArgs(c.Args)
	}
	return nil
}

// Terminals returns a caller's terminals in the order in which they were opened.
func (x *Executor) Terminals(c record.Caller) []Terminal {
	var list []Terminal
	for _, s := range x.shells.all(c) {
		list = append(list, Terminal{s.Terminal, s})
	}
	return list
}

// Terminal returns a caller's terminal by its name. The error is ErrNotFound.
func (x *Executor) Terminal(c record.Caller, name string) (Terminal, error) {
	if s := x.shells.find(c, name); s != nil {
		return Terminal{s.Terminal, s}, nil
	}
	return Terminal{}, fmt.Errorf("terminal %q of %s: %w", name, c, record.ErrNotFound)
}

// CloseTerminal ends a terminal's program, commits its changes, and forgets the terminal. It returns when that is done.
func (x *Executor) CloseTerminal(ctx context.Context, c record.Caller, name string, by gitd.Person) error {
	s := x.shells.find(c, name)
	if s == nil {
		return fmt.Errorf("terminal %q of %s: %w", name, c, record.ErrNotFound)
	}
	if !s.isOver() {
		if err := x.Stop(ctx, s.l.Initial.Name(), by); err != nil && !errors.Is(err, record.ErrConflict) {
			return err
		}
		select { // it may be ending by itself
		case <-s.l.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	x.shells.remove(s)
	return nil
}

// shells are the terminals of all callers. Its zero value is ready.
type shells struct {
	mu   sync.Mutex // guards all below
	list map[record.Caller][]*shell
}

// add adds the terminal of a run that begins or is resumed.
func (g *shells) add(l *liveRun) *shell {
	call := l.Initial.Terminal
	s := newShell(l, call)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.list == nil {
		g.list = make(map[record.Caller][]*shell)
	}
	c := l.Initial.Caller
	g.list[c] = slices.DeleteFunc(g.list[c], func(o *shell) bool { return o.forgotten() || o.isOver() && o.Name == s.Name })
	g.list[c] = append(g.list[c], s)
	return s
}

// all returns a caller's terminals, also those that have ended.
func (g *shells) all(c record.Caller) []*shell {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := slices.DeleteFunc(g.list[c], (*shell).forgotten)
	if len(list) == 0 {
		delete(g.list, c)
		return nil
	}
	g.list[c] = list
	return slices.Clone(g.list[c])
}

// of returns a caller's terminals that have not ended.
func (g *shells) of(c record.Caller) []*shell {
	return slices.DeleteFunc(g.all(c), (*shell).isOver)
}

// find returns a caller's terminal by its name, or nil.
func (g *shells) find(c record.Caller, name string) *shell {
	for _, s := range g.all(c) {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// remove removes a terminal that has ended.
func (g *shells) remove(s *shell) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := s.l.Initial.Caller
	list := slices.DeleteFunc(g.list[c], func(o *shell) bool { return o == s })
	if len(list) == 0 {
		delete(g.list, c)
		return
	}
	g.list[c] = list
}

// servePrompt answers a shell that asks whether a command is committed, at the door of its container. It answers when
// that is so, or after promptWait. The answer changes no state, so a false question does no harm.
func (g *shells) servePrompt(c record.Caller, w http.ResponseWriter, r *http.Request) {
	name, number, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, terminal.PromptPath), "/")
	n, err := strconv.ParseInt(number, 10, 64)
	s := g.find(c, name)
	if s == nil || err != nil {
		http.Error(w, "ramus: there is no such terminal", http.StatusNotFound)
		return
	}
	if s.asking.Add(1) <= promptWaits {
		s.awaitCommand(r.Context(), n)
	}
	s.asking.Add(-1)
	w.WriteHeader(http.StatusNoContent)
}

// keepShells commits the changes of a caller's terminals if the work tree is about to be brought to another commit. The
// caller has the turn. but is left out.
func (x *Executor) keepShells(ctx context.Context, t *step.Target, but *step.Run) error {
	for _, s := range x.shells.of(t.Caller) {
		if s.l.Run == but {
			continue
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.keep(ctx); err != nil {
			return err
		}
	}
	return nil
}

// syncShells brings the work tree of a caller with terminals to the branch's tip. The caller has the turn.
func (x *Executor) syncShells(ctx context.Context, t *step.Target) error {
	for _, s := range x.shells.of(t.Caller) {
		if s.connected() == nil {
			continue
		}
		lease, _, err := t.Ready(ctx, "", s.l.Initial.Asker, nil)
		if err != nil {
			return fmt.Errorf("cannot bring the work tree of a terminal to the branch: %w", err)
		}
		lease.Release()
		return nil
	}
	return nil
}

// process is a terminal's program in its container.
type process struct{ *containers.Process }

func (p process) Resize(s terminal.Size) error {
	return p.Process.Resize(containers.Window{Rows: s.Rows, Cols: s.Cols})
}
