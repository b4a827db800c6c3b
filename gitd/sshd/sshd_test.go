package sshd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/grant"
	gossh "golang.org/x/crypto/ssh"
)

// newSigner makes a key.
func newSigner(t *testing.T) gossh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// world is a server for the key of otter, whose Git answers with its arguments and the input.
type world struct {
	host, otter gossh.Signer
	addr        string
}

// admit returns the authorized keys of a server for one key, with options such as "ramus-shell".
func admit(t *testing.T, key gossh.PublicKey, options string) func(gossh.PublicKey, netip.Addr) (grant.AuthorizedKey, error) {
	line := options + " " + strings.TrimSpace(string(gossh.MarshalAuthorizedKey(key))) + " otter\n"
	keys := grant.ParseAuthorizedKeys([]byte(line), func(_ int, err error) { t.Error(err) })
	return func(offered gossh.PublicKey, from netip.Addr) (grant.AuthorizedKey, error) {
		if !bytes.Equal(offered.Marshal(), key.Marshal()) || !from.IsLoopback() {
			return grant.AuthorizedKey{}, errors.New("not authorized")
		}
		return keys[0], nil
	}
}

// newServer returns a server with the options of the tests.
func newServer(t *testing.T, host, user gossh.Signer) *Server {
	return &Server{Signer: host, Authorize: admit(t, user.PublicKey(), ""), Idle: time.Minute, DrainBytes: 1 << 20,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Git: func(_ context.Context, v *Session, verb, path string) uint32 {
			if verb == "receive-pack" {
				v.MarkPush()
				return v.Refuse("no pushes of %s from %s", v.Who.Subject, v.From())
			}
			input, err := io.ReadAll(v.Input())
			fmt.Fprintf(v.Channel, "%s %s %s %q %v", verb, path, v.Protocol, input, err)
			return 7
		}}
}

// open serves until the end of the test.
func open(t *testing.T, change func(*Server)) world {
	t.Helper()
	w := world{host: newSigner(t), otter: newSigner(t)}
	s := newServer(t, w.host, w.otter)
	change(s)
	w.serve(t, s)
	return w
}

