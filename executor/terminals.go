package executor

import (
	"context"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/shell"
)

// maxName bounds the name of a terminal, in bytes.
const maxName = 20

// OpenTerminal opens a terminal for a caller. It returns once the terminal is claimed. The program starts meanwhile, or
// the terminal ends with a reason. A request whose key or whose name is that of an open terminal returns that one.
func (x *Executor) OpenTerminal(ctx context.Context, r record.Request) (*shell.Shell, error) {
	if r.Terminal == nil {
		return nil, fmt.Errorf("%w request: it asks for no terminal", record.ErrInvalid)
	}
	release := func() {}
	if !r.Caller.IsZero() {
		var err error
		if release, err = x.runs.lock(ctx, "terminals "+r.Caller.String()); err != nil {
			return nil, err
		}
	}
	defer release()
	call := *r.Terminal
	open := x.Shells.Open(r.Caller)
	for _, s := range open {
		if call.Name != "" && s.Name == call.Name && call.Command == nil || r.Key != "" && s.Run().ID == r.Key {
			if r.Permit != nil {
				if err := r.Permit(s.Run(), ""); err != nil {
					return nil, err
				}
			}
			return s, nil
		}
	}
	if len(open) >= shell.Max {
		return nil, fmt.Errorf("cannot open a terminal for %s: %w: it has %d already; close one", r.Caller,
			record.ErrConflict, shell.Max)
	}
	if call.Name == "" {
		call.Name = x.Shells.FreeName(r.Caller)
	}
	r.Terminal = &call
	l, run, err := x.submit(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	if l == nil || l.terminal == nil {
		return nil, fmt.Errorf("cannot open the terminal %s: %w: it has ended", run.Name(), record.ErrConflict)
	}
	return l.terminal, nil
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
