package executor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
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

// Bounds of what an agent may ask of files and terminals.
const (
	maxReadBytes     = 4 << 20   // of a file that is handed over
	maxScanBytes     = 256 << 20 // of a file in which lines are looked for
	maxTerminals     = 16        // that are not released
	maxTerminalBytes = 1 << 20   // of a terminal's output that are kept: the last
	deskWait         = time.Minute
)

// desk serves an agent's requests for files and terminals. All of it happens in
// the agent's own container, as its own user: what an agent can have here it could
// take by itself, and nothing of the host's is within reach.
type desk struct {
	k *talk

	mu        sync.Mutex // guards all below
	closed    bool
	sftp      *sftp.Client // nil: none is open
	terminals map[string]*terminal
	made      int
}

func newDesk(k *talk) *desk { return &desk{k: k, terminals: make(map[string]*terminal)} }

// errNoDesk: the agent is being ended.
var errNoDesk = errors.New("the agent is being ended")

// close ends the terminals. Requests have ended before, with the connection.
func (d *desk) close() {
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.k.l.ctx), killWait)
	defer cancel()
	for _, t := range list {
		_ = d.k.host.Kill(ctx, t.id) // what does not end goes with the step
	}
	for _, t := range list {
		t.leave(ctx)
	}
}

// files calls f with the container's files. A request that hangs, as on a pipe
// that nobody writes to, ends with its connection; others at that time with it.
func (d *desk) files(ctx context.Context, f func(*sftp.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, deskWait)
	defer cancel()
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return errNoDesk
	}
	if d.sftp == nil {
		client, err := d.k.host.Files(ctx)
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
func (k *talk) ReadFile(ctx context.Context, r sdk.ReadTextFileRequest) (content string, err error) {
	err = k.desk.files(ctx, func(files *sftp.Client) error {
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
		return "", fmt.Errorf("cannot read %q: %w", text.Clip(r.Path, maxAgentWords), err)
	}
	return content, nil
}

// readLines reads from a line on (the first is 1) so many lines; nil: from the first, all.
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
func (k *talk) WriteFile(ctx context.Context, r sdk.WriteTextFileRequest) error {
	err := k.desk.files(ctx, func(files *sftp.Client) error {
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
		return put(files, name, strings.NewReader(r.Content), mode)
	})
	if err != nil {
		return fmt.Errorf("cannot write %q: %w", text.Clip(r.Path, maxAgentWords), err)
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
	err    error           // why it is not known

	mu    sync.Mutex // guards out
	out   text.Tail
	limit int
}

// Write takes both of the command's streams, as they come.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Write(p)
}

// leave lets go of a terminal whose command was ended.
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
func (k *talk) StartTerminal(ctx context.Context, r sdk.CreateTerminalRequest) (string, error) {
	id, err := k.desk.start(ctx, r)
	if err != nil {
		return "", fmt.Errorf("cannot start %q: %w", text.Clip(r.Command, maxAgentWords), err)
	}
	return id, nil
}

func (d *desk) start(ctx context.Context, r sdk.CreateTerminalRequest) (string, error) {
	c := containers.Command{Timeout: d.k.l.x.Timeout, Env: d.k.env()}
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
	limit := maxTerminalBytes
	if r.OutputByteLimit != nil {
		limit = min(max(*r.OutputByteLimit, 0), maxTerminalBytes)
	}
	d.mu.Lock()
	switch {
	case d.closed:
		d.mu.Unlock()
		return "", errNoDesk
	case len(d.terminals) >= maxTerminals:
		d.mu.Unlock()
		return "", fmt.Errorf("%d terminals are open already; release some", maxTerminals)
	}
	d.made++
	t := &terminal{id: d.k.id + "-t" + strconv.Itoa(d.made), host: d.k.host, ended: make(chan struct{}), limit: limit, out: text.Tail{Limit: max(limit, 1)}}
	d.terminals[t.id] = t // its place is taken while it starts
	d.mu.Unlock()
	c.ID = t.id
	var attach context.Context
	attach, t.detach = context.WithCancel(context.WithoutCancel(ctx))
	p, err := d.k.host.Start(attach, c)
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

func (d *desk) terminal(id string) (*terminal, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.terminals[id]
	if t == nil {
		return nil, fmt.Errorf("there is no terminal %q", text.Clip(id, 100))
	}
	return t, nil
}

// TerminalOutput implements acp.Client.
func (k *talk) TerminalOutput(_ context.Context, id string) (sdk.TerminalOutputResponse, error) {
	t, err := k.desk.terminal(id)
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

// status is how a terminal's command ended.
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
func (k *talk) AwaitTerminal(ctx context.Context, id string) (sdk.TerminalExitStatus, error) {
	t, err := k.desk.terminal(id)
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
func (k *talk) KillTerminal(ctx context.Context, id string) error {
	t, err := k.desk.terminal(id)
	if err != nil {
		return err
	}
	return k.host.Kill(ctx, t.id)
}

// ReleaseTerminal implements acp.Client.
func (k *talk) ReleaseTerminal(ctx context.Context, id string) error {
	t, err := k.desk.terminal(id)
	if err != nil {
		return err
	}
	k.desk.mu.Lock()
	_, there := k.desk.terminals[id]
	delete(k.desk.terminals, id)
	k.desk.mu.Unlock()
	if !there {
		return nil // somebody else lets go of it
	}
	err = k.host.Kill(ctx, t.id)
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	t.leave(ctx)
	return err
}
