package gitd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gliderlabs/ssh"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/protocol"
	gossh "golang.org/x/crypto/ssh"
)

const (
	// handshakeTime is the time in which a connection must log in.
	handshakeTime = 30 * time.Second
	// strangersMax and strangersPerAddr bound the connections that have not logged in. Beyond them the oldest one
	// is closed, because an honest handshake takes a moment, and a stalled one is the oldest.
	strangersMax     = 256
	strangersPerAddr = 64
	// lingerTime is the time for which a refused client may be silent while it still sends.
	lingerTime = 30 * time.Second
	// sessionsMax bounds the simultaneous sessions of one connection.
	sessionsMax = 16
	// sshInputMax bounds the bytes that a client may send in one fetch.
	sshInputMax = 256 << 20
)

// identityKey is the key of the authorized key in the permissions of a connection.
type identityKey struct{}

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
	signer, err := s.hostSigner()
	if err != nil {
		return err
	}

	ctx, leave, err := s.requests.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	front := &sshFront{server: s, refusal: refusal, hostKey: signer.PublicKey(), strangers: map[*sshConn]struct{}{}}
	srv := front.newServer(ctx, signer)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()

	// gliderlabs/ssh starts connections and their sessions. Sessions end with their connections, but waiting for
	// the connections is not enough, so sessions are counted, too.
	defer front.sessions.Close()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer front.closeAll()
	for {
		c, err := front.accept(ctx, l)
		if c == nil {
			return err
		}
		conn := front.admitConn(c)
		conns.Go(func() {
			defer front.removeConn(conn)
			srv.HandleConn(conn)
		})
	}
}

// accept waits for the next connection. It returns nil without an error if ctx has ended.
func (f *sshFront) accept(ctx context.Context, l net.Listener) (net.Conn, error) {
	for {
		c, err := l.Accept()
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		var ne net.Error
		switch {
		case errors.As(err, &ne) && ne.Timeout():
		case isTemporary(err):
			// There are no file descriptors left. Connections that end return some.
			f.server.log().Warn("cannot accept an SSH connection", "err", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		default:
			return nil, fmt.Errorf("cannot accept SSH connections: %w", err)
		}
	}
}

// newServer returns the SSH server for the connections of f.
func (f *sshFront) newServer(ctx context.Context, signer ssh.Signer) *ssh.Server {
	return &ssh.Server{
		HostSigners: []ssh.Signer{signer},
		Version:     "ramus",
		// It is called for each key that a client offers, and reports whether a signature by the key would be
		// accepted. It must remember nothing. Without it, everybody could log in.
		PublicKeyHandler: func(ctx ssh.Context, key ssh.PublicKey) bool {
			if f.refusal != nil {
				return true
			}
			_, err := f.server.authorizedKey(key, remoteIP(ctx.RemoteAddr()))
			return err == nil
		},
		ServerConfigCallback: func(ctx ssh.Context) *gossh.ServerConfig {
			conn, _ := ctx.Value(f).(*sshConn)
			return &gossh.ServerConfig{
				MaxAuthTries: 20, // agents with many keys
				// It is called once, with the key that has signed.
				VerifiedPublicKeyCallback: func(meta gossh.ConnMetadata, key gossh.PublicKey, _ *gossh.Permissions,
					_ string) (*gossh.Permissions, error) {
					if f.refusal != nil { // the connection stays one of a stranger
						return &gossh.Permissions{ExtraData: map[any]any{identityKey{}: grant.AuthorizedKey{}}}, nil
					}
					k, err := f.server.authorizedKey(key, remoteIP(meta.RemoteAddr()))
					if err != nil {
						return nil, err
					}
					f.markLoggedIn(conn)
					return &gossh.Permissions{ExtraData: map[any]any{identityKey{}: k}}, nil
				},
			}
		},
		ConnCallback: func(ctx ssh.Context, c net.Conn) net.Conn {
			ctx.SetValue(f, c)
			return c
		},
		ChannelHandlers: map[string]ssh.ChannelHandler{
			"session": func(_ *ssh.Server, login *gossh.ServerConn, ch gossh.NewChannel, c ssh.Context) {
				conn, _ := c.Value(f).(*sshConn)
				f.serveSession(ctx, conn, login, ch)
			},
			"direct-tcpip": f.forwardHandler(ctx),
		},
		RequestHandlers:   map[string]ssh.RequestHandler{}, // no forwarding from here
		SubsystemHandlers: map[string]ssh.SubsystemHandler{},
	}
}

// isTemporary reports whether accepting may work again in a moment.
func isTemporary(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED)
}

