package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ramus-dev/ramus/gitd/clone"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// wantsMax bounds the bytes of one request of a fetch. The wants of the checkout of a partial clone fit, and so do the
// haves of a long negotiation.
const wantsMax = 32 << 20

// upload answers one request of a fetch over HTTP. It calls read when the whole request was read.
func (s *Server) upload(ctx context.Context, a access, in io.Reader, read func(), out clone.ReplyWriter) error {
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
		return s.answerRequest(ctx, a, q, out)
	}
	if a.protocol != "version=2" {
		if err := protocol.CheckUpload(bufio.NewReader(body)); err != nil {
			return err
		}
		if body, err = store.Reader(); err != nil {
			return err
		}
	}
	return s.uploadPack(ctx, a, body, out)
}

// uploadPack lets git answer one request.
func (s *Server) uploadPack(ctx context.Context, a access, request io.Reader, out io.Writer) error {
	return s.serveChild(ctx, a, gitcmd.Command{
		Args: []string{"upload-pack", "--stateless-rpc", a.dir},
		Env:  a.env(),
		// In a type of its own, so that git gets a pipe and not the file. It must not begin before its
		// limits are set.
		In: struct{ io.Reader }{request},
	}, out, copyAnswer)
}

// answerFetch answers a fetch of protocol v2 whose refs are in memory. Git answers, unless other fetches
// have left an answer.
func (s *Server) answerFetch(ctx context.Context, a access, f *protocol.FetchRequest, out clone.ReplyWriter) error {
	if f.Sparse() && len(a.grant.Read) > 0 {
		// The file of the filter could be one that the grant does not show.
		return object.Refuse(ErrDenied, "this token may not use filters that files describe")
	}
	err := a.repo.view.checkWants(ctx, a.grant, f.Wants)
	var want *wantError
	if errors.As(err, &want) {
		s.log().Info("fetch refused", "repo", a.name, "subject", a.grant.Subject, "want", want.want)
		return writeWhole(out, want.packet())
	}
	if err != nil {
		return err
	}

	answered, err := s.clones.Answer(ctx, s.cloneRequest(a, f), out)
	if answered || err != nil {
		return err
	}
	return s.uploadPack(ctx, a, bytes.NewReader(f.Render(f.NoProgress)), out)
}

// advertise lets git write the refs and capabilities that open a conversation.
func (s *Server) advertise(ctx context.Context, a access, service string, out io.Writer) error {
	return s.serveChild(ctx, a, gitcmd.Command{
		Args: []string{service, "--stateless-rpc", "--advertise-refs", a.dir},
		Env:  a.env(),
	}, out, copyAnswer)
}

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

// writeWhole sends an answer that is complete in memory.
func writeWhole(out clone.ReplyWriter, b []byte) error {
	out.SetLength(int64(len(b)))
	if _, err := out.Write(b); err != nil {
		return fmt.Errorf("cannot send an answer: %w", err)
	}
	return nil
}
