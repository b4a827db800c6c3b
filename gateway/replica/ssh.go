package replica

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/sshd"
)

// Headers of a connection for a session of SSH.
const (
	headerSSHKey    = "Ramus-Replica-Ssh-Key"    // the public key that has logged in, in base64
	headerSSHClient = "Ramus-Replica-Ssh-Client" // the address of the client
	headerSSHRepo   = "Ramus-Replica-Ssh-Repo"   // the repository that it is for
	headerSSHPush   = "Ramus-Replica-Ssh-Push"   // it may change the repository
	upgradeSSH      = "ramus-ssh"
)

// PassSSH is [gitd.Server.PassSSH]. A session waits while its repository moves.
func (f *Front) PassSSH(ctx context.Context, t sshd.Target) (net.Conn, error) {
	if t.Passed { // the gate was passed with the connection
		return nil, nil
	}
	repo := t.Repo
	if repo == "" {
		name := t.User
		if of, ok := workspace.CallerOf(name); ok {
			name = of.String()
		}
		if repo = f.places.find(ctx, f, gather.Work{Caller: name}); repo == "" {
			return nil, nil
		}
	}
	late := time.Now().Add(f.Patience)
	for try := 0; ; try++ {
		if f.isHere(ctx, repo) {
			served, leave := context.WithCancel(ctx)
			if err := f.passGate(served, repo, t.Push); err != nil {
				leave()
				return nil, err
			}
			if f.isHere(ctx, repo) {
				context.AfterFunc(ctx, leave)
				return nil, f.Lost(repo)
			}
			leave() // it was moved meanwhile
		}
		to, err := f.target(ctx, passing{repo: repo}, try > 0)
		var conn net.Conn
		if err == nil {
			conn, err = f.dialSSH(ctx, to, repo, t)
		}
		if err == nil {
			f.stats.passed.Add(1)
			return conn, nil
		}
		if time.Now().After(late) {
			f.stats.failed.Add(1)
			return nil, object.Refuse(gitd.ErrElsewhere, "the replica that owns %s does not answer: try again in a moment", repo)
		}
		f.Log.Debug("cannot pass an SSH session on yet", "repo", repo, "err", err)
		select {
		case <-time.After(min(time.Duration(try+1)*50*time.Millisecond, 500*time.Millisecond)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// dialSSH connects to the SSH server of another replica. The connection outlives ctx.
func (f *Front) dialSSH(ctx context.Context, to ownership.Replica, repo string, t sshd.Target) (net.Conn, error) {
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	late := time.AfterFunc(f.Patience, cancel) // the other replica may hold the gate
	gone := context.AfterFunc(ctx, cancel)
	r, err := http.NewRequestWithContext(asking, http.MethodPost, to.URL+"/replica/ssh", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	for name, value := range map[string]string{headerFrom: f.Group.Name, headerTo: to.Name, "Connection": "Upgrade",
		"Upgrade": upgradeSSH, headerSSHKey: base64.StdEncoding.EncodeToString(t.Key.Marshal()), headerSSHClient: t.From.String()} {
		r.Header.Set(name, value)
	}
	r.Header.Set(headerSSHRepo, repo)
	if t.Push {
		r.Header.Set(headerSSHPush, "1")
	}
	resp, err := f.base.RoundTrip(r)
	if err == nil && (!late.Stop() || !gone()) {
		err = errors.Join(context.DeadlineExceeded, resp.Body.Close())
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("the replica %s does not answer: %w", to.Name, err)
	}
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		resp.Body.Close()
		cancel()
		return nil, fmt.Errorf("the replica %s answers %d: %s", to.Name, resp.StatusCode, text)
	}
	return &streamConn{ReadWriteCloser: stream, end: cancel}, nil
}

// streamConn is a connection without addresses and deadlines.
type streamConn struct {
	io.ReadWriteCloser
	end func()
}

func (c *streamConn) Close() error {
	defer c.end()
	return c.ReadWriteCloser.Close()
}

func (c *streamConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *streamConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *streamConn) SetDeadline(time.Time) error      { return nil }
func (c *streamConn) SetReadDeadline(time.Time) error  { return nil }
func (c *streamConn) SetWriteDeadline(time.Time) error { return nil }

// serveSSH serves a session that another replica passes on.
func (f *Front) serveSSH(w http.ResponseWriter, r *http.Request) {
	wire, err := base64.StdEncoding.DecodeString(r.Header.Get(headerSSHKey))
	var key gossh.PublicKey
	if err == nil {
		key, err = gossh.ParsePublicKey(wire)
	}
	var from netip.AddrPort
	if err == nil {
		from, err = netip.ParseAddrPort(r.Header.Get(headerSSHClient))
	}
	if err != nil || r.Header.Get("Upgrade") != upgradeSSH {
		http.Error(w, "no session of SSH", http.StatusBadRequest)
		return
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	repo := r.Header.Get(headerSSHRepo)
	if f.passGate(ctx, repo, r.Header.Get(headerSSHPush) != "") != nil {
		return // the sender has gone
	}
	if !f.owns(r, repo) {
		f.refuse(w, fmt.Sprintf("the replica %s does not own %.200q", f.Group.Name, repo))
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+upgradeSSH+"\r\n\r\n"); err != nil {
		conn.Close()
		return
	}
	err = f.Git.ServePassedSSH(f.closing, bufferedConn{conn, buffered.Reader}, key, net.TCPAddrFromAddrPort(from))
	if err != nil {
		f.Log.Info("an SSH session of another replica is refused", "from", r.Header.Get(headerFrom), "client", from, "err", err)
	}
}

// bufferedConn is a connection of which something was read already.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (c bufferedConn) Read(p []byte) (int, error) { return c.in.Read(p) }
