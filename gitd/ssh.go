package gitd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/protocol"
	"github.com/ramus-dev/ramus/gitd/sshd"
	gossh "golang.org/x/crypto/ssh"
)

// sshInputMax bounds the bytes that a client may send in one fetch.
const sshInputMax = 256 << 20

// ServeSSH serves git-upload-pack, git-receive-pack, git-lfs-authenticate and whoami on l until ctx ends. It closes l and waits for all
// requests. AuthorizedKeys has the keys that may log in.
func (s *Server) ServeSSH(ctx context.Context, l net.Listener) error {
	return s.serveSSH(ctx, l, nil)
}

// RefuseSSH answers each command on l with the text that why returns, and exit status 1, until ctx ends. Every key may log
// in, because nothing is served. why is safe for concurrent use. RefuseSSH closes l and waits for all requests.
func (s *Server) RefuseSSH(ctx context.Context, l net.Listener, why func() string) error {
	return s.serveSSH(ctx, l, why)
}

func (s *Server) serveSSH(ctx context.Context, l net.Listener, refusal func() string) error {
	defer l.Close()
	front, err := s.newSSH(refusal)
	if err != nil {
		return err
	}
	ctx, leave, err := s.requests.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return front.Serve(ctx, l)
}

// ServePassedSSH serves a connection that another server made for a client whose key has logged in there from an address. It
// returns when the connection ends. Returns [ErrDenied] if the key may not log in here.
func (s *Server) ServePassedSSH(ctx context.Context, c net.Conn, key gossh.PublicKey, from net.Addr) error {
	defer c.Close()
	who, err := s.authorizedKey(key, sshd.RemoteIP(from))
	if err != nil {
		return err
	}
	front, err := s.newSSH(nil)
	if err != nil {
		return err
	}
	ctx, leave, err := s.requests.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	front.ServePassed(ctx, c, who, from)
	return nil
}

// newSSH returns the server that speaks SSH. refusal is nil unless it serves nothing.
func (s *Server) newSSH(refusal func() string) (*sshd.Server, error) {
	key, err := grant.LoadKey(s.HostKeyFile)
	if err != nil {
		return nil, err
	}
	signer, err := gossh.NewSignerFromKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot use the SSH host key: %w", err)
	}
	return &sshd.Server{Signer: signer, Authorize: s.authorizedKey, Git: s.serveVerb, Workspaces: s.Workspaces, Pass: s.PassSSH, Refusal: refusal,
		Idle: s.limits.Idle, DrainBytes: drainMax, Log: s.log()}, nil
}

// serveVerb is [sshd.Server.Git].
func (s *Server) serveVerb(ctx context.Context, v *sshd.Session, verb, path string) uint32 {
	if verb == "git-lfs-authenticate" {
		return s.serveLFSLogin(ctx, v, path)
	}
	write := verb == "receive-pack"
	a, code := s.locateForSSH(ctx, v, path, write)
	if code != 0 {
		return code
	}
	a.options = write && s.takesOptions(a)
	a = s.negotiate(ctx, a, v.Protocol, write)
	var err error
	if write {
		err = s.sshReceive(ctx, a, v)
	} else {
		err = s.sshUpload(ctx, a, v)
	}
	if err != nil {
		s.log().Info("SSH request failed", "repo", a.name, "subject", a.grant.Subject, "verb", verb, "err", err)
		return v.Refuse("%s", object.ClientText(err, verb+" failed on the server"))
	}
	return 0
}

// locateForSSH returns the access of a session to the repository at a path, or the exit status of a refusal that it has
// said.
func (s *Server) locateForSSH(ctx context.Context, v *sshd.Session, path string, write bool) (access, uint32) {
	a, err := s.locateRepo(path)
	grant, covered := v.Who.Grant(a.name)
	if write && covered && errors.Is(err, ErrNoRepository) && s.mayCreate(grant, a.name) {
		a, err = s.createOnPush(ctx, path, grant)
	}
	if !covered || !grant.MayRead(a.name) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
		return a, v.Refuse("repository not found, or not open to your key")
	}
	if err != nil {
		s.log().Warn("cannot serve a repository", "repo", a.name, "err", err)
		return a, v.Refuse("the repository cannot be served; the server's log says why")
	}
	a.grant, a.client = s.veiled(grant, a.name).Effective(), "ssh:"+v.From().String()
	if write && (!grant.MayWrite(a.name) || len(a.grant.Write) == 0) {
		return a, v.Refuse("your key may only read %s", a.name)
	}
	if err := a.checkEnabled(s, write); err != nil {
		return a, v.Refuse("%v", err)
	}
	return a, 0
}

// sshReceive serves a push. It advertises the refs and continues as over HTTP.
func (s *Server) sshReceive(ctx context.Context, a access, v *sshd.Session) error {
	if err := s.advertisePush(ctx, a, v.Channel); err != nil {
		return err
	}
	v.MarkPush()
	return s.receive(ctx, a, v.Input(), nil, v.Channel)
}

// sshUpload serves a fetch. Git leads the conversation itself, or each request of protocol v2 is answered as over
// HTTP.
func (s *Server) sshUpload(ctx context.Context, a access, v *sshd.Session) error {
	if a.direct {
		return s.sshConverse(ctx, a, v)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot start git upload-pack: %w", err)
	}
	defer r.Close() // ends the copying if git has ended before
	v.Go(func() {
		defer w.Close()
		io.Copy(w, io.LimitReader(v.Channel, sshInputMax))
	})
	return s.serveChild(ctx, a, gitcmd.Command{
		Args: []string{"upload-pack", "--strict", "--timeout=" + wholeSeconds(s.limits.Idle), a.dir},
		Env:  a.env(),
		In:   r,
	}, v.Channel, copyAnswer)
}

// sshConverse answers requests of protocol v2 until the client sends no more.
func (s *Server) sshConverse(ctx context.Context, a access, v *sshd.Session) error {
	in := bufio.NewReader(io.LimitReader(v.Input(), sshInputMax))
	out := sshAnswer{&idleWriter{w: v.Channel, idle: s.limits.Idle, idled: v.HangUp}}
	advert, err := s.capabilities(ctx, a)
	if err != nil {
		return err
	}
	if _, err := out.Write(advert); err != nil {
		return fmt.Errorf("cannot send the capabilities: %w", err)
	}
	for {
		q, err := protocol.ParseRequest(in)
		if err != nil || q.Command == "" {
			return err
		}
		if err := s.answerRequest(ctx, a, q, out); err != nil {
			return err
		}
		// Refs may have changed since the last request.
		if err := a.repo.view.Refresh(ctx); err != nil {
			return err
		}
	}
}

// sshAnswer writes an answer to a channel that stays open after it.
type sshAnswer struct{ io.Writer }

func (sshAnswer) SetLength(int64) {}

func wholeSeconds(d time.Duration) string {
	return fmt.Sprint(max(1, int64((d+time.Second-1)/time.Second)))
}
