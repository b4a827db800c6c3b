package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// Args is run without a shell. Shell, when Args is empty, is run by `sh -c`.
	Args  []string
	Shell string
	Dir   string   // below /work; default /work
	Env   []string // "K=V", after the container's own
	Stdin io.Reader
	// TTY asks for a terminal; stdout then carries both streams.
	TTY *Window
	// Timeout kills the whole process group (and what left it by setsid) with
	// SIGTERM, and Grace later with SIGKILL. Zero: no limit.
	Timeout time.Duration
	Grace   time.Duration // default 5 s
	// Background commands may outlive later commands and count as activity;
	// foreground commands take what they started with them when they end.
	Background bool
}

// Window is a terminal's size and kind.
type Window struct {
	Rows, Cols int
	Term       string // TERM; default xterm-256color
}

// Reasons why a command ended other than by itself.
const (
	ReasonTimeout  = "timeout"
	ReasonKilled   = "killed"    // by Process.Kill or Host.Kill
	ReasonDiskFull = "disk_full" // see Limits.Disk and Limits.DiskFree
	ReasonMemory   = "memory"    // the kernel's out-of-memory killer
)

// Exit is how a command ended.
type Exit struct {
	Code     int           // 0-255; 128+n when ended by signal n; 126/127 when it could not start
	Signal   string        // "KILL", … or ""
	Reason   string        // one of the Reason constants, or "" when it ended by itself
	Message  string        // for people, of who killed it; mostly ""
	Duration time.Duration // measured by the runner
	// Stdout and Stderr count all bytes written; more than Limits.Output of
	// either were dropped after that many.
	Stdout, Stderr int64
}

// CommandState is what the runner remembers of a command.
type CommandState struct {
	ID         string
	Started    time.Time
	Background bool
	Running    bool
	Exit       Exit // when not Running; while Running only what was printed so far
	Line       string
	// Cut tells that Command.Stdin broke off: the connection was lost before all of it was
	// sent, while the command ran. The rest cannot be supplied. Runners of before this was
	// told say false.
	Cut bool
}

// Process is a command as seen from outside. Its output is read from what the
// runner keeps, so it may be attached any number of times.
type Process struct {
	id   string
	host *Host
	ctx  context.Context
	ch   ssh.Channel
	stop func() bool // ends the watch over ctx

	started chan struct{} // closed when the runner said so, or nothing more comes
	ended   chan struct{} // closed when the runner will say nothing more

	once    sync.Once   // Output
	printed [2]*printed // stdout, stderr
	broken  atomic.Bool // a file with output is missing

	// Written before ended is closed, read after.
	exit    *runner.Exit
	failure *runner.Failure
	over    bool // the answer is complete
}

