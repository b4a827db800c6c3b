package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ramus-dev/ramus/gitd/refview"

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
	err := a.repo.view.CheckWants(ctx, a.grant, f.Wants)
	var want *refview.WantError
	if errors.As(err, &want) {
		s.log().Info("fetch refused", "repo", a.name, "subject", a.grant.Subject, "want", want.Want)
		return writeWhole(out, want.Packet())
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

// writeWhole sends an answer that is complete in memory.
func writeWhole(out clone.ReplyWriter, b []byte) error {
	out.SetLength(int64(len(b)))
	if _, err := out.Write(b); err != nil {
		return fmt.Errorf("cannot send an answer: %w", err)
	}
	return nil
}
