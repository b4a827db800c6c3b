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
	// handshakeTime is how long a connection may take to log in.
	handshakeTime = 30 * time.Second
	// strangersMax and strangersPerAddr bound the connections that have not
	// logged in yet. When there are more, the one that has waited longest goes:
	// an honest handshake is over in a moment, a stalled one is the oldest.
	strangersMax     = 256
	strangersPerAddr = 64
	// lingerTime is how long a client that was refused may be silent while it
	// still sends.
	lingerTime = 30 * time.Second
	// sessionsMax bounds what one connection may do at once.
	sessionsMax = 16
	// sshInputMax bounds what a client may say in one fetch.
	sshInputMax = 256 << 20
)

// identityKey is where a connection's permissions keep who logged in.
type identityKey struct{}

// ServeSSH serves git-upload-pack, git-receive-pack and whoami on l until ctx
// ends; it closes l, and waits for what is being answered. Who may log in is
// said by AuthorizedKeys.
func (s *Server) ServeSSH(ctx context.Context, l net.Listener) error {
	defer l.Close()
	hostKey, err := grant.LoadKey(s.HostKeyFile)
	if err != nil {
		return err
	}
	signer, err := gossh.NewSignerFromKey(hostKey)
	if err != nil {
		return fmt.Errorf("cannot use the SSH host key: %w", err)
	}
	ctx, leave, err := s.requests.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	front := &sshFront{Server: s, strangers: map[*sshConn]struct{}{}}
	srv := &ssh.Server{
		HostSigners: []ssh.Signer{signer},
		Version:     "ramus",
		// Called for each key that is merely offered, too: it answers whether
		// a signature by the key would do, and must remember nothing. Leaving
		// it out would let everybody in.
		PublicKeyHandler: func(ctx ssh.Context, key ssh.PublicKey) bool {
			_, err := s.authorizedKey(key, remoteIP(ctx.RemoteAddr()))
			return err == nil
		},
		ServerConfigCallback: func(ctx ssh.Context) *gossh.ServerConfig {
			conn, _ := ctx.Value(front).(*sshConn)
			return &gossh.ServerConfig{
				MaxAuthTries: 20, // agents with many keys
				// Called once, with the key that has signed.
				VerifiedPublicKeyCallback: func(meta gossh.ConnMetadata, key gossh.PublicKey, _ *gossh.Permissions, _ string) (*gossh.Permissions, error) {
					k, err := s.authorizedKey(key, remoteIP(meta.RemoteAddr()))
					if err != nil {
						return nil, err
					}
					front.known(conn)
					return &gossh.Permissions{ExtraData: map[any]any{identityKey{}: k}}, nil
				},
			}
		},
		ConnCallback: func(ctx ssh.Context, c net.Conn) net.Conn {
			ctx.SetValue(front, c)
			return c
		},
		ChannelHandlers: map[string]ssh.ChannelHandler{
			"session": func(_ *ssh.Server, login *gossh.ServerConn, ch gossh.NewChannel, c ssh.Context) {
				conn, _ := c.Value(front).(*sshConn)
				front.session(ctx, conn, login, ch)
			},
		},
		RequestHandlers:   map[string]ssh.RequestHandler{}, // no forwarding
		SubsystemHandlers: map[string]ssh.SubsystemHandler{},
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	// Sessions end with their connections, so that waiting for these is enough
	// only if the sessions are counted too: gliderlabs/ssh starts both.
	defer front.sessions.Close()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer front.closeAll()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				continue
			}
			if isTemporary(err) {
				// Out of file descriptors: what ends gives some back.
				s.log().Warn("cannot accept an SSH connection", "err", err)
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
				}
				continue
			}
			return fmt.Errorf("cannot accept SSH connections: %w", err)
		}
		conn := front.admit(c)
		conns.Go(func() {
			defer front.forget(conn)
			srv.HandleConn(conn)
		})
	}
}

// isTemporary says whether accepting may work again in a moment.
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

// sshFront is one listener's connections.
type sshFront struct {
	*Server
	sessions gitcmd.Group

	mu        sync.Mutex // guards what follows
	strangers map[*sshConn]struct{}
	conns     map[*sshConn]struct{}
	closed    bool
}