func remoteIP(addr net.Addr) netip.Addr {
	if a, err := netip.ParseAddrPort(addr.String()); err == nil {
		return a.Addr().Unmap()
	}
	return netip.Addr{}
}

// sshFront has the connections of one listener.
type sshFront struct {
	server   *Server
	refusal  func() string // the answer to each command; nil to serve them
	hostKey  gossh.PublicKey
	sessions gitcmd.Group

	mu        sync.Mutex // guards the fields below
	strangers map[*sshConn]struct{}
	conns     map[*sshConn]struct{}
	closed    bool
}

// sshConn is a connection, before and after login.
type sshConn struct {
	net.Conn
	addr   netip.Addr
	since  time.Time
	passed bool // from another server; constant after it was made

	mu       sync.Mutex  // guards the fields below
	timer    *time.Timer // closes a connection that does not log in, or is idle
	sessions int
}

// beginSession counts a new session. It returns false if the connection has too many.
func (c *sshConn) beginSession() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions >= sessionsMax {
		return false
	}
	c.sessions++
	c.timer.Stop()
	return true
}

// endSession counts a session that has ended. After the last one the connection may be idle for some time.
func (c *sshConn) endSession(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions--; c.sessions == 0 {
		c.timer.Reset(idle)
	}
}

// admitConn registers a new connection.
func (f *sshFront) admitConn(c net.Conn) *sshConn {
	conn := &sshConn{Conn: c, addr: remoteIP(c.RemoteAddr()), since: time.Now()}
	f.mu.Lock()
	defer f.mu.Unlock()
	var oldest, oldestHere *sshConn
	here := 0
	for o := range f.strangers {
		if oldest == nil || o.since.Before(oldest.since) {
			oldest = o
		}
		if o.addr == conn.addr {
			here++
			if oldestHere == nil || o.since.Before(oldestHere.since) {
				oldestHere = o
			}
		}
	}

	switch {
	case here >= strangersPerAddr:
		delete(f.strangers, oldestHere)
		oldestHere.Close()
	case len(f.strangers) >= strangersMax:
		delete(f.strangers, oldest)
		oldest.Close()
	}
	conn.timer = time.AfterFunc(handshakeTime, func() { conn.Close() })
	f.strangers[conn] = struct{}{}
	if f.conns == nil {
		f.conns = map[*sshConn]struct{}{}
	}
	f.conns[conn] = struct{}{}
	if f.closed {
		conn.Close()
	}
	return conn
}

// markLoggedIn records that a connection has logged in.
func (f *sshFront) markLoggedIn(c *sshConn) {
	f.mu.Lock()
	delete(f.strangers, c)
	f.mu.Unlock()
	c.mu.Lock()
	c.timer.Reset(f.server.limits.Idle)
	c.mu.Unlock()
}

func (f *sshFront) removeConn(c *sshConn) {
	c.mu.Lock()
	c.timer.Stop()
	c.mu.Unlock()
	c.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.strangers, c)
	delete(f.conns, c)
}

func (f *sshFront) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.conns {
		c.Close()
	}
}