func (w *world) serve(t *testing.T, s *Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// dial logs in with a key.
func (w world) dial(key gossh.Signer, user string) (*gossh.Client, error) {
	return gossh.Dial("tcp", w.addr, &gossh.ClientConfig{User: user, Auth: []gossh.AuthMethod{gossh.PublicKeys(key)},
		HostKeyCallback: gossh.FixedHostKey(w.host.PublicKey()), Timeout: time.Minute})
}

func (w world) login(t *testing.T, user string) *gossh.Client {
	t.Helper()
	c, err := w.dial(w.otter, user)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// run runs one command, or a shell for "", and returns its output, its errors and its status.
func run(t *testing.T, c *gossh.Client, line, input string) string {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out, fault bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader(input), &out, &fault
	if s.Setenv("GIT_PROTOCOL", "version=9") == nil || s.Setenv("HOME", "/") == nil {
		t.Error("the server accepts any environment")
	}
	if err := s.Setenv("GIT_PROTOCOL", "version=2"); err != nil {
		t.Fatal(err)
	}
	if line == "" {
		if err = s.Shell(); err == nil {
			err = s.Wait()
		}
	} else {
		err = s.Run(line)
	}
	code := 0
	var exit *gossh.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitStatus()
	} else if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s%s%d", out.String(), fault.String(), code)
}

func TestCommands(t *testing.T) {
	w := open(t, func(*Server) {})
	if _, err := w.dial(newSigner(t), "git"); err == nil {
		t.Error("a key that nobody knows may log in")
	}
	c := w.login(t, "git")
	for _, x := range []struct{ line, input, want string }{
		{"whoami", "", "otter\n0"},
		{"git-upload-pack '/team/a.git'", "want", `upload-pack team/a.git version=2 "want" <nil>7`},
		{`git upload-pack 'it'\''s'\!''`, "", `upload-pack it's! version=2 "" <nil>7`},
		{"git-lfs-authenticate team/a.git download", "", `git-lfs-authenticate team/a.git download version=2 "" <nil>7`},
		{"git-receive-pack '/team/a.git'", strings.Repeat("pack", 1000), "ramus: no pushes of otter from 127.0.0.1\n128"},
		{"", "", "ramus: hello otter; there is no shell here, only Git: git clone ssh://HOST/NAME.git\n128"},
		{"ls /", "", "ramus: not a command of this server: git-upload-pack, git-receive-pack and whoami are\n128"},
		{"git-upload-pack $(id)", "", "ramus: not a command of this server: git-upload-pack, git-receive-pack and whoami are\n128"},
	} {
		if got := run(t, c, x.line, x.input); got != x.want {
			t.Errorf("%q: %q, want %q", x.line, got, x.want)
		}
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if s.RequestSubsystem("sftp") == nil {
		t.Error("a server without workspaces has a subsystem")
	}
	if _, err := c.Dial("tcp", "127.0.0.1:80"); err == nil {
		t.Error("a server without workspaces forwards connections")
	}
}

func TestRefusal(t *testing.T) {
	w := open(t, func(s *Server) { s.Refusal = func() string { return "this is elsewhere" } })
	c, err := w.dial(newSigner(t), "git") // any key
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, line := range []string{"whoami", "git-upload-pack a.git", ""} {
		if got := run(t, c, line, ""); got != "ramus: this is elsewhere\n1" {
			t.Errorf("%q: %q", line, got)
		}
	}
}

// TestSessionsOfConnection has one connection open more sessions than it may.
func TestSessionsOfConnection(t *testing.T) {
	w := open(t, func(*Server) {})
	c := w.login(t, "git")
	var last *gossh.Session
	for i := range sessionsMax {
		s, err := c.NewSession()
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		last = s
	}
	var refused *gossh.OpenChannelError
	if _, err := c.NewSession(); !errors.As(err, &refused) || refused.Reason != gossh.ResourceShortage {
		t.Fatalf("one session more: %v", err)
	}
	last.Close()
	for until := time.Now().Add(time.Minute); ; {
		if _, err := c.NewSession(); err == nil {
			return
		} else if time.Now().After(until) {
			t.Fatalf("a session has ended, and there is no room for another: %v", err)
		}
	}
}

// TestStrangers has more clients than the server admits connect and say nothing.
func TestStrangers(t *testing.T) {
	w := open(t, func(*Server) {})
	var first net.Conn
	for i := range StrangersPerAddr + 1 {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i == 0 {
			first = c
		}
	}
	first.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, first); err != nil && !errors.Is(err, io.EOF) {
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			t.Error("the oldest stranger is still connected")
		}
	}
	w.login(t, "git")
}

// burrow is a workspace.
type burrow struct {
	echo net.Addr
	seen chan ShellSession
}

func (b burrow) OpenWorkspace(_ context.Context, user string, _ func(string) (grant.Grant, bool)) Workspace {
	if user != "burrow" {
		return nil
	}
	return b
}

func (b burrow) Run(_ context.Context, s ShellSession) uint32 {
	b.seen <- s
	if s.TTY != nil {
		size := <-s.Resized
		fmt.Fprintf(s.Out, "%s %dx%d %dx%d", s.TTY.Term, s.TTY.Cols, s.TTY.Rows, size.Cols, size.Rows)
	}
	_, _ = io.Copy(s.Out, s.In)
	return 3
}

func (b burrow) Files(_ context.Context, conn io.ReadWriter) error {
	_, err := io.Copy(conn, conn)
	return err
}

func (b burrow) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port != 80 {
		return nil, errors.New("closed")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", b.echo.String())
}

// nobody is the workspaces of a server that must not be asked.
type nobody struct{ t *testing.T }

func (n nobody) OpenWorkspace(context.Context, string, func(string) (grant.Grant, bool)) Workspace {
	n.t.Error("a workspace is opened at the wrong server")
	return nil
}

// openBurrow serves a workspace with a port that sends back what it gets.
func openBurrow(t *testing.T) (world, burrow, func(*Server)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	otter := newSigner(t)
	b := burrow{echo: l.Addr(), seen: make(chan ShellSession, 1)}
	set := func(s *Server) {
		s.Workspaces = b
		s.Authorize = admit(t, otter.PublicKey(), "ramus-shell")
	}
	w := world{host: newSigner(t), otter: otter}
	s := newServer(t, w.host, otter)
	set(s)
	w.serve(t, s)
	return w, b, set
}