// sshConn is a connection, before and after login.
type sshConn struct {
	net.Conn
	addr  netip.Addr
	since time.Time

	mu       sync.Mutex  // guards what follows
	timer    *time.Timer // closes a connection that does not log in, or does nothing
	sessions int
}

// begin counts a session in, if the connection may have one more.
func (c *sshConn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions >= sessionsMax {
		return false
	}
	c.sessions++
	c.timer.Stop()
	return true
}

// end counts a session out; after the last one the connection may idle for so long.
func (c *sshConn) end(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions--; c.sessions == 0 {
		c.timer.Reset(idle)
	}
}

// admit takes a new connection in.
func (f *sshFront) admit(c net.Conn) *sshConn {
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

// known is called when the connection has logged in.
func (f *sshFront) known(c *sshConn) {
	f.mu.Lock()
	delete(f.strangers, c)
	f.mu.Unlock()
	c.mu.Lock()
	c.timer.Reset(f.limits.Idle)
	c.mu.Unlock()
}

func (f *sshFront) forget(c *sshConn) {
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

// session serves one session channel: at most one Git verb.
func (f *sshFront) session(ctx context.Context, conn *sshConn, login *gossh.ServerConn, newCh gossh.NewChannel) {
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
	if !conn.begin() {
		newCh.Reject(gossh.ResourceShortage, "too many sessions on one connection")
		return
	}
	ch, requests, err := newCh.Accept()
	if err != nil {
		conn.end(f.limits.Idle)
		return
	}
	// What still reads from the channel ends when the client agrees to its
	// closing, or when its connection, idle from here on, is closed.
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.end(f.limits.Idle)
	defer ch.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	protocol := ""
	started := make(chan string, 1)
	reading.Go(func() {
		defer cancel() // the client closed the session, or is gone
		running := false
		for req := range requests {
			ok, start, line := false, false, ""
			switch {
			case req.Type == "env" && !running:
				var kv struct{ Name, Value string }
				if gossh.Unmarshal(req.Payload, &kv) == nil && kv.Name == "GIT_PROTOCOL" {
					protocol = validProtocol(kv.Value)
					ok = protocol != ""
				}
			case req.Type == "exec" && !running:
				var cmd struct{ Line string }
				if gossh.Unmarshal(req.Payload, &cmd) == nil {
					ok, start, line = true, true, cmd.Line
				}
			case req.Type == "shell" && !running:
				ok, start = true, true
			}
			// Before the start: a quick command would close the channel, and its client
			// would never hear that it was taken.
			if req.WantReply {
				req.Reply(ok, nil)
			}
			if start {
				running = true
				started <- line
			}
		}
	})
	wait := time.NewTimer(handshakeTime)
	defer wait.Stop()
	var line string
	select {
	case line = <-started:
	case <-wait.C:
		return
	case <-ctx.Done():
		return
	}
	v := visit{who: who, conn: conn, ch: ch, protocol: protocol, reading: &reading}
	code := f.command(ctx, &v, line)
	ch.CloseWrite()
	ch.SendRequest("exit-status", false, gossh.Marshal(struct{ Status uint32 }{code}))
	if v.pushing {
		// Closing now would break a client that is still sending a pack that
		// was refused, before it reads why.
		in := &idleReader{r: ch, idle: lingerTime, idled: func() { ch.Close() }}
		io.Copy(io.Discard, io.LimitReader(in, drainMax))
	}
}

// visit is one session that has said what it wants.
type visit struct {
	who      grant.AuthorizedKey
	conn     *sshConn
	ch       gossh.Channel
	protocol string
	reading  *sync.WaitGroup // what reads from ch
	pushing  bool            // the client may still be sending
}

// command runs one verb and gives its exit status.
func (f *sshFront) command(ctx context.Context, v *visit, line string) uint32 {
	say := func(format string, args ...any) uint32 {
		fmt.Fprintf(v.ch.Stderr(), "ramus: "+format+"\n", args...)
		return 128
	}
	verb, path, ok := parseSSHCommand(line)
	switch {
	case line == "":
		return say("hello %s; there is no shell here, only Git: git clone ssh://HOST/NAME.git", v.who.Subject)
	case !ok:
		return say("not a command of this server: git-upload-pack, git-receive-pack and whoami are")
	case verb == "whoami":
		fmt.Fprintf(v.ch, "%s\n", v.who.Subject)
		return 0
	}
	write := verb == "receive-pack"
	a, err := f.locate(path)
	grant, covered := v.who.Grant(a.name)
	if !covered || !grant.MayRead(a.name) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
		return say("repository not found, or not open to your key")
	}
	if err != nil {
		f.log().Warn("cannot serve a repository", "repo", a.name, "err", err)
		return say("the repository cannot be served; the server's log says why")
	}
	a.grant, a.client = grant.Effective(), "ssh:"+v.conn.addr.String()
	if write && (!grant.MayWrite(a.name) || len(a.grant.Write) == 0) {
		return say("your key may only read %s", a.name)
	}
	if err := a.enabled(f.Server, write); err != nil {
		return say("%v", err)
	}
	a = f.negotiate(ctx, a, v.protocol, write)
	if write {
		err = f.sshReceive(ctx, a, v)
	} else {
		err = f.sshUpload(ctx, a, v)
	}
	if err != nil {
		f.log().Info("SSH request failed", "repo", a.name, "subject", grant.Subject, "verb", verb, "err", err)
		return say("%s", object.ClientText(err, verb+" failed on the server"))
	}
	return 0
}

// sshReceive is a push: the refs are advertised, then it goes the way of HTTP.
func (f *sshFront) sshReceive(ctx context.Context, a access, v *visit) error {
	if err := f.advertisePush(ctx, a, v.ch); err != nil {
		return err
	}
	v.pushing = true
	in := &idleReader{r: v.ch, idle: f.limits.Idle, idled: func() { v.conn.Close() }}
	return f.receive(ctx, a, in, nil, v.ch)
}

// sshUpload is a fetch: a conversation that git leads itself, or of protocol v2,
// whose requests are answered one by one as over HTTP.
func (f *sshFront) sshUpload(ctx context.Context, a access, v *visit) error {
	if a.direct {
		return f.sshConverse(ctx, a, v)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot start git upload-pack: %w", err)
	}
	defer r.Close() // ends the feeding, if git has ended before
	v.reading.Go(func() {
		defer w.Close()
		io.Copy(w, io.LimitReader(v.ch, sshInputMax))
	})
	return f.serveChild(ctx, a, gitcmd.Command{
		Args: []string{"upload-pack", "--strict", "--timeout=" + seconds(f.limits.Idle), a.dir},
		Env:  a.env(),
		In:   r,
	}, v.ch, copyAnswer)
}

// sshConverse answers requests of protocol v2 until the client has no more.
func (f *sshFront) sshConverse(ctx context.Context, a access, v *visit) error {
	hangUp := func() { v.conn.Close() }
	in := bufio.NewReader(&idleReader{r: io.LimitReader(v.ch, sshInputMax), idle: f.limits.Idle, idled: hangUp})
	out := sshAnswer{&idleWriter{w: v.ch, idle: f.limits.Idle, idled: hangUp}}
	advert, err := f.capabilities(ctx, a)
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
		if err := f.answerRequest(ctx, a, q, out); err != nil {
			return err
		}
		// Refs may have changed since the last one.
		if err := a.repo.view.refresh(ctx); err != nil {
			return err
		}
	}
}

// sshAnswer is an answer over a channel that goes on after it.
type sshAnswer struct{ io.Writer }

func (sshAnswer) SetLength(int64) {}

func seconds(d time.Duration) string {
	return fmt.Sprint(max(1, int64((d+time.Second-1)/time.Second)))
}

// idleReader calls idled when a single read takes longer than idle.
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

// parseSSHCommand reads the command of an exec request: a verb and one path,
// quoted as git quotes it. There is no shell to expand anything else.
func parseSSHCommand(line string) (verb, path string, ok bool) {
	if line == "whoami" {
		return line, "", true
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
	path, ok = unquote(rest)
	path = strings.TrimPrefix(path, "/")
	return verb, path, ok && path != ""
}

// unquote reads one word: bare, or as git's sq_quote writes it, where ' and !
// stand outside of the quotes behind a backslash.
func unquote(s string) (string, bool) {
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
