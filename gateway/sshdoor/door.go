package sshdoor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/shell"
	"github.com/ramus-dev/ramus/executor/terminal"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/sshd"
)

// exitFailed is the exit status if ramus itself failed, as that of `ramus exec`.
const exitFailed = 125

// Door opens callers' containers. Its fields must not change after the first login.
type Door struct {
	Executor *executor.Executor
	// Veil hides the work of other people, see [route.Mux.Veil]. Nil hides nothing.
	Veil func(g gitd.Grant, repo string) gitd.Veil
	Log  *slog.Logger
}

var _ sshd.Workspaces = (*Door)(nil)

// OpenWorkspace returns the caller of a user's name: its id, "run:ID" or the name of its workspace. The name is never
// completed, since the names of git's users are free.
func (d *Door) OpenWorkspace(_ context.Context, user string, grant func(repo string) (gitd.Grant, bool)) sshd.Workspace {
	name := user
	if of, ok := workspace.CallerOf(user); ok {
		name = of.String()
	}
	st, err := d.Executor.Named(name)
	if err != nil || !st.Caller.Is(name) {
		return nil
	}
	g, ok := grant(st.Repo)
	if !ok {
		return nil
	}
	who := route.Who{Subject: g.Subject, Repo: g.Repo, Scopes: g.Scopes, Read: g.Read, Write: g.Write,
		Name: g.Person.Name, Email: g.Person.Email}.Under(d.Veil)
	if !who.SeesCaller(st) || !who.May(route.AccessWrite) || who.CheckChangeCaller(st) != nil {
		return nil
	}
	return &space{door: d, caller: st.Caller, repo: st.Repo, who: who, person: who.Person(gitd.Person{})}
}

// space is a caller as one person sees it.
type space struct {
	door   *Door
	caller record.Caller
	repo   string
	who    route.Who
	person gitd.Person
}

// Run runs a command, or shows a terminal.
func (s *space) Run(ctx context.Context, session sshd.ShellSession) uint32 {
	code, err := s.run(ctx, session)
	if err != nil {
		fmt.Fprintf(session.Err, "ramus: %s\r\n", route.AsProblem(err, s.who).Detail)
		return exitFailed
	}
	return uint32(code)
}

func (s *space) run(ctx context.Context, session sshd.ShellSession) (int, error) {
	r := record.Request{Caller: s.caller, Repo: s.repo, Asker: s.person, Permit: s.who.CheckRun}
	switch {
	case session.TTY == nil && session.Command == "":
		session.Command = "exec sh" // a script on its standard input
		fallthrough
	case session.TTY == nil:
		r.Command = &record.Command{Shell: session.Command, Stdin: session.In}
		result, err := s.door.Executor.Exec(ctx, r, session.Out, session.Err)
		return result.ExitCode, err
	case session.Command != "":
		r.Terminal = &record.TerminalCall{Command: &record.Command{Shell: session.Command}}
	default:
		r.Terminal = &record.TerminalCall{Name: s.running()}
	}
	r.Terminal.Rows, r.Terminal.Cols = session.TTY.Rows, session.TTY.Cols
	t, err := s.door.Executor.OpenTerminal(ctx, r)
	if err != nil {
		return 0, err
	}
	return s.show(ctx, t, session)
}

// running returns the name of the caller's first open shell, or "".
func (s *space) running() string {
	for _, t := range s.door.Executor.Shells.All(s.caller) {
		if st := t.Status(); st.State.Running && st.Command == "" {
			return t.Name
		}
	}
	return ""
}

// show connects a session with a terminal until its program, or the session, ends.
func (s *space) show(ctx context.Context, t *shell.Shell, session sshd.ShellSession) (int, error) {
	v, err := t.View(terminal.ViewOptions{Person: s.person, Have: -1,
		Size: terminal.Size{Rows: session.TTY.Rows, Cols: session.TTY.Cols}})
	if err != nil {
		return 0, err
	}
	defer v.Close()
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	go func() { // ends with the session's channel, which its owner closes
		defer cancel()
		buf := make([]byte, 4<<10)
		for {
			n, err := session.In.Read(buf)
			if n > 0 {
				_ = v.Input(ctx, buf[:n]) // input that the program does not take is dropped
			}
			if err != nil {
				return
			}
		}
	}()
	work.Go(func() {
		for {
			select {
			case size := <-session.Resized:
				v.Resize(terminal.Size{Rows: size.Rows, Cols: size.Cols})
			case <-ctx.Done():
				return
			}
		}
	})
	return s.copy(ctx, t, v, session.Out)
}

// copy shows the output of a terminal.
func (s *space) copy(ctx context.Context, t *shell.Shell, v *terminal.Viewer, out io.Writer) (int, error) {
	var last terminal.State
	var have int64
	for {
		item, err := v.Next(ctx)
		if err != nil {
			return 0, nil // the person has left, and the terminal goes on
		}
		switch item.Kind {
		case terminal.ItemState:
			last = item.State
		case terminal.ItemReset:
			have = item.Offset
			_, err = io.WriteString(out, "\x1bc"+string(item.Data))
		case terminal.ItemOutput:
			_, err = out.Write(item.Data)
			have = item.Offset + int64(len(item.Data))
			v.Ack(have)
		}
		if err != nil {
			return 0, nil
		}
		if last.Name == "" || last.Running || have < last.Offset {
			continue
		}
		if last.Exit == nil {
			return 0, errors.New("the program has ended: " + strings.TrimSpace(last.End))
		}
		if err := s.door.Executor.Shells.Close(ctx, s.caller, t.Name, s.person); err != nil && !errors.Is(err, record.ErrNotFound) {
			return 0, err
		}
		return *last.Exit, nil
	}
}

// Files serves the container's files.
func (s *space) Files(ctx context.Context, conn io.ReadWriter) error {
	return s.door.Executor.Files.Serve(ctx, s.caller, s.person, conn)
}

// Dial connects to a port of the container.
func (s *space) Dial(ctx context.Context, port int) (net.Conn, error) {
	return s.door.Executor.Programs.DialPort(ctx, s.caller, port)
}
