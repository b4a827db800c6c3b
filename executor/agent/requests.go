package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of an agent's requests for files and terminals.
const (
	maxReadBytes     = 4 << 20   // of a file that is returned
	maxScanBytes     = 256 << 20 // of a file in which lines are looked for
	maxTerminals     = 16        // that are not released
	maxTerminalBytes = 1 << 20   // of the end of a terminal's output
	requestWait      = time.Minute
)

// requests serves an agent's requests for files and terminals. They are done in the agent's own container, as its own user. So an agent gets nothing
// that it could not take by itself, and nothing of the host is within reach.
type requests struct {
	k *Process

	mu        sync.Mutex // guards all below
	closed    bool
	sftp      *sftp.Client // nil if none is open
	terminals map[string]*terminal
	ends      map[string]string // of the output of terminals that were released, by id
	released  []string          // the ids in ends, the oldest first
	made      int
}

// newRequests returns the requests of a process.
func newRequests(k *Process) *requests { return &requests{k: k, terminals: make(map[string]*terminal)} }

// errEnding is the error of requests of an agent that is being ended.
var errEnding = errors.New("the agent is being ended")

// close ends the terminals. Requests have ended before, with the connection.
func (d *requests) close(ctx context.Context) {
	d.mu.Lock()
	d.closed = true
	list := d.terminals
	d.terminals = nil
	client := d.sftp
	d.sftp = nil
	d.mu.Unlock()
	if client != nil {
		client.Close()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	for _, t := range list {
		_ = d.k.Host.Kill(ctx, t.id) // a command that does not end goes with the step
	}
	for _, t := range list {
		t.leave(ctx)
	}
}

// files calls f with the container's files. A request that hangs, as on a pipe that nobody writes to, ends with its connection. Others at that time
// end with it.
func (d *requests) files(ctx context.Context, f func(*sftp.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return errEnding
	}
	if d.sftp == nil {
		client, err := d.k.Host.Files(ctx)
		if err != nil {
			d.mu.Unlock()
			return err
		}
		d.sftp = client
	}
	client := d.sftp
	d.mu.Unlock()
	defer context.AfterFunc(ctx, func() {
		d.mu.Lock()
		if d.sftp == client {
			d.sftp = nil
		}
		d.mu.Unlock()
		client.Close()
	})()
	err := f(client)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// ReadFile implements acp.Client.
func (k *Process) ReadFile(ctx context.Context, r sdk.ReadTextFileRequest) (content string, err error) {
	err = k.requests.files(ctx, func(files *sftp.Client) error {
		name, err := absolute(r.Path)
		if err != nil {
			return err
		}
		info, err := files.Stat(name)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return errors.New("it is no file")
		}
		f, err := files.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		content, err = readLines(f, r.Line, r.Limit)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("cannot read %q: %w", text.Clip(r.Path, maxWords), err)
	}
	return content, nil
}

// readLines reads limit lines, from the given line on. The first line is 1. Nil means from the first, and all.
func readLines(from io.Reader, line, limit *int) (string, error) {
	first, count := 1, -1
	if line != nil {
		first = *line
	}
	if limit != nil {
		count = max(*limit, 0)
	}
	in := bufio.NewReaderSize(io.LimitReader(from, maxScanBytes), 64<<10)
	var text strings.Builder
	for n := 1; count < 0 || n < first+count; {
		part, err := in.ReadSlice('\n')
		if n >= first {
			if text.Len()+len(part) > maxReadBytes {
				return "", fmt.Errorf("it has more than %d MiB; read it by lines", maxReadBytes>>20)
			}
			text.Write(part)
		}
		switch {
		case err == nil:
			n++
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return strings.ToValidUTF8(text.String(), "\uFFFD"), nil
		default:
			return "", err
		}
	}
	return strings.ToValidUTF8(text.String(), "\uFFFD"), nil
}

// WriteFile implements acp.Client.
func (k *Process) WriteFile(ctx context.Context, r sdk.WriteTextFileRequest) error {
	err := k.requests.files(ctx, func(files *sftp.Client) error {
		name, err := absolute(r.Path)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		switch info, err := files.Stat(name); {
		case errors.Is(err, fs.ErrNotExist):
			if err := files.MkdirAll(path.Dir(name)); err != nil {
				return err
			}
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return errors.New("it is no file")
		default:
			mode = info.Mode().Perm()
		}
		return WriteFile(files, name, strings.NewReader(r.Content), mode)
	})
	if err != nil {
		return fmt.Errorf("cannot write %q: %w", text.Clip(r.Path, maxWords), err)
	}
	return nil
}

func absolute(name string) (string, error) {
	if !path.IsAbs(name) {
		return "", errors.New("the path is not absolute")
	}
	return path.Clean(name), nil
}

// terminal is a command that an agent asked for.
type terminal struct {
	id     string
	host   *containers.Host
	detach context.CancelFunc
	ended  chan struct{}
	exit   containers.Exit // when ended
	err    error           // the reason for which it is not known

	mu    sync.Mutex // guards out
	out   text.Tail
	limit int
}

// Write takes both of the command's streams, in the order that they come.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Write(p)
}

// leave releases a terminal whose command was ended.
func (t *terminal) leave(ctx context.Context) {
	select {
	case <-t.ended:
		_ = t.host.Forget(ctx, t.id) // the runner's memory ends with the container anyway
	case <-ctx.Done():
	}
	t.detach()
	<-t.ended
}

// StartTerminal implements acp.Client.
func (k *Process) StartTerminal(ctx context.Context, r sdk.CreateTerminalRequest) (string, error) {
	id, err := k.requests.start(ctx, r)
	if err != nil {
		return "", fmt.Errorf("cannot start %q: %w", text.Clip(r.Command, maxWords), err)
	}
	return id, nil
}

func (d *requests) start(ctx context.Context, r sdk.CreateTerminalRequest) (string, error) {
	c := containers.Command{Timeout: d.k.o.Timeout, Env: slices.Clone(d.k.o.Env), Guard: d.k.o.Guard}
	if r.Cwd != nil {
		c.Dir = *r.Cwd
	}
	for _, v := range r.Env {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") {
			return "", fmt.Errorf("%w environment variable %q", record.ErrInvalid, text.Clip(v.Name, 100))
		}
		c.Env = append(c.Env, v.Name+"="+v.Value)
	}
	// Agents send a program with its arguments, or a line for a shell.
	if len(r.Args) > 0 {
		c.Args = append([]string{r.Command}, r.Args...)
	} else {
		c.Shell = r.Command
	}
	line := record.Command{Args: c.Args, Shell: c.Shell}
	if err := d.k.permitTerminal(ctx, line); err != nil {
		return "", err
	}
	limit := maxTerminalBytes
	if r.OutputByteLimit != nil {
		limit = min(max(*r.OutputByteLimit, 0), maxTerminalBytes)
	}
	d.mu.Lock()
	switch {
	case d.closed:
		d.mu.Unlock()
		return "", errEnding
	case len(d.terminals) >= maxTerminals:
		d.mu.Unlock()
		return "", fmt.Errorf("%d terminals are open already; release some", maxTerminals)
	}
	d.made++
	t := &terminal{id: d.k.ID + "-t" + strconv.Itoa(d.made), host: d.k.Host, ended: make(chan struct{}), limit: limit,
		out: text.Tail{Limit: max(limit, 1)}}
	d.terminals[t.id] = t // it counts while it starts
	d.mu.Unlock()
	c.ID = t.id
	var attach context.Context
	attach, t.detach = context.WithCancel(context.WithoutCancel(ctx))
	p, err := d.k.Host.Start(attach, c)
	if err != nil {
		t.err = err
		close(t.ended)
		d.mu.Lock()
		delete(d.terminals, t.id)
		d.mu.Unlock()
		t.detach()
		return "", err
	}
	go func() {
		defer close(t.ended)
		t.exit, t.err = p.Output(t, t)
	}()
	return t.id, nil
}