// use uses the workspace in all ways.
func (b burrow) use(t *testing.T, c *gossh.Client) {
	t.Helper()
	if got := run(t, c, "make test", "input"); got != "input3" {
		t.Errorf("a command: %q", got)
	}
	if s := <-b.seen; s.Command != "make test" || s.TTY != nil {
		t.Errorf("%+v", s)
	}

	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s.Stdout = &out
	if s.RequestPty(strings.Repeat("x", termMax+1), 24, 80, nil) == nil {
		t.Error("the server takes any name of a terminal")
	}
	term := strings.Repeat("x", termMax)
	if err := s.RequestPty(term, 24, 80, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	if got := <-b.seen; got.Command != "" {
		t.Errorf("a shell: %+v", got)
	}
	if err := s.WindowChange(30, 5000); err != nil {
		t.Fatal(err)
	}
	var exit *gossh.ExitError
	if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 3 || out.String() != term+" 80x24 1000x30" {
		t.Errorf("a shell: %q, %v", out.String(), err)
	}

	if s, err = c.NewSession(); err != nil {
		t.Fatal(err)
	}
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	files, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if s.RequestSubsystem("shell") == nil {
		t.Error("the server takes any subsystem")
	}
	if err := s.RequestSubsystem("sftp"); err != nil {
		t.Fatal(err)
	}
	checkEcho(t, in, files)

	for _, host := range []string{"localhost:80", "127.0.0.1:80"} {
		port, err := c.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		checkEcho(t, port.(interface{ CloseWrite() error }), port)
		port.Close()
	}
	for _, host := range []string{"127.0.0.1:81", "192.0.2.1:80", "example.org:80"} {
		if _, err := c.Dial("tcp", host); err == nil {
			t.Errorf("%s can be reached", host)
		}
	}
}

// checkEcho sends a word, closes, and reads the word.
func checkEcho(t *testing.T, in any, out io.Reader) {
	t.Helper()
	if _, err := io.WriteString(in.(io.Writer), "otter"); err != nil {
		t.Fatal(err)
	}
	switch c := in.(type) {
	case interface{ CloseWrite() error }:
		c.CloseWrite()
	case io.Closer:
		c.Close()
	}
	if got, err := io.ReadAll(out); string(got) != "otter" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWorkspace(t *testing.T) {
	w, b, _ := openBurrow(t)
	b.use(t, w.login(t, "burrow"))
	c := w.login(t, "git") // no workspace has this name
	if got := run(t, c, "whoami", ""); got != "otter\n0" {
		t.Errorf("%q", got)
	}
	if _, err := c.Dial("tcp", "localhost:80"); err == nil {
		t.Error("a login without a workspace reaches a port")
	}
	if got := run(t, w.login(t, "burrow"), "git-upload-pack a.git", "want"); got != `upload-pack a.git version=2 "want" <nil>7` {
		t.Errorf("git by the name of a workspace: %q", got)
	}
}

// TestNoShell logs in to a workspace with a key that opens none.
func TestNoShell(t *testing.T) {
	w := open(t, func(s *Server) { s.Workspaces = nobody{t} })
	if got := run(t, w.login(t, "burrow"), "make test", ""); !strings.Contains(got, "not a command of this server") {
		t.Errorf("%q", got)
	}
}

// brokenListener returns errors, one after the other.
type brokenListener struct {
	net.Listener
	faults []error
}

func (l *brokenListener) Accept() (net.Conn, error) {
	err := l.faults[0]
	l.faults = l.faults[1:]
	return nil, err
}

// TestAccept has a listener fail for a while, and then for good.
func TestAccept(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	key := newSigner(t)
	broken := &brokenListener{l, []error{syscall.EMFILE, os.ErrDeadlineExceeded, syscall.ECONNABORTED, errors.New("broken")}}
	if err := newServer(t, key, key).Serve(t.Context(), broken); err == nil || err.Error() != "cannot accept SSH connections: broken" {
		t.Error(err)
	}
	if len(broken.faults) != 0 {
		t.Errorf("%v was not reached", broken.faults)
	}
}

// TestAllStrangers has strangers from many addresses, of whom the oldest makes room for one more.
func TestAllStrangers(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, key, key)
	var list []*conn
	for i := range strangersMax + 1 {
		near, far := net.Pipe()
		defer far.Close()
		list = append(list, s.admitConn(passedConn{near, &net.TCPAddr{IP: net.IPv4(192, 0, byte(i>>8), byte(i)), Port: 1}}))
		if i == strangersMax-1 && len(s.strangers) != strangersMax {
			t.Errorf("%d strangers", len(s.strangers))
		}
	}
	if _, in := s.strangers[list[0]]; in || len(s.strangers) != strangersMax {
		t.Errorf("%d strangers, with the oldest: %v", len(s.strangers), in)
	}
	if _, err := list[0].Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the oldest: %v", err)
	}
	for _, c := range list {
		s.removeConn(c)
	}
	if len(s.strangers)+len(s.conns) != 0 {
		t.Errorf("%d and %d connections are left", len(s.strangers), len(s.conns))
	}
}

