package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ramus-dev/ramus/containers/runner"
)

// Command is one command line for a container.
type Command struct {
	// ID names the command while the runner remembers it: [A-Za-z0-9._-]{1,64}, unique in the container.
	ID string
	// Args is run without a shell. If Args is empty, Shell is run by `sh -c`.
	Args  []string
	Shell string
	Dir   string   // below /work; default /work
	Env   []string // "K=V", after the container's own
	// Stdin is the command's input. If it is nil the input is empty. An error of it other than io.EOF is not an end: the
	// command waits for the rest of its input until it is killed or its time is over.
	Stdin io.Reader
	// TTY asks for a terminal. Stdout then carries both streams. Input comes from Stdin or by [Process.Input].
	TTY *Window
	// Timeout is the time after which the whole process group, and processes that left it by setsid, get SIGTERM, and
	// SIGKILL after Grace. Zero means no limit.
	Timeout time.Duration
	Grace   time.Duration // default 5 s
	// Background commands may outlive later commands and count as activity. A foreground command ends together with all
	// processes it started.
	Background bool
	// Guard lists names of programs, with * and ?, that the command starts only if the door's RulePath says so.
	Guard []string
	// Window, if it is not 0, is the number of bytes of output that the runner keeps, which are the last ones. Without it
	// the runner keeps the first Limits.Output bytes. It needs TTY and Background. At most 64 MiB.
	Window int64
	// Hold is that of [Host.AttachWindow].
	Hold int64
}

// StartPrefix begins the IDs of background commands that do not count as activity, because they serve the others and
// are started again in the next container.
const StartPrefix = "start."

// serves reports whether a command is a program that does not keep its container awake.
func (c CommandState) serves() bool { return c.Background && strings.HasPrefix(c.ID, StartPrefix) }

// Window is the size and kind of a terminal.
type Window struct {
	Rows, Cols int
	Term       string // TERM; default xterm-256color
}

// Reasons for which a command was ended by others.
const (
	ReasonTimeout  = "timeout"
	ReasonKilled   = "killed"    // by Process.Kill or Host.Kill
	ReasonDiskFull = "disk_full" // see Limits.Disk and Limits.DiskFree
	ReasonMemory   = "memory"    // the kernel's out-of-memory killer
)

// Exit is the result of a command.
type Exit struct {
	Code     int           // 0-255; 128+n if signal n ended the command; 126 or 127 if it could not start
	Signal   string        // "KILL", … or ""
	Reason   string        // a Reason constant, or "" if the command ended by itself
	Message  string        // for people, set by the killer; mostly ""
	Duration time.Duration // measured by the runner
	// Stdout and Stderr count all bytes written. Bytes of a stream beyond Limits.Output were dropped.
	Stdout, Stderr int64
}

// CommandState is the runner's record of a command.
type CommandState struct {
	ID         string
	Started    time.Time
	Background bool
	Running    bool
	Exit       Exit // of a running command, only the sizes of the output so far
	Line       string
	// Cut is true if the connection was lost before all of Command.Stdin was sent, while the command ran. The rest
	// cannot be supplied. Earlier runners do not report it, and leave it false.
	Cut bool
}

// Process is a command as seen from outside. Its output is read from the runner's copy, so a command may be attached
// any number of times.
type Process struct {
	id   string
	host *Host
	ctx  context.Context
	ch   ssh.Channel
	stop func() bool // stops watching ctx

	from    int64 // written before started is closed, as is upto
	upto    int64
	started chan struct{} // closed when the command is reported started, or nothing more comes
	ended   chan struct{} // closed when the runner reports no more

	once    sync.Once   // guards against a second Output
	printed [2]*printed // stdout, stderr
	broken  atomic.Bool // a file with output is missing

	// exit, failure and over are written before ended is closed, and read after.
	exit    *runner.Exit
	failure *runner.Failure
	over    bool // the answer is complete
}

