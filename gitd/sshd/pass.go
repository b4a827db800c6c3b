package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gliderlabs/ssh"
	"github.com/ramus-dev/ramus/gitd/grant"
	gossh "golang.org/x/crypto/ssh"
)

// Of several servers, each serves SSH for all. A session for a repository of another server goes on there, over a connection
// of its own that speaks SSH again. The other server gets the public key that has logged in, looks for it in its own
// authorized keys, and asks for no signature, because the connection comes from a server that knows the secret of all.
// Nothing of the client's agent is passed on.

// Target is the purpose of a session of SSH.
type Target struct {
	// Repo is the repository of a verb of git. Otherwise it is empty, and User is the name of the login, which may be that of
	// a workspace.
	Repo, User string
	// Push means that the session may change the repository.
	Push bool
	// Passed means that another server has passed the session on.
	Passed bool
	// Key has logged in, from an address.
	Key  gossh.PublicKey
	From net.Addr
}

// targetOf returns the target of a session.
func (v *Session) targetOf(user, line string) Target {
	t := Target{Passed: v.conn.passed, Key: v.Who.Key, From: v.conn.RemoteAddr()}
	verb, path, ok := ParseCommand(line)
	if verb == "git-lfs-authenticate" {
		path, _, _ = strings.Cut(path, " ")
		if word, quoted := UnquoteWord(path); quoted {
			path = word
		}
	}
	if !ok || verb == "whoami" || v.subsystem != "" {
		t.User = user
		return t
	}
	t.Repo, t.Push = strings.TrimSuffix(strings.Trim(path, "/"), ".git"), verb == "receive-pack"
	return t
}

// pass finds the server for a session. A nil client means this one.
func (s *Server) pass(ctx context.Context, t Target, user string) (*gossh.Client, error) {
	if s.Pass == nil || s.Refusal != nil {
		return nil, nil
	}
	to, err := s.Pass(ctx, t)
	if err != nil || to == nil {
		return nil, err
	}
	c, chans, reqs, err := gossh.NewClientConn(to, "replica", &gossh.ClientConfig{User: user,
		HostKeyCallback: gossh.FixedHostKey(s.Signer.PublicKey()), ClientVersion: "SSH-2.0-ramus"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot pass the session on: %w", err), to.Close())
	}
	return gossh.NewClient(c, chans, reqs), nil
}

// passOn passes a session on, and returns its exit status when its output has ended. sent is closed when the client of the
// session sends no more.
func (v *Session) passOn(ctx context.Context, to *gossh.Client, line string) (code uint32, sent <-chan struct{}, err error) {
	ch, requests, err := to.OpenChannel("session", nil)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot pass the session on: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { to.Close() })
	defer stop()
	if err := v.repeatRequests(ch, line); err != nil {
		return 0, nil, err
	}
	copied := make(chan struct{})
	v.reading.Go(func() { // ends with the client, or with the connection to the other server
		defer close(copied)
		_, _ = io.Copy(ch, v.Channel)
		_ = ch.CloseWrite()
	})
	var work sync.WaitGroup
	work.Go(func() { _, _ = io.Copy(v.Channel, ch) })
	work.Go(func() { _, _ = io.Copy(v.Channel.Stderr(), ch.Stderr()) })
	done := make(chan struct{})
	defer close(done)
	v.reading.Go(func() {
		for {
			select {
			case tty := <-v.resized:
				_, _ = ch.SendRequest("window-change", false, gossh.Marshal(struct{ Cols, Rows, Width, Height uint32 }{
					uint32(tty.Cols), uint32(tty.Rows), 0, 0}))
			case <-done:
				return
			}
		}
	})
	code, told := uint32(128), false
	for req := range requests {
		if req.Type == "exit-status" && len(req.Payload) == 4 {
			var status struct{ Status uint32 }
			_ = gossh.Unmarshal(req.Payload, &status)
			code, told = status.Status, true
		}
		if req.WantReply {
			_ = req.Reply(false, nil)
		}
		if told {
			break
		}
	}
	v.reading.Go(func() { gossh.DiscardRequests(requests) })
	work.Wait()
	if !told && ctx.Err() == nil {
		return code, copied, errors.New("the server of the repository ended in the middle; try again")
	}
	return code, copied, nil
}