func (d *requests) terminal(id string) (*terminal, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.terminals[id]
	if t == nil {
		return nil, fmt.Errorf("there is no terminal %q", text.Clip(id, 100))
	}
	return t, nil
}

// end returns the end of the output of a terminal, which may have been released.
func (d *requests) end(id string) (end string, ok bool) {
	d.mu.Lock()
	t, end := d.terminals[id], d.ends[id]
	d.mu.Unlock()
	if t == nil {
		return end, end != ""
	}
	return t.end(), true
}

// end returns the end of the output so far.
func (t *terminal) end() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return text.ClipEnd(t.out.String(), maxContent)
}

// remember keeps the end of the output of a terminal that is released. mu is held.
func (d *requests) remember(id string, t *terminal) {
	if d.ends == nil {
		d.ends = make(map[string]string)
	}
	d.ends[id] = t.end()
	if d.released = append(d.released, id); len(d.released) > maxTerminals {
		delete(d.ends, d.released[0])
		d.released = d.released[1:]
	}
}

// TerminalOutput implements acp.Client.
func (k *Process) TerminalOutput(_ context.Context, id string) (sdk.TerminalOutputResponse, error) {
	t, err := k.requests.terminal(id)
	if err != nil {
		return sdk.TerminalOutputResponse{}, err
	}
	t.mu.Lock()
	r := sdk.TerminalOutputResponse{Output: t.out.String(), Truncated: t.out.Total() > int64(t.limit)}
	t.mu.Unlock()
	if t.limit == 0 {
		r.Output = ""
	}
	select {
	case <-t.ended:
		status := t.status()
		r.ExitStatus = &status
	default:
	}
	return r, nil
}

// status returns how a terminal's command ended.
func (t *terminal) status() sdk.TerminalExitStatus {
	if t.err != nil {
		return sdk.TerminalExitStatus{}
	}
	s := sdk.TerminalExitStatus{ExitCode: &t.exit.Code}
	if t.exit.Signal != "" {
		signal := "SIG" + t.exit.Signal
		s.Signal = &signal
	}
	return s
}

// AwaitTerminal implements acp.Client.
func (k *Process) AwaitTerminal(ctx context.Context, id string) (sdk.TerminalExitStatus, error) {
	t, err := k.requests.terminal(id)
	if err != nil {
		return sdk.TerminalExitStatus{}, err
	}
	select {
	case <-t.ended:
		return t.status(), nil
	case <-ctx.Done():
		return sdk.TerminalExitStatus{}, context.Cause(ctx)
	}
}

// KillTerminal implements acp.Client.
func (k *Process) KillTerminal(ctx context.Context, id string) error {
	t, err := k.requests.terminal(id)
	if err != nil {
		return err
	}
	return k.Host.Kill(ctx, t.id)
}

// ReleaseTerminal implements acp.Client.
func (k *Process) ReleaseTerminal(ctx context.Context, id string) error {
	t, err := k.requests.terminal(id)
	if err != nil {
		return err
	}
	k.requests.mu.Lock()
	_, there := k.requests.terminals[id]
	if there {
		k.requests.remember(id, t)
	}
	delete(k.requests.terminals, id)
	k.requests.mu.Unlock()
	if !there {
		return nil // another request releases it
	}
	err = k.Host.Kill(ctx, t.id)
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	t.leave(ctx)
	return err
}

// WriteFile writes a file in a container.
func WriteFile(files *sftp.Client, name string, from io.Reader, mode os.FileMode) error {
	f, err := files.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
