package containers

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/ramus-dev/ramus/containers/runner"
)

// Paths inside every container.
const (
	WorkDir      = "/work"      // the caller's work tree
	ArtifactsDir = "/artifacts" // files that a command wants kept
	CacheDir     = "/cache"     // package managers' caches; HOME is /cache/home
	DoorAddr     = "127.0.0.1:7070"
	DoorFolder   = "/tmp/.ramus" // the door as a unix socket, door.sock, and gh's configuration for it
	// Program is ramus itself, for commands. An agent reaches the tools at the door by `/ramus mcp`.
	Program = "/ramus"
	// RunnerProgram is the program that the runner was started from. git calls it for signatures of commits, which come
	// from SignPath of the door, and for the list of changed files, which comes from FsmonitorPath.
	RunnerProgram = "/ramus-runner"
	SignPath      = runner.SignPath
	RulePath      = runner.RulePath
	FsmonitorPath = runner.FsmonitorPath
)

// RuleCall is a question at [RulePath] whether a program may start.
type RuleCall = runner.RuleCall

// Kinds of error of this package.
var (
	// ErrGone means that the container or its runner no longer exists.
	ErrGone = errors.New("container is gone")
	// ErrUnavailable means that the engine does not answer.
	ErrUnavailable = errors.New("container engine unavailable")
	// ErrUnknownCommand means that the runner remembers no command of that id.
	ErrUnknownCommand = errors.New("unknown command")
	// ErrImpostor means that the host key of the answering program is not that of the runner.
	ErrImpostor = errors.New("the runner is not the one that was started")
	// ErrKnownCommand means that a command of that id was started before. Attach follows it.
	ErrKnownCommand = errors.New("command was started before")
	// ErrBusy means that the queue for a container is full.
	ErrBusy = errors.New("too many callers are waiting")
	// ErrNoPort means that nothing listens at a port inside.
	ErrNoPort = errors.New("nothing listens there")
)

const (
	handshakeTime = 10 * time.Second
	// A runner that does not answer for keepaliveTime counts as gone. A connection that makes itself again has a method
	// Patience with a longer time.
	keepaliveEvery = 15 * time.Second
	keepaliveTime  = 30 * time.Second
	// maxAnswer bounds an answer of the runner, in bytes.
	maxAnswer = 64 << 20
)

// Host is an SSH connection to the runner in one container. Methods are safe for concurrent use. After the connection
// breaks, every method fails with [ErrGone].
type Host struct {
	container Container
	client    *ssh.Client
	carrier   *runner.Carrier // nil if the runner cannot pass files
	done      chan struct{}   // closed when the connection is lost
	door      *doorServer     // nil without a door
	owned     group

	mu       sync.Mutex          // guards forwards
	forwards map[string]*forward // by address inside
}

// Pin remembers the SSH host key of a runner, so that nothing inside a container can take the runner's place later. The
// first use stores the key, later uses compare.
type Pin interface {
	Key() []byte // nil if no key is stored yet
	Store(key []byte) error
}

// Dialer opens Hosts.
type Dialer struct {
	Engine Engine
	// Signer is the private half of Spec.ClientKey.
	Signer ssh.Signer
	Pin    Pin
	// Door answers the requests of the container to 127.0.0.1:7070. If it is nil, the door is closed.
	Door http.Handler
}

// Dial connects to the runner in a container. It tries again until the runner answers, the container is found to be
// gone, or ctx ends. The connection outlives ctx. Returns [ErrImpostor] if the runner's host key is not the pinned one.
func (d *Dialer) Dial(ctx context.Context, id string) (*Host, error) {
	wait := 5 * time.Millisecond
	for {
		h, err := d.dialOnce(ctx, id)
		if err == nil {
			return h, nil
		}
		// Only a runner that does not answer yet is worth another attempt.
		if !errors.Is(err, errNotYet) {
			return nil, fmt.Errorf("cannot connect to container %s: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot connect to container %s: %w (%w)", id, ctx.Err(), err)
		case <-time.After(wait):
		}
		wait = min(wait*2, 250*time.Millisecond)
	}
}

