package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/record"
)

// talk is one process of an agent of ProtocolACP and the session in it. The
// run's goroutine owns it; what the agent sends comes on others.
type talk struct {
	l    *liveRun
	a    Agent
	host *containers.Host
	id   string // of the command
	conn *acp.Conn
	desk *desk

	session string
	browser bool // it has one

	stdin  *io.PipeWriter
	stdout *io.PipeReader
	detach context.CancelFunc
	ended  chan struct{} // closed when the process's output is read to its end
	exit   containers.Exit
	err    error // why the end is not known

	mu    sync.Mutex      // guards all below
	w     *work           // of the turn that runs now; nil between turns
	meter func(int)       // of that turn
	got   int64           // bytes that the process has printed
	tells *telling        // of the turn
	said  context.Context // ends when the turn that is said ends, or is cancelled; nil between turns
	clock *turnClock      // of the turn
}

// turnClock ends a turn that takes too long. It stands while a person is asked.
type turnClock struct {
	mu    sync.Mutex // guards all below
	left  time.Duration
	since time.Time // when it was started the last time
	holds int
	timer *time.Timer
}

// newTurnClock starts a clock; without a time it never ends anything.
func newTurnClock(d time.Duration, end func()) *turnClock {
	c := &turnClock{left: d, since: time.Now()}
	if d > 0 {
		c.timer = time.AfterFunc(d, end)
	}
	return c
}

func (c *turnClock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds++; c.timer != nil && c.holds == 1 && c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
}

func (c *turnClock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds--; c.timer != nil && c.holds == 0 {
		c.since = time.Now()
		c.timer.Reset(max(c.left, 0))
	}
}

// newTalk starts an agent's process and introduces ramus to it. What it
// returns has to be ended, also when there is an error; it is nil when nothing was started.
func (l *liveRun) newTalk(ctx context.Context, w *work, a Agent, browser bool, meter func(int)) (*talk, error) {
	n, _, err := l.endTalks(ctx, w.host)
	if err != nil {
		return nil, fmt.Errorf("cannot end the agent's former process: %w", err)
	}
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	k := &talk{l: l, a: a, host: w.host, id: l.talkPrefix() + strconv.Itoa(n), stdin: stdin, stdout: stdout, browser: browser, ended: make(chan struct{})}
	k.desk = newDesk(k)
	k.turn(w, meter)
	var attach context.Context
	attach, k.detach = context.WithCancel(context.WithoutCancel(ctx))
	p, err := w.host.Start(attach, containers.Command{ID: k.id, Args: a.Command, Stdin: in,
		// The executor ends it long before; this is for when there is no executor.
		Timeout: l.x.RunTimeout,
		Env:     k.env()})
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
	k.conn, err = acp.Connect(ctx, stdin, stdout, k, acp.Options{Name: "ramus", Stray: stray{k}})
	return k, k.why(err)
}

// env is the environment of the agent and of its terminals.
func (k *talk) env() []string {
	env := slices.Concat(k.l.x.trees.Identity.Env(k.l.claim.Asker), k.a.Env, []string{"RAMUS_FILES=" + filesFolder(k.l.claim)})
	if k.browser {
		env = append(env, browse.InteractiveEnv+"="+browse.InteractiveURL)
	}
	return env
}

// turn tells who hears what the agent does from now on; nil: nobody.
func (k *talk) turn(w *work, meter func(int)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.w == w && w != nil {
		k.meter = meter
		return
	}
	k.tells.end()
	k.w, k.meter, k.tells = w, meter, nil
	if w != nil {
		k.tells = newTelling(k.l, w)
	}
}

// now is the turn that runs; nil between turns.
func (k *talk) now() *telling {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tells
}

// ready tells whether the next turn can be said to this process.
func (k *talk) ready(h *containers.Host) bool {
	select {
	case <-k.ended:
		return false
	case <-k.conn.Done():
		return false
	default:
		return k.host == h && k.session != ""
	}
}

// lasts tells whether what the runner keeps of a process's output will do for one turn more.
func (k *talk) lasts() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.got+k.a.Output <= k.l.x.Limits.WithDefaults().Output
}

// say says something and waits until the agent has done with it. When ctx ends
// the agent is asked to stop, and left when it does not.
func (k *talk) say(ctx context.Context, clock *turnClock, said []sdk.ContentBlock) (stop string, err error) {
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
		stop, err := k.conn.Prompt(pctx, k.session, said)
		done <- answer{stop, err}
	}()
	select {
	case a := <-done:
		return a.stop, k.why(a.err)
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); !errors.Is(cause, record.ErrClosed) {
		late := time.NewTimer(k.l.x.waits.grace)
		defer late.Stop()
		over() // what it asks for is answered with "cancelled"
		if k.conn.Cancel(k.session) == nil {
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

// why adds how the process ended to an error of the protocol.
func (k *talk) why(err error) error {
	if !errors.Is(err, acp.ErrEnded) {
		return err
	}
	late := time.NewTimer(k.l.x.waits.leave)
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

// end ends the process and everything it asked for. The exit is nil when it is not known.
func (k *talk) end() *containers.Exit {
	k.conn.Close()
	k.desk.close()
	defer k.turn(nil, nil)
	var drained sync.WaitGroup
	drained.Go(func() { _, _ = io.Copy(io.Discard, k.stdout) }) // or the process could not end
	defer drained.Wait()
	defer k.detach()
	if errors.Is(context.Cause(k.l.ctx), record.ErrClosed) {
		// The next server ends it, and another process goes on with the session.
		_ = k.stdin.CloseWithError(record.ErrClosed) // no end of the input, but no more of it
		k.detach()
		<-k.ended
		return nil
	}
	k.stdin.Close()
	late := time.NewTimer(k.l.x.waits.leave)
	defer late.Stop()
	select {
	case <-k.ended:
	case <-late.C:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(k.l.ctx), killWait)
		defer cancel()
		if err := k.host.Kill(ctx, k.id); err == nil {
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.l.ctx), killWait)
	defer cancel()
	_ = k.host.Forget(ctx, k.id) // the runner's memory ends with the container anyway
	return &k.exit
}

// counted counts what the process prints against what a turn may.
type counted struct {
	k      *talk
	to     io.Writer
	stderr bool
}

func (c counted) Write(p []byte) (int, error) {
	c.k.mu.Lock()
	c.k.got += int64(len(p))
	meter, tells := c.k.meter, c.k.tells
	c.k.mu.Unlock()
	if meter != nil {
		meter(len(p))
	}
	if c.stderr {
		if tells != nil {
			tells.printed(p)
		}
		return len(p), nil
	}
	return c.to.Write(p)
}

// stray takes what the agent prints on its standard output beside the protocol.
type stray struct{ k *talk }

func (s stray) Write(p []byte) (int, error) {
	if tells := s.k.now(); tells != nil {
		tells.printed(p)
	}
	return len(p), nil
}
