package gitd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// wantsMax bounds what a client may say in one request of a fetch: the wants of
// a partial clone's check-out and the haves of a long negotiation fit.
const wantsMax = 32 << 20

// serveChild runs one git child for a client within all limits; answer copies
// what it writes.
func (s *Server) serveChild(ctx context.Context, a access, c gitcmd.Command, out io.Writer, answer func(io.Reader, io.Writer) error) error {
	give, err := s.slots.take(ctx, a.client)
	if err != nil {
		return err
	}
	return s.limitedChild(ctx, a, c, give, func(r io.Reader, cancel context.CancelCauseFunc) error {
		return answer(r, &idleWriter{w: out, idle: s.limits.Idle, idled: func() { cancel(errIdle) }})
	})
}

// limitedChild runs one git child in a place that give gives back when the child has
// ended, even if read, which takes what it writes, hangs. cancel ends the child.
func (s *Server) limitedChild(ctx context.Context, a access, c gitcmd.Command, give func(), read func(r io.Reader, cancel context.CancelCauseFunc) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, s.limits.Time, errChildTime)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.CPU, c.Memory = s.limits.CPU, s.limits.Memory
	c.Config = append(a.config(s.limits), c.Config...)
	r, w, err := os.Pipe()
	if err != nil {
		give()
		return fmt.Errorf("cannot start git %s: %w", c.Args[0], err)
	}
	defer r.Close()
	c.Out = w
	p, err := s.git.Start(ctx, c)
	w.Close()
	if err != nil {
		give()
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := p.Wait()
		give()
		ended <- err
	}()
	readErr := read(r, cancel)
	if readErr != nil {
		cancel(readErr) // nobody reads what git would still compute
	}
	return errors.Join(<-ended, readErr)
}

// idleWriter calls idled when a single write takes longer than idle: not every
// connection knows deadlines.
type idleWriter struct {
	w     io.Writer
	idle  time.Duration
	idled func()
}

func (w *idleWriter) Write(p []byte) (int, error) {
	t := time.AfterFunc(w.idle, w.idled)
	defer t.Stop()
	return w.w.Write(p)
}

// copyAnswer copies git's answer as it comes.
func copyAnswer(r io.Reader, w io.Writer) error {
	_, err := io.CopyBuffer(pack.WriterOnly{Writer: w}, struct{ io.Reader }{r}, make([]byte, 64<<10))
	if err != nil {
		return fmt.Errorf("cannot pass git's answer on: %w", err)
	}
	return nil
}

// advertise writes the refs and capabilities that open a conversation.
func (s *Server) advertise(ctx context.Context, a access, service string, out io.Writer) error {
	return s.serveChild(ctx, a, gitcmd.Command{
		Args: []string{service, "--stateless-rpc", "--advertise-refs", a.dir},
		Env:  a.env(),
	}, out, copyAnswer)
}

// upload answers one request of a fetch over HTTP; read is called when all of
// it was read.
func (s *Server) upload(ctx context.Context, a access, in io.Reader, read func(), out answer) error {
	store := &pack.Spool{Dir: os.TempDir()}
	defer store.Close()
	t := pack.NewTap(in, store, wantsMax)
	if _, err := io.Copy(io.Discard, t); err != nil {
		return err
	}
	if err := t.Flush(); err != nil {
		return err
	}
	read()
	body, err := store.Reader()
	if err != nil {
		return err
	}
	if a.direct {
		q, err := protocol.ParseRequest(bufio.NewReader(body))
		if err != nil {
			return err
		}
		return s.reply(ctx, a, q, out)
	}
	if a.protocol != "version=2" {
		if err := protocol.CheckUpload(bufio.NewReader(body)); err != nil {
			return err
		}
		if body, err = store.Reader(); err != nil {
			return err
		}
	}
	return s.uploadChild(ctx, a, body, out)
}

// uploadChild lets git answer one request.
func (s *Server) uploadChild(ctx context.Context, a access, request io.Reader, out io.Writer) error {
	return s.serveChild(ctx, a, gitcmd.Command{
		Args: []string{"upload-pack", "--stateless-rpc", a.dir},
		Env:  a.env(),
		// Behind a type of its own, so that git gets a pipe and not the file:
		// it must not begin before its limits are set.
		In: struct{ io.Reader }{request},
	}, out, copyAnswer)
}
