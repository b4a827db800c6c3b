package sshd

import (
	"context"
	"io"
	"net"
	"strconv"

	"github.com/gliderlabs/ssh"
	"github.com/ramus-dev/ramus/gitd/grant"
	gossh "golang.org/x/crypto/ssh"
)

// Workspaces serves people who log in by the name of a workspace, as in `ssh NAME@HOST`. Git is served to them as to
// everybody.
type Workspaces interface {
	// OpenWorkspace returns the workspace of a user's name, or nil if there is none that the key may write to. grant
	// returns the grant of the key for a repository, and false if it has none.
	OpenWorkspace(ctx context.Context, user string, grant func(repo string) (grant.Grant, bool)) Workspace
}

// Workspace is a workspace as one person sees it.
type Workspace interface {
	// Run runs a command, or a shell, and returns its exit status. It ends with ctx.
	Run(ctx context.Context, s ShellSession) uint32
	// Files serves SFTP on conn until its end.
	Files(ctx context.Context, conn io.ReadWriter) error
	// Dial connects to a port of the workspace's own loopback.
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// ShellSession is a command that a person runs in a workspace.
type ShellSession struct {
	Command string // for sh; empty for a shell
	// TTY is the person's terminal, or nil. Resized gets its later sizes.
	TTY     *TTY
	Resized <-chan TTY
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
}

// TTY is the size and kind of a terminal.
type TTY struct {
	Term       string
	Rows, Cols int
}

// workspace returns the workspace of a login, or nil.
func (s *Server) workspace(ctx context.Context, login *gossh.ServerConn) Workspace {
	who, ok := login.Permissions.ExtraData[identityKey{}].(grant.AuthorizedKey)
	if s.Workspaces == nil || !ok || !who.MayShell() {
		return nil
	}
	return s.Workspaces.OpenWorkspace(ctx, login.User(), who.Grant)
}

// runWorkspace runs a command in a workspace, or serves its files.
func (v *Session) runWorkspace(ctx context.Context, space Workspace, line string) uint32 {
	if v.subsystem != "" {
		if err := space.Files(ctx, v.Channel); err != nil {
			io.WriteString(v.Channel.Stderr(), "ramus: "+err.Error()+"\n")
			return 1
		}
		return 0
	}
	return space.Run(ctx, ShellSession{Command: line, TTY: v.tty, Resized: v.resized, In: v.Channel, Out: v.Channel,
		Err: v.Channel.Stderr()})
}

// ptyRequest is the payload of RFC 4254, section 6.2.
type ptyRequest struct {
	Term                      string
	Cols, Rows, Width, Height uint32
	Modes                     string
}

// termMax bounds the name of the kind of a terminal.
const termMax = 64

// takeTTY takes the terminal of a session, or a later size of it.
func (v *Session) takeTTY(req *gossh.Request) bool {
	if req.Type == "pty-req" {
		var p ptyRequest
		if gossh.Unmarshal(req.Payload, &p) != nil || len(p.Term) > termMax {
			return false
		}
		v.tty = &TTY{Term: p.Term, Rows: int(min(p.Rows, 1000)), Cols: int(min(p.Cols, 1000))}
		return true
	}
	var p struct{ Cols, Rows, Width, Height uint32 }
	if gossh.Unmarshal(req.Payload, &p) != nil {
		return false
	}
	select {
	case <-v.resized: // only the last size counts
	default:
	}
	v.resized <- TTY{Rows: int(min(p.Rows, 1000)), Cols: int(min(p.Cols, 1000))}
	return true
}

// forward serves a connection to a port of a workspace.
func (s *Server) forward(ctx context.Context, login *gossh.ServerConn, newCh gossh.NewChannel, own *conn) {
	ctx, leave, err := s.sessions.Enter(ctx)
	if err != nil {
		newCh.Reject(gossh.ResourceShortage, "the server is shutting down")
		return
	}
	defer leave()
	var p struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	who, _ := login.Permissions.ExtraData[identityKey{}].(grant.AuthorizedKey)
	far, err := s.pass(ctx, Target{User: login.User(), Passed: own.passed, Key: who.Key, From: own.RemoteAddr()}, login.User())
	if err != nil {
		newCh.Reject(gossh.ConnectionFailed, "the server of the workspace does not answer; try again in a moment")
		return
	}
	if far != nil {
		defer far.Close()
		passForward(ctx, far, newCh)
		return
	}
	space := s.workspace(ctx, login)
	if space == nil || gossh.Unmarshal(newCh.ExtraData(), &p) != nil {
		newCh.Reject(gossh.Prohibited, "there is no workspace of this name, or it is not open to your key")
		return
	}
	switch ip := net.ParseIP(p.Host); {
	case p.Host == "localhost", ip != nil && ip.IsLoopback(), p.Host == "":
	default:
		newCh.Reject(gossh.Prohibited, "only ports of the workspace itself can be reached")
		return
	}
	if !own.beginSession() {
		newCh.Reject(gossh.ResourceShortage, "too many sessions on one connection")
		return
	}
	defer own.endSession(s.Idle)
	to, err := space.Dial(ctx, int(p.Port))
	if err != nil {
		newCh.Reject(gossh.ConnectionFailed, "nothing listens at port "+strconv.Itoa(int(p.Port)))
		return
	}
	defer to.Close()
	ch, reqs, err := newCh.Accept()
	if err != nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		gossh.DiscardRequests(reqs)
		close(ended)
	}()
	defer func() { ch.Close(); <-ended }()
	defer context.AfterFunc(ctx, func() { ch.Close(); to.Close() })()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(to, ch)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
			return
		}
		to.Close()
	}()
	io.Copy(ch, to)
	ch.Close()
	to.Close()
	<-copied
}

// forwardHandler returns the handler of "direct-tcpip" channels.
func (s *Server) forwardHandler(ctx context.Context) ssh.ChannelHandler {
	return func(_ *ssh.Server, login *gossh.ServerConn, ch gossh.NewChannel, c ssh.Context) {
		own, _ := c.Value(s).(*conn)
		s.forward(ctx, login, ch, own)
	}
}