// TestPass has one server pass all its sessions on to another one.
func TestPass(t *testing.T) {
	w, b, set := openBurrow(t)
	far, front := newServer(t, w.host, w.otter), newServer(t, w.host, w.otter)
	set(far)
	set(front)
	far.Pass = func(_ context.Context, to Target) (net.Conn, error) {
		if !to.Passed {
			t.Errorf("%+v", to)
		}
		return nil, nil
	}
	front.Git = func(context.Context, *Session, string, string) uint32 {
		t.Error("a session is served by the wrong server")
		return 1
	}
	front.Workspaces = nobody{t}
	targets := make(chan Target, 100)
	front.Pass = func(ctx context.Context, to Target) (net.Conn, error) {
		targets <- to
		if to.Repo == "gone" {
			return nil, errors.New("nobody has it")
		}
		near, other := pair(t)
		who, err := far.Authorize(to.Key, RemoteIP(to.From))
		if err != nil {
			return nil, err
		}
		go newPassed(far).ServePassed(ctx, other, who, to.From)
		return near, nil
	}
	w.serve(t, front)
	c := w.login(t, "burrow")
	b.use(t, c)
	for range len(targets) {
		if to := <-targets; to.User != "burrow" || to.Repo != "" || to.Push || to.Passed {
			t.Errorf("the target of a workspace: %+v", to)
		}
	}
	for _, x := range []struct {
		line, want string
		repo       string
		push       bool
	}{
		{"git-upload-pack '/team/a.git'", `upload-pack team/a.git version=2 "in" <nil>7`, "team/a", false},
		{"git-receive-pack '/team/a.git'", "ramus: no pushes of otter from 127.0.0.1\n128", "team/a", true},
		{"git-lfs-authenticate '/team/a.git' upload", `git-lfs-authenticate '/team/a.git' upload version=2 "in" <nil>7`, "team/a", false},
		{"whoami", "otter\n0", "", false},
		{"git-upload-pack gone", "ramus: the replica that serves this does not answer; try again in a moment\n128", "gone", false},
	} {
		if got := run(t, c, x.line, "in"); got != x.want {
			t.Errorf("%q: %q, want %q", x.line, got, x.want)
		}
		user := ""
		if x.line == "whoami" {
			user = "burrow"
		}
		if to := <-targets; to.Repo != x.repo || to.Push != x.push || to.User != user {
			t.Errorf("%q: %+v", x.line, to)
		}
	}
}

// pair returns the two ends of a connection. Those of net.Pipe have no buffer, and both sides of SSH write first.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// newPassed returns a server with the options of another one, because a server serves one connection.
func newPassed(s *Server) *Server {
	return &Server{Signer: s.Signer, Authorize: s.Authorize, Git: s.Git, Workspaces: s.Workspaces, Pass: s.Pass, Idle: s.Idle,
		DrainBytes: s.DrainBytes, Log: s.Log}
}

func TestUnquoteWord(t *testing.T) {
	for word, want := range map[string]string{"a.git": "a.git", "'a b'": "a b", `'it'\''s'`: "it's", `'a'\!'b'`: "a!b", "''": "", "": ""} {
		if got, ok := UnquoteWord(word); got != want || !ok {
			t.Errorf("%q: %q, %v", word, got, ok)
		}
	}
	for _, word := range []string{"a b", "'a", "'a'b", `'a'\x'b'`, "a;b", "a'b", "$a", "a\nb", `a\b`} {
		if got, ok := UnquoteWord(word); ok {
			t.Errorf("%q: %q", word, got)
		}
	}
}