// serveSession serves one session channel, which runs at most one verb of git.
func (f *sshFront) serveSession(ctx context.Context, conn *sshConn, login *gossh.ServerConn, newCh gossh.NewChannel) {
	ctx, leave, err := f.sessions.Enter(ctx)
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
	if !conn.beginSession() {
		newCh.Reject(gossh.ResourceShortage, "too many sessions on one connection")
		return
	}

	ch, requests, err := newCh.Accept()
	if err != nil {
		conn.endSession(f.server.limits.Idle)
		return
	}

	// Readers of the channel end when the client agrees to close it, or when its connection, which is idle from
	// here on, is closed.
	v := sshSession{who: who, conn: conn, ch: ch, spaces: f.server.Workspaces != nil || f.refusal != nil,
		resized: make(chan TTY, 1)}
	defer v.reading.Wait()
	defer conn.endSession(f.server.limits.Idle)
	defer ch.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	line, ok := v.waitForCommand(ctx, cancel, requests)
	if !ok {
		return
	}

	to, err := f.pass(ctx, v.targetOf(login.User(), line), login.User())
	if to != nil {
		defer to.Close()
	}
	var code uint32
	var sent <-chan struct{}
	space := Workspace(nil)
	if to != nil || err != nil {
	} else if _, _, git := parseSSHCommand(line); !git && f.refusal == nil {
		space = f.workspace(ctx, login)
	}
	if to != nil {
		code, sent, err = v.passOn(ctx, to, line)
	}
	switch {
	case err != nil:
		fmt.Fprintf(ch.Stderr(), "ramus: %s\n", object.ClientText(err, "the replica that serves this does not answer; try again in a moment"))
		f.server.log().Info("cannot pass an SSH session on", "subject", who.Subject, "err", err)
		code = 128
	case to != nil:
	case f.refusal != nil:
		fmt.Fprintf(ch.Stderr(), "ramus: %s\n", f.refusal())
		code = 1
	case space != nil:
		code = v.runWorkspace(ctx, space, line)
	default:
		code = f.runCommand(ctx, &v, line)
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
		io.Copy(io.Discard, io.LimitReader(in, drainMax))
	}
}

// sshSession is one session on a connection.
type sshSession struct {
	who      grant.AuthorizedKey
	conn     *sshConn
	ch       gossh.Channel
	protocol string         // that the client offers, constant after the command
	reading  sync.WaitGroup // readers of ch
	pushing  bool           // the client may still be sending

	spaces bool // the server has workspaces
	// Of a workspace, constant after the command, except for resized.
	tty       *TTY
	subsystem string
	resized   chan TTY
}