// errNotYet means that the runner did not answer, but may soon.
var errNotYet = errors.New("the runner does not answer")

func (d *Dialer) dialOnce(ctx context.Context, id string) (*Host, error) {
	conn, err := d.Engine.Dial(ctx, id)
	if errors.Is(err, ErrGone) || ctx.Err() != nil && err != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotYet, err)
	}
	return d.NewHost(ctx, conn, Container{ID: id, Running: true})
}

// NewHost is like Dial over a connection that exists already. After an error conn is closed.
func (d *Dialer) NewHost(ctx context.Context, conn net.Conn, c Container) (*Host, error) {
	impostor := false
	config := &ssh.ClientConfig{
		User:          "task",
		Auth:          []ssh.AuthMethod{ssh.PublicKeys(d.Signer)},
		ClientVersion: "SSH-2.0-ramus",
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if d.Pin == nil {
				return nil
			}
			pinned := d.Pin.Key()
			if pinned == nil {
				if err := d.Pin.Store(key.Marshal()); err != nil {
					return fmt.Errorf("cannot store the runner's host key: %w", err)
				}
				return nil
			}
			if subtle.ConstantTimeCompare(pinned, key.Marshal()) != 1 {
				impostor = true
				return ErrImpostor
			}
			return nil
		},
	}
	var carrier *runner.Carrier
	if u, ok := conn.(*net.UnixConn); ok {
		carrier = runner.NewCarrier(u)
		conn = carrier
	}
	patience := keepaliveTime
	if p, ok := conn.(interface{ Patience() time.Duration }); ok {
		patience = max(patience, p.Patience())
	}
	end := &endingConn{Conn: conn}
	conn = end
	// The handshake takes no context. Closing the connection ends it.
	hctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	stop := context.AfterFunc(hctx, func() { conn.Close() })
	sc, chans, reqs, err := ssh.NewClientConn(conn, c.ID, config)
	if !stop() && err == nil {
		sc.Close()
		err = hctx.Err()
	}
	if err != nil {
		conn.Close()
		switch {
		case impostor:
			return nil, ErrImpostor
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case broken(err) || hctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil, fmt.Errorf("cannot speak to the runner: %w", err)
	}
	if string(sc.ServerVersion()) != "SSH-2.0-"+runner.ServerVersion {
		carrier = nil // the runner was started by an earlier ramus
	}
	client := ssh.NewClient(sc, chans, reqs)
	end.client.Store(client)
	h := &Host{container: c, client: client, carrier: carrier, done: make(chan struct{})}
	h.owned.Go(func() {
		_ = h.client.Wait()
		close(h.done)
	})
	h.owned.Go(func() { h.keepalive(patience) })
	if err := h.openDoor(d.Door); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// endingConn prevents a wait for an answer that cannot come. When a connection ends, the SSH library fails the channels
// that it knows, and the ones opened later fail with their first packet. But it reports the very first packet that
// cannot be written to nobody, so a goroutine that opens a channel with it would wait forever. endingConn therefore has
// a keepalive fail as that first packet, before the library learns of the end.
type endingConn struct {
	net.Conn
	ended  atomic.Bool
	client atomic.Pointer[ssh.Client] // nil during the handshake, when there are no channels
}

// endingWait bounds the wait for the keepalive. It may not be written at once during a key exchange.
const endingWait = 100 * time.Millisecond

func (c *endingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !c.ended.Swap(true) {
		if client := c.client.Load(); client != nil {
			sent := make(chan struct{})
			go func() { // returns at the latest when the connection is closed
				defer close(sent)
				_, _, _ = client.SendRequest("keepalive@openssh.com", false, nil)
			}()
			late := time.NewTimer(endingWait)
			defer late.Stop()
			select {
			case <-sent:
			case <-late.C:
			}
		}
	}
	return n, err
}

func (c *endingConn) Write(p []byte) (int, error) {
	if c.ended.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// broken reports whether err means that a connection ended, as opposed to a refusal.
func broken(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, io.ErrClosedPipe} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// keepalive closes the connection when the runner stops answering for patience. A paused or dead machine at the other
// side of a network sends no sign of its own.
func (h *Host) keepalive(patience time.Duration) {
	tick := time.NewTicker(keepaliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.done:
			return
		case <-tick.C:
		}
		late := time.AfterFunc(patience, func() { h.client.Close() })
		_, _, _ = h.client.SendRequest("keepalive@openssh.com", true, nil)
		late.Stop()
	}
}

// Commands returns the commands that the runner remembers, oldest first.
func (h *Host) Commands(ctx context.Context) ([]CommandState, error) {
	var states []runner.State
	if err := h.ask(ctx, &runner.Request{Op: runner.OpList}, &states); err != nil {
		return nil, fmt.Errorf("cannot list commands: %w", err)
	}
	all := make([]CommandState, len(states))
	for i, s := range states {
		all[i] = CommandState{ID: s.ID, Started: s.Started, Background: s.Background, Running: s.Running,
			Exit: Exit(s.Exit), Line: s.Line, Cut: s.Cut}
	}
	return all, nil
}

// Kill ends a command as a timeout does, with reason "killed". It does not wait for the end, but [Process.Output] does.
// Killing a command that has ended is no error.
func (h *Host) Kill(ctx context.Context, id string) error {
	if err := h.ask(ctx, &runner.Request{Op: runner.OpKill, ID: id}, nil); err != nil {
		return fmt.Errorf("cannot kill command %s: %w", id, err)
	}
	return nil
}

// killFull ends a command of a container that takes too much disk. message is for people.
func (h *Host) killFull(ctx context.Context, id, message string) error {
	err := h.ask(ctx, &runner.Request{Op: runner.OpKill, ID: id, Reason: runner.ReasonDiskFull, Message: message}, nil)
	if f := (*runner.Failure)(nil); errors.As(err, &f) && f.Kind == runner.FailBad {
		return h.Kill(ctx, id) // the runner was started by an earlier ramus
	}
	if err != nil {
		return fmt.Errorf("cannot kill command %s: %w", id, err)
	}
	return nil
}

// Forget frees the output of a command that has ended.
func (h *Host) Forget(ctx context.Context, id string) error {
	if err := h.ask(ctx, &runner.Request{Op: runner.OpForget, ID: id}, nil); err != nil {
		return fmt.Errorf("cannot forget command %s: %w", id, err)
	}
	return nil
}

// Files opens SFTP. A child process of the task's user serves it, and cannot leave /work, /artifacts, /cache and /tmp
// by "..", absolute path or symlink. The caller closes the client. ctx bounds only the opening.
func (h *Host) Files(ctx context.Context) (*sftp.Client, error) {
	ch, err := h.FilesConn(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { ch.Close() })
	defer stop()
	c, err := sftp.NewClientPipe(ch, ch, sftp.UseConcurrentWrites(true))
	if err != nil {
		ch.Close()
		return nil, fmt.Errorf("cannot open files: %w", h.why(ctx, err))
	}
	return c, nil
}

// FilesConn opens a connection of SFTP to the container's files. A process of the commands' user serves it, so nothing
// that comes from it may be trusted. ctx bounds the opening.
func (h *Host) FilesConn(ctx context.Context) (ssh.Channel, error) {
	ch, reqs, err := h.channel(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot open files: %w", err)
	}
	go ssh.DiscardRequests(reqs) // returns when the channel is closed, by the client or with the connection
	defer context.AfterFunc(ctx, func() { ch.Close() })()
	if ok, err := ch.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{"sftp"})); err != nil || !ok {
		ch.Close()
		return nil, fmt.Errorf("cannot open files: %w", h.why(ctx, err))
	}
	return ch, nil
}

