package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
)

// killWait is how long a process that is killed may take to end.
const killWait = time.Minute

// Options configure a Process.
type Options struct {
	Agent Agent
	// Env is the environment of the agent and of its terminals, "K=V".
	Env []string
	// Prefix begins the ids of the agent's commands in its container.
	Prefix string
	// Timeout is of a terminal's command, RunTimeout of the process. The server ends both long before.
	Timeout, RunTimeout time.Duration
	// Output is how much of a command's output the runner keeps, in bytes.
	Output int64
	// Guard is that of the agent's process and of its terminals, see [containers.Command].
	Guard []string
	Waits Waits
}

// Waits is how long ramus waits for an agent of ProtocolACP.
type Waits struct {
	Start  time.Duration // until its process and its session are there; default 2 min
	Grace  time.Duration // until a turn that is cancelled ends by itself; default 10 s
	Leave  time.Duration // until it ends after its input has; default 5 s
	Person time.Duration // until a person answers its question, then the answer is no; default 1 h
}

// WithDefaults returns w with the defaults where it has none.
func (w Waits) WithDefaults() Waits {
	return Waits{
		Start:  cmp.Or(w.Start, 2*time.Minute),
		Grace:  cmp.Or(w.Grace, 10*time.Second),
		Leave:  cmp.Or(w.Leave, 5*time.Second),
		Person: cmp.Or(w.Person, time.Hour),
	}
}

// Turn is the step of a run that records an agent. Two Turns of the same step are equal.
type Turn interface {
	// Step is the id of the step.
	Step() string
	// Emit journals an event of the step.
	Emit(record.Event) error
	// Output returns where the agent's words go, and its other output.
	Output() (stdout, stderr io.Writer)
	// AskPermission asks a person whether the agent may do something, and returns the id of the option that the person
	// chose.
	AskPermission(context.Context, acp.Question) (option string, err error)
	// Judge reports whether the rules of the base have something to say about a command, and Permit applies them. Permit
	// returns once a person has answered, and its error is the reason for which the command may not run.
	Judge(record.Command) bool
	Permit(context.Context, record.Command) error
}

// Process is one process of an agent of ProtocolACP and the session in it. The run's goroutine owns it. Messages of the agent come on other
// goroutines.
type Process struct {
	Host *containers.Host
	ID   string    // of the command
	Conn *acp.Conn // with which the session is opened
	// Session is the id of the session, or "" if none is open.
	Session string

	o        Options
	requests *requests
	granted  granted

	stdin  *io.PipeWriter
	stdout *io.PipeReader
	detach context.CancelFunc
	ended  chan struct{} // closed when the process's output is read to its end
	exit   containers.Exit
	err    error // why the end is not known

	mu    sync.Mutex      // guards all below
	turn  Turn            // the turn that runs; nil between turns
	meter func(int)       // of turn
	got   int64           // bytes that the process has printed
	heard *transcript     // of the turn
	said  context.Context // ends when the turn ends or is cancelled; nil between turns
	clock *Clock          // of the turn
}

// Start starts an agent's process in a container for a turn, and initializes the protocol. Start calls meter with
// each number of bytes that the process prints. The caller must end the Process, also on error. It is nil if nothing
// was started.
func Start(ctx context.Context, h *containers.Host, o Options, t Turn, meter func(int)) (*Process, error) {
	n, _, err := EndAll(ctx, h, o.Prefix)
	if err != nil {
		return nil, fmt.Errorf("cannot end the agent's former process: %w", err)
	}
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	k := &Process{Host: h, ID: o.Prefix + strconv.Itoa(n), o: o, stdin: stdin, stdout: stdout, ended: make(chan struct{})}
	k.requests = newRequests(k)
	k.SetTurn(t, meter)
	var attach context.Context
	attach, k.detach = context.WithCancel(context.WithoutCancel(ctx))
	p, err := h.Start(attach, containers.Command{
		ID:      k.ID,
		Args:    o.Agent.Command,
		Guard:   o.Guard,
		Stdin:   in,
		Timeout: o.RunTimeout,
		Env:     o.Env,
	})
	if err != nil {
		k.detach()
		return nil, fmt.Errorf("cannot start the agent: %w", err)
	}
	go func() {
		defer close(k.ended)
		k.exit, k.err = p.Output(counted{k, out, false}, counted{k, io.Discard, true})
		out.Close()
		in.Close()
	}()
	k.Conn, err = acp.Connect(ctx, stdin, stdout, k, acp.Options{Name: "ramus", Stray: stray{k}})
	return k, k.why(err)
}

// EndAll ends the processes and terminals of an agent in a container, whose ids begin with prefix. It returns the number of the next process.
// known is false if none ever ran there.
func EndAll(ctx context.Context, h *containers.Host, prefix string) (next int, known bool, err error) {
	commands, err := h.Commands(ctx)
	if err != nil {
		return 0, false, err
	}
	next = 1
	for _, c := range commands {
		rest, ours := strings.CutPrefix(c.ID, prefix)
		if !ours {
			continue
		}
		known = true
		if n, err := strconv.Atoi(rest); err == nil {
			next = max(next, n+1)
		}
		if c.Running {
			if err := worktree.EndCommand(ctx, h, c.ID); err != nil && !errors.Is(err, containers.ErrUnknownCommand) {
				return 0, true, err
			}
		}
	}
	return next, known, nil
}