// Start runs a command. ctx bounds the attachment and not the command. The attachment holds memory until ctx ends or
// [Process.Output] has returned. Start returns no error for a program that does not exist or cannot be executed. Its
// exit code is 127 or 126 instead. A goroutine reads Stdin until the first Read that returns after the command has
// ended.
func (h *Host) Start(ctx context.Context, c Command) (*Process, error) {
	r := &runner.Request{
		Op: runner.OpStart, ID: c.ID, Shell: []byte(c.Shell), Dir: []byte(c.Dir),
		Stdin: c.Stdin != nil, Timeout: c.Timeout, Grace: c.Grace, Background: c.Background,
		Window: c.Window, Hold: c.Hold, Guard: c.Guard,
	}
	for _, a := range c.Args {
		r.Args = append(r.Args, []byte(a))
	}
	for _, kv := range c.Env {
		r.Env = append(r.Env, []byte(kv))
	}
	if w := c.TTY; w != nil {
		r.TTY = &runner.TTY{Rows: uint16(w.Rows), Cols: uint16(w.Cols), Term: w.Term}
	}
	p, err := h.attach(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("cannot start command %s: %w", c.ID, err)
	}
	if c.Stdin != nil {
		go p.feed(c.Stdin)
	}
	return p, nil
}

// Attach follows a remembered command again. Its output begins at the given offsets.
func (h *Host) Attach(ctx context.Context, id string, stdout, stderr int64) (*Process, error) {
	p, err := h.attach(ctx, &runner.Request{Op: runner.OpAttach, ID: id, Stdout: stdout, Stderr: stderr})
	if err != nil {
		return nil, fmt.Errorf("cannot attach to command %s: %w", id, err)
	}
	return p, nil
}

// AttachWindow follows a remembered command that has a window. Its output begins at from, or at the beginning of the
// window, see [Process.From]. If hold is not 0, the command's output waits in its terminal while it is more than hold
// bytes ahead of the last [Process.Ack].
func (h *Host) AttachWindow(ctx context.Context, id string, from, hold int64) (*Process, error) {
	p, err := h.attach(ctx, &runner.Request{Op: runner.OpAttach, ID: id, Stdout: from, Hold: hold})
	if err != nil {
		return nil, fmt.Errorf("cannot attach to command %s: %w", id, err)
	}
	return p, nil
}

func (h *Host) attach(ctx context.Context, r *runner.Request) (*Process, error) {
	p, err := h.request(ctx, r)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.started:
	case <-ctx.Done():
		p.close()
		return nil, ctx.Err()
	}
	select {
	case <-p.ended:
		if p.failure != nil {
			p.close()
			return nil, refusal(p.failure)
		}
		if p.exit == nil {
			p.close()
			return nil, h.why(ctx, io.ErrUnexpectedEOF)
		}
	default:
	}
	return p, nil
}

// request sends r on a channel of its own and listens for messages of the runner.
func (h *Host) request(ctx context.Context, r *runner.Request) (*Process, error) {
	r.Version = runner.Version
	r.Files = h.carrier != nil && (r.Op == runner.OpStart || r.Op == runner.OpAttach)
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// The runner checks the request as well. This check costs no round trip, and prevents a request that cannot be sent
	// from breaking the connection.
	if _, err := runner.ParseRequest(text); err != nil {
		return nil, err
	}
	ch, reqs, err := h.channel(ctx)
	if err != nil {
		return nil, err
	}
	p := &Process{id: r.ID, host: h, ctx: ctx, ch: ch, started: make(chan struct{}), ended: make(chan struct{}),
		printed: [2]*printed{newPrinted(), newPrinted()}}
	p.stop = context.AfterFunc(ctx, func() { ch.Close() })
	if !h.owned.Go(func() { p.listen(reqs) }) {
		p.close()
		return nil, ErrGone // the library closes reqs
	}
	// The request asks for no reply. The runner's messages contain more than a reply, and a reply would cost a round
	// trip before them.
	if _, err := ch.SendRequest("exec", false, ssh.Marshal(struct{ Command string }{string(text)})); err != nil {
		p.close()
		return nil, h.why(ctx, err)
	}
	return p, nil
}

