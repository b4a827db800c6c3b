package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// serveChild runs one git child for a client within all limits. answer copies the output of the child.
func (s *Server) serveChild(ctx context.Context, a access, c gitcmd.Command, out io.Writer, answer func(io.Reader, io.Writer) error) error {
	release, err := s.slots.acquire(ctx, a.client)
	if err != nil {
		return err
	}
	return s.limitedChild(ctx, a, c, release, func(r io.Reader, cancel context.CancelCauseFunc) error {
		return answer(r, &idleWriter{w: out, idle: s.limits.Idle, idled: func() { cancel(errIdle) }})
	})
}

// limitedChild runs one git child and calls release when it has ended, even if read hangs. read reads the
// output of the child, and cancel ends the child.
func (s *Server) limitedChild(ctx context.Context, a access, c gitcmd.Command, release func(), read func(r io.Reader, cancel context.CancelCauseFunc) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, s.limits.Time, errChildTime)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.CPU, c.Memory = s.limits.CPU, s.limits.Memory
	c.Config = append(a.config(s.limits), c.Config...)
	r, w, err := os.Pipe()
	if err != nil {
		release()
		return fmt.Errorf("cannot start git %s: %w", c.Args[0], err)
	}
	defer r.Close()
	c.Out = w
	p, err := s.git.Start(ctx, c)
	w.Close()
	if err != nil {
		release()
		return err
	}

	ended := make(chan error, 1)
	go func() {
		err := p.Wait()
		release()
		ended <- err
	}()
	readErr := read(r, cancel)
	if readErr != nil {
		cancel(readErr) // nobody reads the rest of the output
	}
	return errors.Join(<-ended, readErr)
}

// idleWriter calls idled when a single Write takes longer than idle. Not every connection supports
// deadlines.
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

// copyAnswer copies the answer of git as it arrives.
func copyAnswer(r io.Reader, w io.Writer) error {
	_, err := io.CopyBuffer(pack.WriterOnly{Writer: w}, struct{ io.Reader }{r}, make([]byte, 64<<10))
	if err != nil {
		return fmt.Errorf("cannot send the answer of git: %w", err)
	}
	return nil
}

// errChildTime ends a git child that exceeds its time.
var errChildTime = object.Refuse(ErrTooLarge, "git took longer than allowed")
