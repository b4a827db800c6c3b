package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/terminal"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Shell is the program of a terminal, which is the work of a run of [record.KindTerminal]. Its methods are safe for
// concurrent use, apart from Work.
type Shell struct {
	*terminal.Terminal
	set     *Shells
	run     *step.Run
	done    <-chan struct{} // closed when the goroutine of the run has ended
	step    string          // of its program, "shell/NAME", and the trailer of all its commits
	id      string          // of its program in the runner; set before ready
	ready   chan struct{}   // closed when its program runs, or cannot
	readied func()          // closes ready
	marked  chan struct{}   // holds one token if there are marks
	asking  atomic.Int64    // waits at the door
	swept   atomic.Bool     // scripts of an earlier process were ended

	// The goroutine of the run owns the fields below.
	lease *containers.Lease
	typed typed
	quiet int64 // the activity that is committed

	mu        sync.Mutex // guards all below
	base      gitd.Hash  // the commit that the work tree was at, as far as this terminal knows
	host      *containers.Host
	marks     []terminal.Mark
	committed int64         // the number of the last command that is committed
	moved     chan struct{} // closed when committed changes; nil if nobody waits
	isDone    bool
	ended     time.Time
}

// newShell returns the shell of a run.
func (g *Shells) newShell(run *step.Run, done <-chan struct{}) *Shell {
	call := run.Initial.Terminal
	size := terminal.Size{Rows: cmp.Or(call.Rows, 24), Cols: cmp.Or(call.Cols, 80)}
	s := &Shell{Terminal: terminal.New(call.Name, size), set: g, run: run, done: done, step: "shell/" + call.Name,
		ready: make(chan struct{}), marked: make(chan struct{}, 1)}
	s.Terminal.OnMark, s.quiet = s.note, -1
	s.readied = sync.OnceFunc(func() { close(s.ready) })
	return s
}

// SetOver notes that nothing works at the run any more. A nil Shell has no run.
func (s *Shell) SetOver() {
	if s == nil {
		return
	}
	s.readied()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDone, s.ended = true, s.set.Now()
	s.wakeLocked()
}

// IsOver reports whether nothing works at the run any more.
func (s *Shell) IsOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isDone
}

// isForgotten reports whether the terminal ended so long ago that nobody looks at it any more.
func (s *Shell) isForgotten() bool {
	s.mu.Lock()
	over := s.isDone && s.set.Now().Sub(s.ended) > keptFor
	s.mu.Unlock()
	return over && s.Viewers() == 0
}

// connected returns the container of the program, or nil while it cannot be reached.
func (s *Shell) connected() *containers.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host
}

func (s *Shell) setBase(h gitd.Hash) {
	s.mu.Lock()
	s.base = h
	s.mu.Unlock()
}

func (s *Shell) setHost(h *containers.Host) {
	s.mu.Lock()
	s.host = h
	s.mu.Unlock()
}

// maxMarks bounds the marks that wait. A shell prints four for each command that a person types.
const maxMarks = 4096

// note takes a mark. The terminal calls it while it is written to.
func (s *Shell) note(m terminal.Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Kind == terminal.MarkPrompt {
		return
	}
	if len(s.marks) >= maxMarks {
		s.marks = s.marks[1:] // a program floods the terminal with them
	}
	s.marks = append(s.marks, m)
	select {
	case s.marked <- struct{}{}:
	default:
	}
}

// wakeLocked wakes those that wait for a command. mu is held.
func (s *Shell) wakeLocked() {
	if s.moved != nil {
		close(s.moved)
		s.moved = nil
	}
}