// waitForCommand returns the command of the session. It answers the requests of the client until cancel, which it
// calls when the client closes the session.
func (v *sshSession) waitForCommand(ctx context.Context, cancel func(), requests <-chan *gossh.Request) (line string, ok bool) {
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
func (v *sshSession) answerRequests(requests <-chan *gossh.Request, started chan<- string) {
	running := false
	for req := range requests {
		ok, start, line := false, false, ""
		switch {
		case req.Type == "env" && !running:
			var kv struct{ Name, Value string }
			if gossh.Unmarshal(req.Payload, &kv) == nil && kv.Name == "GIT_PROTOCOL" {
				v.protocol = validProtocol(kv.Value)
				ok = v.protocol != ""
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

// runCommand runs one verb and returns its exit status.
func (f *sshFront) runCommand(ctx context.Context, v *sshSession, line string) uint32 {
	say := func(format string, args ...any) uint32 {
		fmt.Fprintf(v.ch.Stderr(), "ramus: "+format+"\n", args...)
		return 128
	}
	verb, path, ok := parseSSHCommand(line)
	switch {
	case v.subsystem != "":
		return say("there are no files here, only Git: git clone ssh://HOST/NAME.git")
	case line == "":
		return say("hello %s; there is no shell here, only Git: git clone ssh://HOST/NAME.git", v.who.Subject)
	case !ok:
		return say("not a command of this server: git-upload-pack, git-receive-pack and whoami are")
	case verb == "git-lfs-authenticate":
		return f.authenticateLFS(ctx, v, path, say)
	case verb == "whoami":
		fmt.Fprintf(v.ch, "%s\n", v.who.Subject)
		return 0
	}

	write := verb == "receive-pack"
	a, code := f.locate(ctx, v, path, write, say)
	if code != 0 {
		return code
	}
	a.options = write && f.server.takesOptions(a)
	a = f.server.negotiate(ctx, a, v.protocol, write)
	var err error
	if write {
		err = f.sshReceive(ctx, a, v)
	} else {
		err = f.sshUpload(ctx, a, v)
	}
	if err != nil {
		f.server.log().Info("SSH request failed", "repo", a.name, "subject", a.grant.Subject, "verb", verb, "err", err)
		return say("%s", object.ClientText(err, verb+" failed on the server"))
	}
	return 0
}

// locate returns the access of a session to the repository at a path, or the exit status of a refusal that it has
// said.
func (f *sshFront) locate(ctx context.Context, v *sshSession, path string, write bool, say func(string, ...any) uint32) (access, uint32) {
	a, err := f.server.locateRepo(path)
	grant, covered := v.who.Grant(a.name)
	if write && covered && errors.Is(err, ErrNoRepository) && f.server.mayCreate(grant, a.name) {
		a, err = f.server.createOnPush(ctx, path, grant)
	}
	if !covered || !grant.MayRead(a.name) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
		return a, say("repository not found, or not open to your key")
	}
	if err != nil {
		f.server.log().Warn("cannot serve a repository", "repo", a.name, "err", err)
		return a, say("the repository cannot be served; the server's log says why")
	}
	a.grant, a.client = f.server.veiled(grant, a.name).Effective(), "ssh:"+v.conn.addr.String()
	if write && (!grant.MayWrite(a.name) || len(a.grant.Write) == 0) {
		return a, say("your key may only read %s", a.name)
	}
	if err := a.checkEnabled(f.server, write); err != nil {
		return a, say("%v", err)
	}
	return a, 0
}

// sshReceive serves a push. It advertises the refs and continues as over HTTP.
func (f *sshFront) sshReceive(ctx context.Context, a access, v *sshSession) error {
	if err := f.server.advertisePush(ctx, a, v.ch); err != nil {
		return err
	}
	v.pushing = true
	in := &idleReader{r: v.ch, idle: f.server.limits.Idle, idled: func() { v.conn.Close() }}
	return f.server.receive(ctx, a, in, nil, v.ch)
}

// sshUpload serves a fetch. Git leads the conversation itself, or each request of protocol v2 is answered as over
// HTTP.
func (f *sshFront) sshUpload(ctx context.Context, a access, v *sshSession) error {
	if a.direct {
		return f.sshConverse(ctx, a, v)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot start git upload-pack: %w", err)
	}
	defer r.Close() // ends the copying if git has ended before
	v.reading.Go(func() {
		defer w.Close()
		io.Copy(w, io.LimitReader(v.ch, sshInputMax))
	})
	return f.server.serveChild(ctx, a, gitcmd.Command{
		Args: []string{"upload-pack", "--strict", "--timeout=" + wholeSeconds(f.server.limits.Idle), a.dir},
		Env:  a.env(),
		In:   r,
	}, v.ch, copyAnswer)
}

// sshConverse answers requests of protocol v2 until the client sends no more.
func (f *sshFront) sshConverse(ctx context.Context, a access, v *sshSession) error {
	hangUp := func() { v.conn.Close() }
	in := bufio.NewReader(&idleReader{r: io.LimitReader(v.ch, sshInputMax), idle: f.server.limits.Idle, idled: hangUp})
	out := sshAnswer{&idleWriter{w: v.ch, idle: f.server.limits.Idle, idled: hangUp}}
	advert, err := f.server.capabilities(ctx, a)
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
		if err := f.server.answerRequest(ctx, a, q, out); err != nil {
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

// parseSSHCommand parses the command of an exec request, which is a verb and one path in git's quoting. No shell
// expands anything else.
func parseSSHCommand(line string) (verb, path string, ok bool) {
	if line == "whoami" {
		return line, "", true
	}
	if rest, found := strings.CutPrefix(line, "git-lfs-authenticate "); found {
		return "git-lfs-authenticate", rest, len(rest) <= 4096
	}
	rest := ""
	for _, v := range []string{"upload-pack", "receive-pack"} {
		for _, form := range []string{"git-" + v + " ", "git " + v + " "} {
			if r, found := strings.CutPrefix(line, form); found {
				verb, rest = v, r
			}
		}
	}
	if verb == "" || len(rest) > 4096 {
		return "", "", false
	}
	path, ok = unquoteWord(rest)
	path = strings.TrimPrefix(path, "/")
	return verb, path, ok && path != ""
}

// unquoteWord unquotes one word. The word is bare, or as sq_quote of git writes it, with ' and ! outside of the
// quotes and after a backslash.
func unquoteWord(s string) (string, bool) {
	if !strings.HasPrefix(s, "'") {
		return s, !strings.ContainsAny(s, " '\"\\$`;&|<>*?()\n\t")
	}
	var b strings.Builder
	for {
		inside, rest, ok := strings.Cut(s[1:], "'")
		if !ok {
			return "", false
		}
		b.WriteString(inside)
		switch {
		case rest == "":
			return b.String(), true
		case strings.HasPrefix(rest, `\''`), strings.HasPrefix(rest, `\!'`):
			b.WriteByte(rest[1])
			s = rest[2:]
		default:
			return "", false
		}
	}
}
