package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ramus-dev/ramus/gitd/refview"

	"github.com/ramus-dev/ramus/gitd/clone"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// negotiate decides how the server speaks to a client that offers a protocol. Protocol v2 is answered in process
// if the refs of the repository are in memory, under any grant. Otherwise git answers, and v2 is only for clients
// that may read everything, because with it git sends hidden commits to clients that name them.
func (s *Server) negotiate(ctx context.Context, a access, protocol string, write bool) access {
	if protocol == "version=2" && !write && a.repo != nil && !s.native {
		err := a.repo.view.Refresh(ctx)
		if err == nil {
			a.protocol, a.direct = protocol, true
			return a
		}
		if !errors.Is(err, refview.ErrNative) {
			s.log().Warn("git answers in place of the server", "repo", a.name, "err", err)
		}
	}
	if len(a.grant.Read) == 0 {
		a.protocol = protocol
	}
	return a
}

// capabilities returns the first packets of a conversation of protocol v2, which are the capabilities of git. They
// are asked once.
func (s *Server) capabilities(ctx context.Context, a access) ([]byte, error) {
	s.advertMu.Lock()
	defer s.advertMu.Unlock()
	if s.advert == nil {
		out, err := s.git.Output(ctx, gitcmd.Command{
			Args: []string{"upload-pack", "--advertise-refs", a.dir},
			Env:  []string{"GIT_PROTOCOL=version=2"}, Config: access{}.config(s.limits),
		})
		if err != nil {
			return nil, fmt.Errorf("cannot read the capabilities of git: %w", err)
		}
		s.advert = out
	}
	return protocol.Capabilities(s.advert, len(a.grant.Read) == 0)
}

// advertisePush writes the first packets of a push. It starts no git if the refs are in memory.
func (s *Server) advertisePush(ctx context.Context, a access, out io.Writer) error {
	if a.repo == nil || s.native || a.protocol == "version=1" || a.repo.view.Refresh(ctx) != nil {
		return s.advertise(ctx, a, "receive-pack", out)
	}
	capabilities, err := s.pushCapabilities(ctx, a)
	if err != nil {
		return err
	}
	if a.options {
		capabilities += " push-options"
	}
	b, ok := a.repo.view.PushAdvert(a.grant, capabilities)
	if !ok {
		return s.advertise(ctx, a, "receive-pack", out)
	}
	s.lists.Add(1)
	if _, err := out.Write(b); err != nil {
		return fmt.Errorf("cannot send the refs: %w", err)
	}
	return nil
}

// pushCapabilities returns the capabilities of git for a push. They are asked once.
func (s *Server) pushCapabilities(ctx context.Context, a access) (string, error) {
	s.advertMu.Lock()
	defer s.advertMu.Unlock()
	if s.pushAdvert == "" {
		out, err := s.git.Output(ctx, gitcmd.Command{
			Args:   []string{"receive-pack", "--stateless-rpc", "--advertise-refs", a.dir},
			Config: access{dir: a.dir, grant: Grant{Read: []string{"refs/none"}}}.config(s.limits), // no refs
		})
		if err != nil {
			return "", fmt.Errorf("cannot read the capabilities of git: %w", err)
		}
		line, _, err := protocol.NewReader(bytes.NewReader(out)).Next()
		_, capabilities, ok := strings.Cut(protocol.Chomp(line), "\x00")
		if err != nil || !ok {
			return "", fmt.Errorf("cannot read the capabilities of git: %.200q: %w", out, err)
		}
		s.pushAdvert = capabilities
	}
	return s.pushAdvert, nil
}

// answerRequest answers one request of protocol v2.
func (s *Server) answerRequest(ctx context.Context, a access, q *protocol.Request, out clone.ReplyWriter) error {
	switch q.Command {
	case protocol.CommandRefs:
		s.lists.Add(1)
		return writeWhole(out, a.repo.view.List(a.grant, &q.Refs))
	case protocol.CommandFetch:
		return s.answerFetch(ctx, a, &q.Fetch, out)
	case protocol.CommandInfo:
		if len(a.grant.Read) > 0 {
			return object.Refuse(ErrDenied, "this token may not ask for the sizes of objects")
		}
		return s.uploadPack(ctx, a, bytes.NewReader(protocol.RenderInfo(q.Info)), out)
	}
	return nil
}