// listen handles the runner's channel requests until the channel is closed.
func (p *Process) listen(reqs <-chan *ssh.Request) {
	begun := false
	for req := range reqs {
		switch req.Type {
		case runner.StartedRequest:
			if !begun {
				begun = true
				var s runner.Started
				if len(req.Payload) > 0 && ssh.Unmarshal(req.Payload, &s) == nil {
					p.from, p.upto = int64(min(s.From, 1<<62)), int64(min(s.Upto, 1<<62))
				}
				close(p.started)
			}
		case runner.OutputRequest:
			if p.announceOutput(req.Payload) != nil {
				p.ch.Close() // an incomplete output must not look complete
			}
		case runner.ExitRequest:
			var e runner.Exit
			if json.Unmarshal(req.Payload, &e) == nil {
				p.exit = &e
			}
		case "exit-status":
			p.over = true
		case runner.ErrorRequest:
			var f runner.Failure
			if json.Unmarshal(req.Payload, &f) == nil {
				p.failure = &f
			}
		}
		if req.WantReply {
			_ = req.Reply(false, nil)
		}
	}
	for _, s := range p.printed {
		s.finish()
	}
	close(p.ended)
	if !begun {
		close(p.started)
	}
}

// announceOutput passes a message of the runner about a file with output to its stream.
func (p *Process) announceOutput(payload []byte) error {
	var o runner.Output
	if err := ssh.Unmarshal(payload, &o); err != nil {
		return err
	}
	if p.host.carrier == nil || o.Stream < 1 || o.Stream > 2 {
		return errors.New("the runner names a file that was not requested")
	}
	if err := p.printed[o.Stream-1].announce(o, p.host.carrier.Take); err != nil {
		p.broken.Store(true)
		return err
	}
	return nil
}

// refusal converts the runner's failure to an error of this package.
func refusal(f *runner.Failure) error {
	switch f.Kind {
	case runner.FailUnknown:
		return fmt.Errorf("%w: %w", ErrUnknownCommand, f)
	case runner.FailKnown:
		return fmt.Errorf("%w: %w", ErrKnownCommand, f)
	}
	return f
}

func (p *Process) close() {
	p.stop()
	p.ch.Close()
	for _, s := range p.printed {
		s.close()
	}
}

// feed sends stdin. It announces the end of stdin before the end of the channel, so that the runner can tell it from a
// broken connection.
func (p *Process) feed(in io.Reader) {
	if _, err := io.Copy(p.ch, in); err != nil {
		// Either the command is over, or half its input is missing, so no end is announced.
		return
	}
	if _, err := p.ch.SendRequest(runner.EOFRequest, false, nil); err == nil {
		_ = p.ch.CloseWrite()
	}
}