// Dial connects to a port inside the container ("127.0.0.1:5173", "[::1]:5173"). Returns [ErrNoPort] if nothing listens
// at the port.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("cannot dial %q: %w", addr, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("cannot dial %q: %w", addr, err)
	}
	ch, reqs, err := h.open(ctx, "direct-tcpip", ssh.Marshal(struct {
		Addr       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}{host, uint32(n), "127.0.0.1", 0}))
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) && refused.Reason == ssh.ConnectionFailed {
		err = fmt.Errorf("%w: %w", ErrNoPort, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot dial %s in the container: %w", addr, err)
	}
	return newChannelConn(ch, reqs, addr), nil
}

// Ports returns the TCP ports that listen inside, without the door's.
func (h *Host) Ports(ctx context.Context) ([]int, error) {
	var ports []int
	if err := h.ask(ctx, &runner.Request{Op: runner.OpPorts}, &ports); err != nil {
		return nil, fmt.Errorf("cannot list ports: %w", err)
	}
	return slices.Clip(ports), nil
}

// Done is closed when the connection is lost.
func (h *Host) Done() <-chan struct{} { return h.done }

// Container returns the container of the Host.
func (h *Host) Container() Container { return h.container }

// Close closes the connection. The container and its commands continue. Close cancels the contexts of the requests at
// the door and waits for their handlers.
func (h *Host) Close() error {
	err := h.client.Close()
	h.door.close()
	h.owned.Wait()
	if err != nil && !broken(err) {
		return fmt.Errorf("cannot close the connection: %w", err)
	}
	return nil
}