// awaitCommand waits until a command is committed, at most promptWait.
func (s *Shell) awaitCommand(ctx context.Context, number int64) {
	limit := time.NewTimer(promptWait)
	defer limit.Stop()
	for {
		s.mu.Lock()
		if s.committed >= number || s.isDone {
			s.mu.Unlock()
			return
		}
		if s.moved == nil {
			s.moved = make(chan struct{})
		}
		moved := s.moved
		s.mu.Unlock()
		select {
		case <-moved:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Work takes the terminal to its end. The goroutine of the run calls it once. The error is record.ErrClosed if the server
// stops, in which case the program goes on.
func (s *Shell) Work(ctx context.Context) error {
	run := s.run
	defer s.readied()
	err := run.SetState(record.StateRunning, "", "")
	var exit containers.Exit
	if err == nil {
		exit, err = s.runProgram(ctx)
	}
	s.leave()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, errClosedTerminal) {
		err = cause
	}
	switch {
	case errors.Is(err, record.ErrClosed):
		return err // the program goes on
	case errors.Is(err, step.ErrCancelled), errors.Is(err, errClosedTerminal):
		s.Terminal.End(nil, "it was closed", true)
	case err != nil:
		s.Terminal.End(nil, s.set.Secrets.String(err.Error()), false)
	default:
		s.Terminal.End(&exit.Code, exit.Reason, exit.Reason == containers.ReasonKilled)
	}
	if errors.Is(err, errClosedTerminal) {
		return nil
	}
	return err
}

// errClosedTerminal is the end of a terminal that nobody used.
var errClosedTerminal = errors.New("nobody used the terminal")

// runProgram starts the program or finds it again, and follows it to its end.
func (s *Shell) runProgram(ctx context.Context) (containers.Exit, error) {
	run := s.run
	b := run.Beginning(s.step)
	if b.Done != nil {
		return containers.Exit{}, nil // the journal has its end
	}
	if b.Last != nil {
		s.recall(b)
	}
	for tries := 1; ; tries++ {
		exit, err := s.connect(ctx)
		if s.id == "" && tries >= step.Losses || !errors.Is(err, containers.ErrGone) || ctx.Err() != nil {
			return exit, err
		}
		// The connection is lost, or the container.
		s.leave()
	}
}

// leave gives up the container.
func (s *Shell) leave() {
	s.setHost(nil)
	if s.lease != nil {
		s.lease.Release()
		s.lease = nil
	}
}

// connect starts the program, or finds it again if it was started, and follows it.
func (s *Shell) connect(ctx context.Context) (containers.Exit, error) {
	attach, detach := context.WithCancel(context.WithoutCancel(ctx))
	defer detach()
	connect := s.adopt
	if s.id == "" {
		connect = s.beginProgram
	}
	p, err := connect(ctx, attach)
	if err != nil {
		return containers.Exit{}, err
	}
	s.readied()
	return s.follow(ctx, p, detach)
}

// beginProgram prepares the container and starts the program.
func (s *Shell) beginProgram(ctx, attach context.Context) (*containers.Process, error) {
	run, t := s.run, s.run.Target
	if own := run.Initial.Terminal.Command; own != nil {
		q := step.Question{Step: s.step, Command: own.Line(), Keeps: true}
		if err := run.Permit(ctx, t, q, step.CommandsOf(*own), nil); err != nil {
			return nil, err
		}
	}
	free, err := t.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	info := step.Info{ID: s.step, Kind: string(record.KindTerminal), Command: run.Initial.Command}
	image, unbuilt, err := run.ImageOf(ctx, t, info)
	if err != nil {
		return nil, err
	}
	if err := s.set.Keep(ctx, t, run); err != nil {
		return nil, err
	}
	lease, tip, err := t.Ready(ctx, image, run.Initial.Asker, run.SetPlace)
	if err != nil {
		return nil, err
	}
	s.lease = lease
	s.setBase(tip)
	if err := run.Recovers(ctx, lease, info, unbuilt); err != nil {
		return nil, err
	}
	if err := run.StartServices(ctx, t, lease, info); err != nil {
		return nil, err
	}
	if err := run.Equip(ctx, t, info, lease, tip, unbuilt); err != nil {
		return nil, err
	}
	s.swept.Store(true)
	s.id = run.CommandID(s.step, 1)
	run.Change(func(r *record.Run) { r.Step, r.Place, r.Image = s.step, 0, lease.Container.Image })
	if err := run.Emit(record.Event{Type: record.EventStepStarted, Step: s.step, Kind: info.Kind,
		Command: text.Clip(info.Command, 16<<10), Parent: tip,
		Data: record.Marshal(step.Started{ID: s.id})}, true); err != nil {
		return nil, err
	}
	return s.start(attach)
}

// start starts the program.
func (s *Shell) start(attach context.Context) (*containers.Process, error) {
	run := s.run
	size := s.Size()
	c := containers.Command{ID: s.id, Background: true, Window: terminal.Window, Hold: terminal.Hold, Grace: terminalGrace,
		TTY: &containers.Window{Rows: size.Rows, Cols: size.Cols},
		Env: append(run.Target.Env(run.Initial.Asker), terminal.Environment(s.Name, run.Initial.Caller.ID())...)}
	if own := run.Initial.Terminal.Command; own != nil {
		if len(own.Env) > 0 && len(run.Env) == 0 {
			return nil, step.Fail(record.ReasonEnvLost,
				"the server stopped before the command had its environment; it was not run")
		}
		c.Args, c.Shell, c.Dir, c.Env = own.Args, own.Shell, own.Dir, append(c.Env, run.Env...)
	} else {
		c.Shell = terminal.Launch()
	}
	p, err := s.lease.Host.Start(attach, c)
	if err != nil {
		return nil, fmt.Errorf("cannot open the terminal: %w", err)
	}
	s.setHost(s.lease.Host)
	return p, nil
}

// recall restores the state of a terminal of an earlier process from the journal.
func (s *Shell) recall(b live.Beginning) {
	s.id = s.run.CommandID(s.step, 1)
	base := b.Last.Parent
	s.typed.recall(s.step, s.run.Journalled(), &base)
	s.setBase(base)
}

// terminalGrace is how long the programs of a terminal that is closed may take to end. Shells do not end by SIGTERM.
const terminalGrace = time.Second

// adoptPause is the wait between two tries to reach a container whose state is unknown.
const adoptPause = time.Second

// adopt connects to the program again. Its output begins where it broke off, or later.
func (s *Shell) adopt(ctx, attach context.Context) (*containers.Process, error) {
	run, t := s.run, s.run.Target
	lost := step.Fail(record.ReasonContainerLost,
		"the container of the terminal is gone; the branch has everything that was committed")
	for {
		lease, err := s.set.Fleet.Adopt(ctx, t.Request(run.Initial.Image, run.Initial.Asker, run.SetPlace))
		switch {
		case err == nil && lease == nil, errors.Is(err, containers.ErrGone):
			return nil, lost
		case err != nil && !errors.Is(err, containers.ErrUnavailable):
			return nil, err
		case err == nil:
			t.Board(lease)
			s.lease = lease
			p, err := lease.Host.AttachWindow(attach, s.id, s.Next(), terminal.Hold)
			if errors.Is(err, containers.ErrUnknownCommand) && s.Next() == 0 && s.typed.number == 0 {
				return s.start(attach) // the earlier process was killed just before it started the program
			}
			if err == nil {
				s.setHost(lease.Host)
				return p, nil
			}
			lease.Release()
			s.lease = nil
			if errors.Is(err, containers.ErrUnknownCommand) {
				return nil, lost
			}
			if !errors.Is(err, containers.ErrGone) {
				return nil, err
			}
		}
		select {
		case <-time.After(adoptPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// follow copies the program's output until its end, or until the connection breaks, and commits the work of people
// meanwhile.
func (s *Shell) follow(ctx context.Context, p *containers.Process, detach func()) (containers.Exit, error) {
	var exit containers.Exit
	var err error
	from, upto := p.From()
	s.Attach(process{p}, from, upto)
	over := make(chan struct{})
	go func() {
		defer close(over)
		exit, err = p.Output(s.Terminal, nil)
	}()
	defer func() {
		s.Detach(detach)
		<-over
	}()
	look := time.NewTicker(s.set.Quiet / 4)
	defer look.Stop()
	idle := idleness{since: s.set.Now()}
	for {
		select {
		case <-over:
			if err != nil {
				return exit, err
			}
			s.commitMarked(ctx)
			return exit, s.finish(ctx, exit)
		case <-s.marked:
			if !s.commitMarked(ctx) {
				return exit, containers.ErrGone
			}
		case <-look.C:
			if s.look(ctx, &idle) {
				return exit, cmp.Or(s.kill(ctx, over, &exit, &err), errClosedTerminal)
			}
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), record.ErrClosed) {
				return exit, record.ErrClosed
			}
			return exit, s.kill(ctx, over, &exit, &err)
		}
	}
}

// kill ends the program, and commits its changes.
func (s *Shell) kill(ctx context.Context, over <-chan struct{}, exit *containers.Exit, err *error) error {
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), step.KillWait)
	defer cancel()
	if err := s.lease.Host.Kill(kill, s.id); err != nil {
		return err
	}
	select {
	case <-over:
	case <-kill.Done():
		return fmt.Errorf("cannot end the program of the terminal: %w", kill.Err())
	}
	if *err != nil {
		return *err
	}
	s.commitMarked(ctx)
	return s.finish(ctx, *exit)
}

// idleness is when a terminal was used last.
type idleness struct {
	count int64
	since time.Time
}

// look commits the changes of a program that has been quiet for some time. It returns true if nobody uses the terminal
// any more.
func (s *Shell) look(ctx context.Context, idle *idleness) (unused bool) {
	count, _ := s.Activity()
	now := s.set.Now()
	if count != idle.count {
		idle.count, idle.since = count, now
	}
	if s.quiet != count && now.Sub(idle.since) >= s.set.Quiet {
		if err := s.commitQuiet(ctx); err == nil {
			s.quiet = count
		}
	}
	return now.Sub(idle.since) >= maxIdle && s.Viewers() == 0
}
