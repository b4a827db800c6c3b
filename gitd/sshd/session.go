package sshd

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/protocol"
	gossh "golang.org/x/crypto/ssh"
)

// serveSession serves one session channel, which runs at most one verb of git.
func (s *Server) serveSession(ctx context.Context, on *conn, login *gossh.ServerConn, newCh gossh.NewChannel) {
	ctx, leave, err := s.sessions.Enter(ctx)
	if err != nil {
		newCh.Reject(gossh.ResourceShortage, "the server is shutting down")
		return
	}
	defer leave()
	who, ok := login.Permissions.ExtraData[identityKey{}].(grant.AuthorizedKey)
	if !ok {
		newCh.Reject(gossh.Prohibited, "not logged in")
		return
	}
	if !on.beginSession() {
		newCh.Reject(gossh.ResourceShortage, "too many sessions on one connection")
		return
	}

	ch, requests, err := newCh.Accept()
	if err != nil {
		on.endSession(s.Idle)
		return
	}

	// Readers of the channel end when the client agrees to close it, or when its connection, which is idle from
	// here on, is closed.
	v := &Session{Who: who, Channel: ch, conn: on, idle: s.Idle, spaces: s.Workspaces != nil || s.Refusal != nil,
		resized: make(chan TTY, 1)}
	defer v.reading.Wait()
	defer on.endSession(s.Idle)
	defer ch.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	line, ok := v.waitForCommand(ctx, cancel, requests)
	if !ok {
		return
	}

	var code uint32
	var sent <-chan struct{}
	to, err := s.pass(ctx, v.targetOf(login.User(), line), login.User())
	if to != nil {
		defer to.Close()
		code, sent, err = v.passOn(ctx, to, line)
	}
	switch {
	case err != nil:
		code = v.Refuse("%s", object.ClientText(err, "the replica that serves this does not answer; try again in a moment"))
		s.Log.Info("cannot pass an SSH session on", "subject", who.Subject, "err", err)
	case to != nil:
	case s.Refusal != nil:
		fmt.Fprintf(ch.Stderr(), "ramus: %s\n", s.Refusal())
		code = 1
	default:
		code = s.runCommand(ctx, v, login, line)
	}
	ch.CloseWrite()
	ch.SendRequest("exit-status", false, gossh.Marshal(struct{ Status uint32 }{code}))
	if sent != nil {
		awaitSent(sent)
	}
	if v.pushing {
		// A client that still sends a refused pack would break if the channel were closed now, before it reads
		// the reason.
		in := &idleReader{r: ch, idle: lingerTime, idled: func() { ch.Close() }}
		io.Copy(io.Discard, io.LimitReader(in, s.DrainBytes))
	}
}

// Session is one session on a connection. [Server.Git] reads and writes Channel, and may write to its Stderr.
type Session struct {
	Who      grant.AuthorizedKey
	Channel  gossh.Channel
	Protocol string // that the client offers ("version=2"), or empty; constant after the command

	conn    *conn
	idle    time.Duration
	reading sync.WaitGroup // readers of Channel
	pushing bool           // the client may still be sending

	spaces bool // the server has workspaces
	// Of a workspace, constant after the command, except for resized.
	tty       *TTY
	subsystem string
	resized   chan TTY
}

// From returns the address of the client.
func (v *Session) From() netip.Addr { return v.conn.addr }

// HangUp closes the connection, with all its sessions.
func (v *Session) HangUp() { v.conn.Close() }

// Input returns the input of the client. A single Read that takes longer than [Server.Idle] hangs up.
func (v *Session) Input() io.Reader { return &idleReader{r: v.Channel, idle: v.idle, idled: v.HangUp} }

// Go calls read in the background, which reads the input of the client. The session waits for its end.
func (v *Session) Go(read func()) { v.reading.Go(read) }

// MarkPush records that the client sends a pack. The session reads the rest of the pack before it ends, because a client that still sends
// would break before it reads the reason of a refusal.
func (v *Session) MarkPush() { v.pushing = true }

// Refuse tells the client why a command fails, and returns its exit status.
func (v *Session) Refuse(format string, args ...any) uint32 {
	fmt.Fprintf(v.Channel.Stderr(), "ramus: "+format+"\n", args...)
	return 128
}

// waitForCommand returns the command of the session. It answers the requests of the client until cancel, which it
// calls when the client closes the session.
func (v *Session) waitForCommand(ctx context.Context, cancel func(), requests <-chan *gossh.Request) (line string, ok bool) {
	started := make(chan string, 1)
	v.reading.Go(func() {
		defer cancel() // the client closed the session, or is gone
		v.answerRequests(requests, started)
	})
	wait := time.NewTimer(handshakeTime)
	defer wait.Stop()
	select {
	case line = <-started:
		return line, true
	case <-wait.C:
	case <-ctx.Done():
	}
	return "", false
}

// answerRequests answers the requests of a session and sends its first command to started. An empty command means
// a shell.
func (v *Session) answerRequests(requests <-chan *gossh.Request, started chan<- string) {
	running := false
	for req := range requests {
		ok, start, line := false, false, ""
		switch {
		case req.Type == "env" && !running:
			var kv struct{ Name, Value string }
			if gossh.Unmarshal(req.Payload, &kv) == nil && kv.Name == "GIT_PROTOCOL" {
				v.Protocol = protocol.ValidVersion(kv.Value)
				ok = v.Protocol != ""
			}
		case req.Type == "exec" && !running:
			var cmd struct{ Line string }
			if gossh.Unmarshal(req.Payload, &cmd) == nil {
				ok, start, line = true, true, cmd.Line
			}
		case req.Type == "shell" && !running:
			ok, start = true, true
		case req.Type == "subsystem" && !running && v.spaces:
			var sub struct{ Name string }
			if gossh.Unmarshal(req.Payload, &sub) == nil && sub.Name == "sftp" {
				v.subsystem = sub.Name
				ok, start = true, true
			}
		case v.spaces && (req.Type == "pty-req" && !running || req.Type == "window-change"):
			ok = v.takeTTY(req)
		}
		// The answer comes before the start. A quick command would close the channel, and its client would
		// never get the answer.
		if req.WantReply {
			req.Reply(ok, nil)
		}
		if start {
			running = true
			started <- line
		}
	}
}

// runCommand runs a verb of git, or another command in the workspace of the login, and returns its exit status.
func (s *Server) runCommand(ctx context.Context, v *Session, login *gossh.ServerConn, line string) uint32 {
	verb, path, ok := ParseCommand(line)
	if !ok {
		if space := s.workspace(ctx, login); space != nil {
			return v.runWorkspace(ctx, space, line)
		}
	}
	switch {
	case v.subsystem != "":
		return v.Refuse("there are no files here, only Git: git clone ssh://HOST/NAME.git")
	case line == "":
		return v.Refuse("hello %s; there is no shell here, only Git: git clone ssh://HOST/NAME.git", v.Who.Subject)
	case !ok:
		return v.Refuse("not a command of this server: git-upload-pack, git-receive-pack and whoami are")
	case verb == "whoami":
		fmt.Fprintf(v.Channel, "%s\n", v.Who.Subject)
		return 0
	}
	return s.Git(ctx, v, verb, path)
}

// idleReader calls idled when a single Read takes longer than idle.
type idleReader struct {
	r     io.Reader
	idle  time.Duration
	idled func()
}

func (r *idleReader) Read(p []byte) (int, error) {
	t := time.AfterFunc(r.idle, r.idled)
	defer t.Stop()
	return r.r.Read(p)
}