// why returns the cause of a failed exchange.
func (h *Host) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-h.done:
		return ErrGone
	default:
	}
	if err == nil {
		return errors.New("the runner refused")
	}
	if broken(err) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// channel opens a session channel.
func (h *Host) channel(ctx context.Context) (ssh.Channel, <-chan *ssh.Request, error) {
	return h.open(ctx, "session", nil)
}

// open opens a channel. The library's call cannot be interrupted. If ctx ends first, the goroutine that waits for the
// call discards its result.
func (h *Host) open(ctx context.Context, kind string, data []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	type result struct {
		ch   ssh.Channel
		reqs <-chan *ssh.Request
		err  error
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	got := make(chan result)
	left := make(chan struct{})
	defer close(left)
	ok := h.owned.Go(func() {
		ch, reqs, err := h.client.OpenChannel(kind, data)
		select {
		case got <- result{ch, reqs, err}:
		case <-left:
			if err == nil {
				go ssh.DiscardRequests(reqs)
				ch.Close()
			}
		}
	})
	if !ok {
		return nil, nil, ErrGone
	}
	select {
	case r := <-got:
		var refused *ssh.OpenChannelError
		if r.err != nil && !errors.As(r.err, &refused) {
			// All other errors of the library mean that the connection ended meanwhile. They take several forms, and
			// may come before Done is closed.
			if r.err = h.why(ctx, r.err); ctx.Err() == nil && !errors.Is(r.err, ErrGone) {
				r.err = fmt.Errorf("%w: %w", ErrGone, r.err)
			}
		}
		return r.ch, r.reqs, r.err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// group is a set of goroutines that are waited for once. No goroutine can join afterwards.
type group struct {
	mu     sync.Mutex // guards closed, and Go against Wait
	closed bool
	wg     sync.WaitGroup
}

// Go runs f unless Wait was called.
func (g *group) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// Do is like Go, but runs f in the caller's own goroutine.
func (g *group) Do(f func()) bool {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false
	}
	g.wg.Add(1)
	g.mu.Unlock()
	defer g.wg.Done()
	f()
	return true
}

func (g *group) Wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}