// Output copies the command's output to the writers and returns the command's Exit. It returns early with the error of
// the context, ErrGone, or the error of a writer. The command then continues. A nil writer discards. Output can be
// called once.
func (p *Process) Output(stdout, stderr io.Writer) (Exit, error) {
	first := false
	p.once.Do(func() { first = true })
	if !first {
		return Exit{}, fmt.Errorf("cannot read the output of command %s twice: attach again", p.id)
	}
	defer p.close()
	if stdout == nil {
		stdout = io.Discard
	}
	if stderr == nil {
		stderr = io.Discard
	}
	var wg sync.WaitGroup
	var outErr, errErr error
	copyTo := func(w io.Writer, r io.Reader, s *printed, err *error) {
		defer s.noteChannel(0, true)
		buf := make([]byte, 64<<10)
		// io.Copy cannot tell a failed Write from a failed Read.
		for {
			n, rerr := r.Read(buf)
			if n > 0 {
				if _, werr := w.Write(buf[:n]); werr != nil {
					*err = fmt.Errorf("cannot write the output of command %s: %w", p.id, werr)
					p.ch.Close() // otherwise the other stream would wait forever for this one
					return
				}
				s.noteChannel(n, false)
			}
			if rerr != nil {
				return
			}
		}
	}
	var fileErrs [2]error
	copyFile := func(w io.Writer, s *printed, err *error) {
		werr, rerr := s.copyTo(w)
		if werr != nil {
			*err = fmt.Errorf("cannot write the output of command %s: %w", p.id, werr)
		} else if rerr != nil {
			*err = fmt.Errorf("cannot read the output of command %s: %w", p.id, rerr)
		}
		if *err != nil {
			p.ch.Close()
		}
	}
	wg.Go(func() { copyTo(stdout, p.ch, p.printed[0], &outErr) })
	wg.Go(func() { copyTo(stderr, p.ch.Stderr(), p.printed[1], &errErr) })
	wg.Go(func() { copyFile(stdout, p.printed[0], &fileErrs[0]) })
	wg.Go(func() { copyFile(stderr, p.printed[1], &fileErrs[1]) })
	wg.Wait()
	if err := errors.Join(outErr, errErr, fileErrs[0], fileErrs[1]); err != nil {
		return Exit{}, err
	}
	<-p.ended // the channel is closed, so ended is closed soon
	if p.exit == nil || p.broken.Load() {
		return Exit{}, fmt.Errorf("cannot follow command %s: %w", p.id, p.host.why(p.ctx, io.ErrUnexpectedEOF))
	}
	return Exit(*p.exit), nil
}

// From returns the offset at which the output of an attachment to a command with a window begins. Upto is the number of
// bytes that the command had printed then.
func (p *Process) From() (from, upto int64) { return p.from, p.upto }

// Ack acknowledges the output up to an offset, see [Host.AttachWindow].
func (p *Process) Ack(upto int64) error {
	if _, err := p.ch.SendRequest(runner.AckRequest, false, ssh.Marshal(runner.Ack{Upto: uint64(upto)})); err != nil {
		return fmt.Errorf("cannot acknowledge the output of command %s: %w", p.id, p.host.why(p.ctx, err))
	}
	return nil
}

// Input sends bytes to the command's terminal. It waits while the terminal takes none.
func (p *Process) Input(b []byte) error {
	if _, err := p.ch.Write(b); err != nil {
		return fmt.Errorf("cannot send input to command %s: %w", p.id, p.host.why(p.ctx, err))
	}
	return nil
}

// Resize sets the size of the command's terminal. When it returns, the terminal has the size, so that input which follows
// finds it.
func (p *Process) Resize(w Window) error {
	_, err := p.ch.SendRequest("window-change", true,
		ssh.Marshal(struct{ Cols, Rows, Width, Height uint32 }{uint32(w.Cols), uint32(w.Rows), 0, 0}))
	if err != nil {
		return fmt.Errorf("cannot resize the terminal of command %s: %w", p.id, p.host.why(p.ctx, err))
	}
	return nil
}

// ask sends a request whose answer is JSON or empty.
func (h *Host) ask(ctx context.Context, r *runner.Request, answer any) error {
	p, err := h.request(ctx, r)
	if err != nil {
		return err
	}
	defer p.close()
	b, err := io.ReadAll(io.LimitReader(p.ch, maxAnswer))
	if err != nil {
		return h.why(ctx, err)
	}
	p.ch.Close()
	<-p.ended
	if p.failure != nil {
		return refusal(p.failure)
	}
	if !p.over {
		return h.why(ctx, io.ErrUnexpectedEOF)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(b, answer); err != nil {
		return fmt.Errorf("cannot read the runner's answer: %w", err)
	}
	return nil
}