// SetTurn sets the turn that records the agent from now on. With nil no turn does.
func (k *Process) SetTurn(t Turn, meter func(int)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turn == t && t != nil {
		k.meter = meter
		return
	}
	k.heard.end()
	k.turn, k.meter, k.heard = t, meter, nil
	if t != nil {
		k.heard = newTranscript(t)
		k.heard.output = k.requests.end
	}
}

// now returns the transcript of the turn that runs, or nil between turns.
func (k *Process) now() *transcript {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.heard
}

// Ready reports whether the process can take the next turn, in a container.
func (k *Process) Ready(h *containers.Host) bool {
	select {
	case <-k.ended:
		return false
	case <-k.Conn.Done():
		return false
	default:
		return k.Host == h && k.Session != ""
	}
}

// Lasts reports whether the runner can keep the output of one turn more.
func (k *Process) Lasts() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.got+k.o.Agent.Output <= k.o.Output
}

// Say sends a prompt and waits until the agent has ended its turn. If ctx ends first Say cancels the turn, and
// returns after the grace period if the agent does not stop.
func (k *Process) Say(ctx context.Context, clock *Clock, said []sdk.ContentBlock) (stop string, err error) {
	var failed error
	err = k.Conn.Between(ctx, func(at int64) { failed = k.now().mark(Mark{k.ID, at}) })
	if err = errors.Join(err, failed); err != nil {
		return "", k.why(err)
	}
	turn, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	k.mu.Lock()
	k.said, k.clock = turn, clock
	k.mu.Unlock()
	type answer struct {
		stop string
		err  error
	}
	done := make(chan answer, 1)
	pctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	go func() { // it is waited for below
		stop, err := k.Conn.Prompt(pctx, k.Session, said)
		done <- answer{stop, err}
	}()
	select {
	case a := <-done:
		return a.stop, k.why(a.err)
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); errors.Is(cause, record.ErrClosed) {
		k.cutInput()
	} else {
		late := time.NewTimer(k.o.Waits.Grace)
		defer late.Stop()
		over() // its questions are answered with "cancelled"
		if k.Conn.Cancel(k.Session) == nil {
			select {
			case a := <-done:
				return a.stop, context.Cause(ctx)
			case <-late.C:
			}
		}
	}
	leave()
	<-done
	return "", context.Cause(ctx)
}

// Steer gives the agent words in the turn that works. taken is false if the agent has ended the turn.
func (k *Process) Steer(ctx context.Context, words string) (taken bool, err error) {
	return k.Conn.Steer(ctx, k.Session, []sdk.ContentBlock{sdk.TextBlock(words)})
}

// why adds the end of the process to an error of the protocol.
func (k *Process) why(err error) error {
	if !errors.Is(err, acp.ErrEnded) {
		return err
	}
	late := time.NewTimer(k.o.Waits.Leave)
	defer late.Stop()
	select {
	case <-k.ended:
	case <-late.C:
		return err
	}
	if k.err != nil {
		return err
	}
	return fmt.Errorf("%w with exit code %d", err, k.exit.Code)
}

// End ends the process and its terminals. ctx is that of the run. If it has ended because the server is closing, the next server ends the
// process. The exit is nil if it is not known.
func (k *Process) End(ctx context.Context) *containers.Exit {
	closing := errors.Is(context.Cause(ctx), record.ErrClosed)
	if closing {
		k.cutInput()
	}
	k.Conn.Close()
	k.requests.close(ctx)
	defer k.SetTurn(nil, nil)
	var drained sync.WaitGroup
	drained.Go(func() { _, _ = io.Copy(io.Discard, k.stdout) }) // or the process could not end
	defer drained.Wait()
	defer k.detach()
	if closing {
		// The next server ends the process and records the rest of its words, and another process continues the
		// session.
		k.now().cut()
		k.detach()
		<-k.ended
		return nil
	}
	k.stdin.Close()
	late := time.NewTimer(k.o.Waits.Leave)
	defer late.Stop()
	select {
	case <-k.ended:
	case <-late.C:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
		defer cancel()
		if err := k.Host.Kill(ctx, k.ID); err == nil {
			select {
			case <-k.ended:
			case <-ctx.Done():
			}
		}
		k.detach()
		<-k.ended
	}
	if k.err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	_ = k.Host.Forget(ctx, k.ID) // the runner's memory ends with the container anyway
	return &k.exit
}

// cutInput has the process get no more input, and no end of it. An agent would take the answers of a server that is closing, such as
// the error of a command that it waits for, for a reason to go on in another way.
func (k *Process) cutInput() { _ = k.stdin.CloseWithError(record.ErrClosed) }

// counted counts the process's output.
type counted struct {
	k      *Process
	to     io.Writer
	stderr bool
}

func (c counted) Write(p []byte) (int, error) {
	c.k.mu.Lock()
	c.k.got += int64(len(p))
	meter, heard := c.k.meter, c.k.heard
	c.k.mu.Unlock()
	if meter != nil {
		meter(len(p))
	}
	if c.stderr {
		if heard != nil {
			heard.printed(p)
		}
		return len(p), nil
	}
	return c.to.Write(p)
}

// stray takes output of the agent on its standard output that is not of the protocol.
type stray struct{ k *Process }

func (s stray) Write(p []byte) (int, error) {
	if heard := s.k.now(); heard != nil {
		heard.printed(p)
	}
	return len(p), nil
}