// repeatRequests sends the requests of the client that began the session.
func (v *Session) repeatRequests(ch gossh.Channel, line string) error {
	if v.Protocol != "" {
		_, _ = ch.SendRequest("env", false, gossh.Marshal(struct{ Name, Value string }{"GIT_PROTOCOL", v.Protocol}))
	}
	if v.tty != nil {
		_, _ = ch.SendRequest("pty-req", false, gossh.Marshal(ptyRequest{Term: v.tty.Term, Cols: uint32(v.tty.Cols),
			Rows: uint32(v.tty.Rows)}))
	}
	kind, payload := "exec", gossh.Marshal(struct{ Line string }{line})
	switch {
	case v.subsystem != "":
		kind, payload = "subsystem", gossh.Marshal(struct{ Name string }{v.subsystem})
	case line == "":
		kind, payload = "shell", nil
	}
	ok, err := ch.SendRequest(kind, true, payload)
	if err == nil && !ok {
		err = errors.New("the server of the repository refuses it")
	}
	if err != nil {
		return fmt.Errorf("cannot pass the session on: %w", err)
	}
	return nil
}

// passForward passes a connection to a port on, until it ends.
func passForward(ctx context.Context, to *gossh.Client, newCh gossh.NewChannel) {
	far, farRequests, err := to.OpenChannel(newCh.ChannelType(), newCh.ExtraData())
	if err != nil {
		reason, text := gossh.ConnectionFailed, "the server of the workspace does not answer"
		var refused *gossh.OpenChannelError
		if errors.As(err, &refused) {
			reason, text = refused.Reason, refused.Message
		}
		newCh.Reject(reason, text)
		return
	}
	defer far.Close()
	near, nearRequests, err := newCh.Accept()
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { near.Close(); to.Close() })()
	var work sync.WaitGroup
	work.Go(func() { gossh.DiscardRequests(nearRequests) })
	work.Go(func() { gossh.DiscardRequests(farRequests) })
	var both sync.WaitGroup
	for _, way := range [][2]gossh.Channel{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].CloseWrite()
		})
	}
	both.Wait()
	near.Close()
	far.Close()
	work.Wait()
}

// ServePassed serves a connection that another server made for a client whose key has logged in there, from an address. It returns when the
// connection ends.
func (s *Server) ServePassed(ctx context.Context, c net.Conn, who grant.AuthorizedKey, from net.Addr) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	srv := s.newServer(ctx)
	srv.PublicKeyHandler = nil // without any handler, no signature is asked for
	srv.ServerConfigCallback = func(login ssh.Context) *gossh.ServerConfig {
		own, _ := login.Value(s).(*conn)
		return &gossh.ServerConfig{NoClientAuth: true,
			NoClientAuthCallback: func(gossh.ConnMetadata) (*gossh.Permissions, error) {
				s.markLoggedIn(own)
				return &gossh.Permissions{ExtraData: map[any]any{identityKey{}: who}}, nil
			}}
	}
	defer s.sessions.Close()
	own := s.admitConn(passedConn{c, from})
	own.passed = true
	defer s.removeConn(own)
	srv.HandleConn(own)
}

// passedConn is a connection from another server, with the address of the client.
type passedConn struct {
	net.Conn
	from net.Addr
}

func (c passedConn) RemoteAddr() net.Addr { return c.from }

// awaitSent waits until the client of a push sends no more, for a while.
func awaitSent(sent <-chan struct{}) {
	late := time.NewTimer(lingerTime)
	defer late.Stop()
	select {
	case <-sent:
	case <-late.C:
	}
}
