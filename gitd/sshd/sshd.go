// Package sshd speaks SSH with the clients of a Git server. It opens no repositories.
//
// # Nouns
//
// A connection is one of a stranger until a key has logged in ([Server.Authorize]). It has sessions. A [Session] runs one command, which is a verb
// of git with a path ([Server.Git]), or a command, a shell or files of a [Workspace]. A connection to a port of a workspace is a channel
// without a session.
//
// # Invariants
//
// No channel is served before a key has signed, here or at the server that passed the connection on. Connections of strangers, sessions of a connection and the time of each silence are bounded.
// Nothing is forwarded from the server to its clients, and no agent of a client is used.
//
// # Sources
//
// RFC 4252 (login by a key), RFC 4254 (channels).
package sshd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/gliderlabs/ssh"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/grant"
	gossh "golang.org/x/crypto/ssh"
)

const (
	// handshakeTime is the time in which a connection must log in.
	handshakeTime = 30 * time.Second
	// strangersMax and StrangersPerAddr bound the connections that have not logged in. Beyond them the oldest one
	// is closed, because an honest handshake takes a moment, and a stalled one is the oldest.
	strangersMax     = 256
	StrangersPerAddr = 64
	// lingerTime is the time for which a refused client may be silent while it still sends.
	lingerTime = 30 * time.Second
	// sessionsMax bounds the simultaneous sessions of one connection.
	sessionsMax = 16
)

// identityKey is the key of the authorized key in the permissions of a connection.
type identityKey struct{}

// Server serves SSH on one listener, or on one connection that another server passed on. Call [Server.Serve] or [Server.ServePassed] once. The
// exported fields are its options, which are constant from then on.
type Server struct {
	// Signer has the key of the host. It is required.
	Signer gossh.Signer
	// Authorize returns the authorized key of a public key that logs in from an address. It remembers nothing, because it is called for
	// each key that a client offers, too.
	Authorize func(key gossh.PublicKey, from netip.Addr) (grant.AuthorizedKey, error)
	// Git runs a verb of git in a session, on the repository at a path, and returns its exit status. The verb is "upload-pack",
	// "receive-pack" or "git-lfs-authenticate", whose path has the operation too.
	Git func(ctx context.Context, v *Session, verb, path string) uint32
	// Workspaces serves people who log in by the name of a workspace. Nil means that there are none.
	Workspaces Workspaces
	// Pass returns a connection to the server of a session, or nil if that is this one. A nil Pass means that there are no others.
	Pass func(ctx context.Context, t Target) (net.Conn, error)
	// Refusal returns the answer to each command of a server that serves nothing, and everybody may log in. Nil means that it serves.
	Refusal func() string
	// Idle is for how long a connection without a session, or a client that is waited for, may be silent.
	Idle time.Duration
	// DrainBytes bounds the part of a refused push that is read, so that the client reads the reason.
	DrainBytes int64
	Log        *slog.Logger

	sessions gitcmd.Group

	mu        sync.Mutex // guards the fields below
	strangers map[*conn]struct{}
	conns     map[*conn]struct{}
	closed    bool
}

// Serve serves the connections of l until ctx ends. It closes l and waits for all sessions.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer l.Close()
	srv := s.newServer(ctx)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()

	// gliderlabs/ssh starts connections and their sessions. Sessions end with their connections, but waiting for
	// the connections is not enough, so sessions are counted, too.
	defer s.sessions.Close()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer s.closeAll()
	for {
		c, err := s.accept(ctx, l)
		if c == nil {
			return err
		}
		one := s.admitConn(c)
		conns.Go(func() {
			defer s.removeConn(one)
			srv.HandleConn(one)
		})
	}
}

// accept waits for the next connection. It returns nil without an error if ctx has ended.
func (s *Server) accept(ctx context.Context, l net.Listener) (net.Conn, error) {
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
			s.Log.Warn("cannot accept an SSH connection", "err", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		default:
			return nil, fmt.Errorf("cannot accept SSH connections: %w", err)
		}
	}
}

// newServer returns the SSH server for the connections of s.
func (s *Server) newServer(ctx context.Context) *ssh.Server {
	return &ssh.Server{
		HostSigners: []ssh.Signer{s.Signer},
		Version:     "ramus",
		// It is called for each key that a client offers, and reports whether a signature by the key would be
		// accepted. It must remember nothing. Without it, everybody could log in.
		PublicKeyHandler: func(ctx ssh.Context, key ssh.PublicKey) bool {
			if s.Refusal != nil {
				return true
			}
			_, err := s.Authorize(key, RemoteIP(ctx.RemoteAddr()))
			return err == nil
		},
		ServerConfigCallback: func(ctx ssh.Context) *gossh.ServerConfig {
			c, _ := ctx.Value(s).(*conn)
			return &gossh.ServerConfig{
				MaxAuthTries: 20, // agents with many keys
				// It is called once, with the key that has signed.
				VerifiedPublicKeyCallback: func(meta gossh.ConnMetadata, key gossh.PublicKey, _ *gossh.Permissions,
					_ string) (*gossh.Permissions, error) {
					if s.Refusal != nil { // the connection stays one of a stranger
						return &gossh.Permissions{ExtraData: map[any]any{identityKey{}: grant.AuthorizedKey{}}}, nil
					}
					k, err := s.Authorize(key, RemoteIP(meta.RemoteAddr()))
					if err != nil {
						return nil, err
					}
					s.markLoggedIn(c)
					return &gossh.Permissions{ExtraData: map[any]any{identityKey{}: k}}, nil
				},
			}
		},
		ConnCallback: func(ctx ssh.Context, c net.Conn) net.Conn {
			ctx.SetValue(s, c)
			return c
		},
		ChannelHandlers: map[string]ssh.ChannelHandler{
			"session": func(_ *ssh.Server, login *gossh.ServerConn, ch gossh.NewChannel, c ssh.Context) {
				own, _ := c.Value(s).(*conn)
				s.serveSession(ctx, own, login, ch)
			},
			"direct-tcpip": s.forwardHandler(ctx),
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

// RemoteIP returns the IP address of a client.
func RemoteIP(addr net.Addr) netip.Addr {
	if a, err := netip.ParseAddrPort(addr.String()); err == nil {
		return a.Addr().Unmap()
	}
	return netip.Addr{}
}
