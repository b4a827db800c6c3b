package gitd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// negotiate decides how a client that offers protocol is spoken to. Protocol v2 is answered
// in process wherever the repository's refs are known here, under any grant. Elsewhere git
// answers, and v2 is only for those who may read all: with it git hands out hidden commits to
// who names them.
func (s *Server) negotiate(ctx context.Context, a access, protocol string, write bool) access {
	if protocol == "version=2" && !write && a.repo != nil && !s.native {
		err := a.repo.view.fresh(ctx)
		if err == nil {
			a.protocol, a.direct = protocol, true
			return a
		}
		if !errors.Is(err, errNative) {
			s.log().Warn("git answers in place of the server", "repo", a.name, "err", err)
		}
	}
	if len(a.grant.Read) == 0 {
		a.protocol = protocol
	}
	return a
}

// capabilities opens a conversation of protocol v2: what git says that it can, asked once.
func (s *Server) capabilities(ctx context.Context, a access) ([]byte, error) {
	s.advertMu.Lock()
	defer s.advertMu.Unlock()
	if s.advert == nil {
		out, err := s.git.Output(ctx, gitcmd.Command{
			Args: []string{"upload-pack", "--advertise-refs", a.dir},
			Env:  []string{"GIT_PROTOCOL=version=2"}, Config: access{}.config(s.limits),
		})
		if err != nil {
			return nil, fmt.Errorf("cannot ask git for its capabilities: %w", err)
		}
		s.advert = out
	}
	return protocol.Capabilities(s.advert, len(a.grant.Read) == 0)
}

// advertisePush writes the first words of a push. Where the refs are known here no git is
// started for them.
func (s *Server) advertisePush(ctx context.Context, a access, out io.Writer) error {
	if a.repo == nil || s.native || a.protocol == "version=1" || a.repo.view.fresh(ctx) != nil {
		return s.advertise(ctx, a, "receive-pack", out)
	}
	capabilities, err := s.pushCapabilities(ctx, a)
	if err != nil {
		return err
	}
	b, ok := a.repo.view.advertisePush(a.grant, capabilities)
	if !ok {
		return s.advertise(ctx, a, "receive-pack", out)
	}
	s.stats.lists.Add(1)
	if _, err := out.Write(b); err != nil {
		return fmt.Errorf("cannot send the refs: %w", err)
	}
	return nil
}

// pushCapabilities is what git says that it can do for a push, asked once.
func (s *Server) pushCapabilities(ctx context.Context, a access) (string, error) {
	s.advertMu.Lock()
	defer s.advertMu.Unlock()
	if s.pushAdvert == "" {
		out, err := s.git.Output(ctx, gitcmd.Command{
			Args:   []string{"receive-pack", "--stateless-rpc", "--advertise-refs", a.dir},
			Config: access{dir: a.dir, grant: Grant{Read: []string{"refs/none"}}}.config(s.limits), // no refs
		})
		if err != nil {
			return "", fmt.Errorf("cannot ask git for its capabilities: %w", err)
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

// reply answers one request of protocol v2.
func (s *Server) reply(ctx context.Context, a access, q *protocol.Request, out answer) error {
	switch q.Command {
	case protocol.CommandRefs:
		s.stats.lists.Add(1)
		return whole(out, a.repo.view.list(a.grant, &q.Refs))
	case protocol.CommandFetch:
		return s.fetchReply(ctx, a, &q.Fetch, out)
	case protocol.CommandInfo:
		if len(a.grant.Read) > 0 {
			return object.Refuse(ErrDenied, "this token may not ask for the sizes of objects")
		}
		return s.uploadChild(ctx, a, bytes.NewReader(protocol.RenderInfo(q.Info)), out)
	}
	return nil
}

// fetchReply answers a fetch.
func (s *Server) fetchReply(ctx context.Context, a access, f *protocol.FetchRequest, out answer) error {
	if f.Sparse() && len(a.grant.Read) > 0 {
		// The filter's file could be one that the grant does not show.
		return object.Refuse(ErrDenied, "this token may not use filters that files describe")
	}
	view := &a.repo.view
	err := view.checkWants(ctx, a.grant, f.Wants)
	var want *wantError
	if errors.As(err, &want) {
		s.log().Info("fetch refused", "repo", a.name, "subject", a.grant.Subject, "want", want.want)
		return whole(out, want.packet())
	}
	if err != nil {
		return err
	}
	key, plain := s.replyKey(a, f)
	native := func() error {
		return s.uploadChild(ctx, a, bytes.NewReader(f.Render(f.NoProgress)), out)
	}
	if !plain {
		return native()
	}
	if !s.replies.has(key) {
		made, err := a.repo.compose(ctx, f)
		if err != nil {
			s.log().Warn("git answers in place of the server", "repo", a.name, "err", err)
		}
		if made != nil {
			defer made.close()
			s.stats.composed.Add(1)
			out.length(made.size())
			return writeReply(out, made)
		}
		if _, err := room(s.Root); err != nil || s.replies.max < 0 {
			return native()
		}
	}
	rd, err := s.replies.join(key, a.repo.id, f.Wants)
	if err != nil {
		s.log().Warn("answers are not kept", "err", err)
		return native()
	}
	defer s.replies.leave(rd)
	mine, err := s.begin(ctx, rd.keptReply, a, f)
	if err != nil {
		return err
	}
	if !mine {
		s.stats.hits.Add(1)
	}
	return rd.send(ctx, !f.NoProgress, out)
}

// replyKey names the answer to a fetch; false: it must not be kept, because it depends on
// more than what is named. The wants were checked, so whoever may ask gets the same.
func (s *Server) replyKey(a access, f *protocol.FetchRequest) (replyKey, bool) {
	if !f.Plain() {
		return replyKey{}, false
	}
	tags, all := a.repo.view.tagState(a.grant)
	if tags == "" || !all {
		// Nothing to include, or also what the grant does not show. A client that is not sent
		// them fetches those that it sees and wants.
		f.IncludeTag = false
	}
	if !f.IncludeTag {
		tags = ""
	}
	h := sha256.New()
	for _, part := range []string{a.dir, fmt.Sprint(a.repo.id), a.repo.view.shallowState(), tags} {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		io.WriteString(h, part)
	}
	h.Write(f.Render(false))
	return replyKey(h.Sum(nil)), true
}

// shallowState tells whether, and how, the repository's own history is cut.
func (v *refSnapshot) shallowState() string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.shallow.gone() {
		return ""
	}
	return v.shallow.String()
}

// tagState is one word for all tags, empty when there are none, and whether the grant shows all.
func (v *refSnapshot) tagState(g Grant) (state string, all bool) {
	const tags = "refs/tags/"
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	if v.tagsTurn != v.turn {
		h := sha256.New()
		v.each(Grant{}, []string{tags}, func(r *shownRef) {
			n++
			io.WriteString(h, r.line)
		})
		v.tags, v.tagsTurn = "", v.turn
		if n > 0 {
			v.tags = string(h.Sum(nil))
		}
	}
	if v.tags == "" || len(g.Read) == 0 {
		return v.tags, true
	}
	all = true
	v.each(Grant{}, []string{tags}, func(r *shownRef) { all = all && g.Shows(r.name) })
	return v.tags, all
}