// Start runs a command. Its context ends the attachment, not the command; until
// then, or until [Process.Output] has returned, the attachment holds memory. A
// program that is not there or cannot be executed is no error of Start: its
// exit code is 127 or 126. Stdin is read by a goroutine that ends with the
// first Read that returns after the command has ended.
func (h *Host) Start(ctx context.Context, c Command) (*Process, error) {
	r := &runner.Request{
		Op: runner.OpStart, ID: c.ID, Shell: []byte(c.Shell), Dir: []byte(c.Dir),
		Stdin: c.Stdin != nil, Timeout: c.Timeout, Grace: c.Grace, Background: c.Background,
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

// Attach follows a remembered command again, its output from the given offsets on.
func (h *Host) Attach(ctx context.Context, id string, stdout, stderr int64) (*Process, error) {
	p, err := h.attach(ctx, &runner.Request{Op: runner.OpAttach, ID: id, Stdout: stdout, Stderr: stderr})
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

// request sends r on a channel of its own and listens for what the runner says.
func (h *Host) request(ctx context.Context, r *runner.Request) (*Process, error) {
	r.Version = runner.Version
	r.Files = h.carrier != nil && (r.Op == runner.OpStart || r.Op == runner.OpAttach)
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// The runner checks as well; here it costs no round trip, and keeps what
	// cannot be sent from breaking the connection.
	if _, err := runner.ParseRequest(text); err != nil {
		return nil, err
	}
	ch, reqs, err := h.channel(ctx)
	if err != nil {
		return nil, err
	}
	p := &Process{id: r.ID, host: h, ctx: ctx, ch: ch, started: make(chan struct{}), ended: make(chan struct{}), printed: [2]*printed{newPrinted(), newPrinted()}}
	p.stop = context.AfterFunc(ctx, func() { ch.Close() })
	if !h.owned.Go(func() { p.listen(reqs) }) {
		p.close()
		return nil, ErrGone // and the library closes reqs
	}
	// No reply is wanted: what the runner says of the request tells more, and a reply
	// would be one round trip more before it.
	if _, err := ch.SendRequest("exec", false, ssh.Marshal(struct{ Command string }{string(text)})); err != nil {
		p.close()
		return nil, h.why(ctx, err)
	}
	return p, nil
}

// listen takes the runner's channel requests until the channel is closed.
func (p *Process) listen(reqs <-chan *ssh.Request) {
	begun := false
	for req := range reqs {
		switch req.Type {
		case runner.StartedRequest:
			if !begun {
				begun = true
				close(p.started)
			}
		case runner.OutputRequest:
			if p.tell(req.Payload) != nil {
				p.ch.Close() // half an output must not look like a whole one
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
		s.end()
	}
	close(p.ended)
	if !begun {
		close(p.started)
	}
}

// tell takes what the runner says of a file with output.
func (p *Process) tell(payload []byte) error {
	var o runner.Output
	if err := ssh.Unmarshal(payload, &o); err != nil {
		return err
	}
	if p.host.carrier == nil || o.Stream < 1 || o.Stream > 2 {
		return errors.New("the runner speaks of a file that was not asked for")
	}
	if err := p.printed[o.Stream-1].tell(o, p.host.carrier.Take); err != nil {
		p.broken.Store(true)
		return err
	}
	return nil
}

// refusal turns the runner's failure into an error of this package.
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

// feed sends stdin. Its end is announced before the channel's, so that the
// runner can tell it from a connection that broke.
func (p *Process) feed(in io.Reader) {
	if _, err := io.Copy(p.ch, in); err != nil {
		// Either the command is over, or half its input is missing: no end, then.
		return
	}
	if _, err := p.ch.SendRequest(runner.EOFRequest, false, nil); err == nil {
		_ = p.ch.CloseWrite()
	}
}

// Output copies the command's output to the writers and returns how it ended.
// It returns early with the context's error, or ErrGone, or that of a writer;
// the command goes on then. A nil writer discards. It can be called once.
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
		defer s.channel(0, true)
		buf := make([]byte, 64<<10)
		// Without the reader's own shortcuts: a failed Write must be told from a failed Read.
		for {
			n, rerr := r.Read(buf)
			if n > 0 {
				if _, werr := w.Write(buf[:n]); werr != nil {
					*err = fmt.Errorf("cannot write the output of command %s: %w", p.id, werr)
					p.ch.Close() // or the other stream would wait for this one for ever
					return
				}
				s.channel(n, false)
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
	<-p.ended // the channel is closed, so this is near
	if p.exit == nil || p.broken.Load() {
		return Exit{}, fmt.Errorf("cannot follow command %s: %w", p.id, p.host.why(p.ctx, io.ErrUnexpectedEOF))
	}
	return Exit(*p.exit), nil
}

// Resize tells a terminal its new size.
func (p *Process) Resize(w Window) error {
	_, err := p.ch.SendRequest("window-change", false, ssh.Marshal(struct{ Cols, Rows, Width, Height uint32 }{uint32(w.Cols), uint32(w.Rows), 0, 0}))
	if err != nil {
		return fmt.Errorf("cannot resize the terminal of command %s: %w", p.id, p.host.why(p.ctx, err))
	}
	return nil
}

// ask sends a request whose answer is JSON, or nothing.
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
