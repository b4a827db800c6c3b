package gitd

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/sshd"
	gossh "golang.org/x/crypto/ssh"
)

// sshKey makes a key. It returns the signer, the authorized_keys line and the
// private key's file.
func sshKey(t testing.TB) (signer gossh.Signer, line, file string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = gossh.NewSignerFromKey(key); err != nil {
		t.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return signer, strings.TrimSpace(string(gossh.MarshalAuthorizedKey(signer.PublicKey()))), file
}

// serveSSH serves on a free port of host until the test ends.
func (w *wire) serveSSH(host string) string {
	w.t.Helper()
	return w.serveSSHWith(host, w.ServeSSH)
}

func (w *wire) serveSSHWith(host string, serve func(context.Context, net.Listener) error) string {
	w.t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return l.Addr().String()
}

// sshGit returns the environment in which git uses stock ssh with one key.
func sshGit(t testing.TB, keyFile string) []string {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("cannot run here: no ssh client is installed")
	}
	return []string{"GIT_SSH_COMMAND=ssh -F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i " + keyFile}
}

func newSSHWire(t testing.TB, keys ...string) *wire {
	return newWire(t, func(s *Server) {
		s.AuthorizedKeys = filepath.Join(t.TempDir(), "authorized_keys")
		write(t, s.AuthorizedKeys, strings.Join(keys, "\n")+"\n")
	})
}

func TestSSHStockClient(t *testing.T) {
	_, ada, file := sshKey(t)
	w := newSSHWire(t, "# people", ada+" ada@example.org")
	dir := w.repo("team/a")
	env := sshGit(t, file)
	url := "ssh://git@" + w.serveSSH("127.0.0.1") + "/team/a.git"
	run := func(dir string, args ...string) string {
		t.Helper()
		out, err := stockEnvTry(env, dir, args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	for _, v := range []string{"0", "1", "2"} {
		v = "protocol.version=" + v
		c := filepath.Join(t.TempDir(), "c")
		run("", "clone", "-q", "-c", v, url, c)
		for i := range 3 {
			addFile(t, c, fmt.Sprint("f", i, v), v)
		}
		run(c, "push", "-q", "origin", "HEAD:main")
		s := filepath.Join(t.TempDir(), "s")
		run("", "clone", "-q", "-c", v, "--depth=1", url, s)
		run(s, "fetch", "-q", "--unshallow")
		b := filepath.Join(t.TempDir(), "b")
		run("", "clone", "-q", "-c", v, "--filter=blob:none", url, b)
		fsck(t, dir)
		fsck(t, s)
	}
}

func TestSSHScope(t *testing.T) {
	_, reader, readerFile := sshKey(t)
	_, writer, writerFile := sshKey(t)
	_, nobody, nobodyFile := sshKey(t)
	w := newSSHWire(t,
		`ramus-read-only,command="touch /tmp/never",environment="A=b" `+reader+" reader",
		`ramus-repos="a",ramus-refs="refs/heads/w/*",ramus-no-force `+writer+" writer",
		`strange-option `+nobody+" nobody")
	dir := w.repo("a")
	w.repo("b")
	base := "ssh://git@" + w.serveSSH("127.0.0.1")
	c := w.clone(dir)
	addFile(t, c, "x", "x")
	try := func(key string, args ...string) (string, error) {
		return stockEnvTry(sshGit(t, key), c, args...)
	}
	if out, err := try(readerFile, "ls-remote", base+"/b.git"); err != nil {
		t.Fatal(out, err)
	}
	out, err := try(readerFile, "push", base+"/a.git", "HEAD:refs/heads/new")
	refused(t, out, err, "may only read a")
	if out, err = try(writerFile, "push", base+"/a.git", "HEAD:refs/heads/w/1"); err != nil {
		t.Fatal(out, err)
	}
	out, err = try(writerFile, "push", base+"/a.git", "HEAD:refs/heads/main")
	refused(t, out, err, "may write only refs/heads/w/*")
	out, err = try(writerFile, "push", base+"/a.git", ":refs/heads/w/1")
	refused(t, out, err, "may not delete")
	out, err = try(writerFile, "push", base+"/a.git", "+HEAD~1:refs/heads/w/1")
	refused(t, out, err, "non-fast-forward")
	for _, path := range []string{"/b.git", "/missing.git", "/../root/a.git", "/-x.git", "/a.lock.git", "/b",
		"/missing", "/a.git/objects"} {
		out, err = try(writerFile, "ls-remote", base+path)
		refused(t, out, err, "not found")
	}
	if out, err = try(writerFile, "ls-remote", base+"/a"); err != nil { // with .git or without
		t.Error(out, err)
	}
	out, err = try(nobodyFile, "ls-remote", base+"/a.git")
	refused(t, out, err, "denied")
	fsck(t, dir)
}

// TestSSHVerbs checks that the server runs only Git, and no shell, terminal
// or forwarding.
func TestSSHVerbs(t *testing.T) {
	signer, line, _ := sshKey(t)
	w := newSSHWire(t, line+" ada")
	w.repo("a")
	client := dialSSH(t, w.serveSSH("127.0.0.1"), gossh.PublicKeys(signer))
	defer client.Close()
	for cmd, want := range map[string]string{
		"whoami":                                              "ada\n",
		"ls":                                                  "not a command",
		"git-upload-pack":                                     "not a command",
		"git-upload-archive '/a.git'":                         "not a command",
		"git-upload-pack '/a.git'; id":                        "not a command",
		"git-upload-pack $(id)":                               "not a command",
		"git-upload-pack --help":                              "not found",
		"git-upload-pack --strict '/a.git'":                   "not a command",
		"git-upload-pack '/a.git' '/a.git'":                   "not a command",
		"git  upload-pack '/a.git'":                           "not a command",
		"whoami; id":                                          "not a command",
		"git-receive-pack '/../../etc'":                       "not found",
		"git-upload-pack '/a.git'\n id":                       "not a command",
		"git-upload-pack 'it'\\''s not there'":                "not found",
		"git --exec-path=/tmp upload-pack 'a'":                "not a command",
		"git-upload-pack '" + strings.Repeat("a", 5000) + "'": "not a command",
	} {
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.CombinedOutput(cmd)
		if !strings.Contains(string(out), want) || (err == nil) != (cmd == "whoami") {
			t.Errorf("%.80q: %q, %v; want %q", cmd, out, err, want)
		}
		s.Close()
	}
	s, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestPty("xterm", 25, 80, nil); err == nil {
		t.Error("a terminal was given")
	}
	if err := s.Setenv("LD_PRELOAD", "/tmp/x.so"); err == nil {
		t.Error("an environment variable was taken")
	}
	if err := s.Setenv("GIT_PROTOCOL", "version=2:x"); err == nil {
		t.Error("a malformed GIT_PROTOCOL was taken")
	}
	if err := s.RequestSubsystem("sftp"); err == nil {
		t.Error("there is a subsystem")
	}
	out, err := func() ([]byte, error) {
		var b strings.Builder
		s.Stderr = &b
		if err := s.Shell(); err != nil {
			return nil, err
		}
		err := s.Wait()
		return []byte(b.String()), err
	}()
	if err == nil || !strings.Contains(string(out), "no shell") {
		t.Errorf("shell: %q, %v", out, err)
	}
	if c, err := client.Dial("tcp", strings.TrimPrefix(w.http.URL, "http://")); err == nil {
		c.Close()
		t.Error("connections are forwarded")
	}
	if l, err := client.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close()
		t.Error("listeners are forwarded")
	}
}

func dialSSH(t testing.TB, addr string, auth ...gossh.AuthMethod) *gossh.Client {
	t.Helper()
	client, err := tryDialSSH(addr, auth...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func tryDialSSH(addr string, auth ...gossh.AuthMethod) (*gossh.Client, error) {
	return gossh.Dial("tcp", addr, &gossh.ClientConfig{
		User: "git", Auth: auth, HostKeyCallback: gossh.InsecureIgnoreHostKey(), Timeout: time.Minute,
	})
}

// forged offers one public key and signs with another.
type forged struct {
	offered gossh.PublicKey
	gossh.Signer
}

func (f forged) PublicKey() gossh.PublicKey { return f.offered }

// TestSSHOfferedKey has a client offer an administrator's public key, whose
// signature the server would accept, and then sign with its own key. The
// client is the owner of the key that signed.
func TestSSHOfferedKey(t *testing.T) {
	admin, adminLine, _ := sshKey(t)
	mallory, malloryLine, malloryFile := sshKey(t)
	w := newSSHWire(t, adminLine+" admin", "ramus-read-only "+malloryLine+" mallory")
	w.repo("a")
	addr := w.serveSSH("127.0.0.1")
	sshGit(t, malloryFile) // skips without ssh
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	// These are public keys without a private one, which the client offers
	// and cannot sign with. The server is asked about mallory before admin.
	// The last key that it is asked about is not the one that signs.
	public := t.TempDir()
	for _, name := range []string{"1", "2"} {
		if err := os.WriteFile(filepath.Join(public, name), []byte("no private key\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(public, "1.pub"), malloryLine+"\n")
	write(t, filepath.Join(public, "2.pub"), adminLine+"\n")
	for _, command := range []string{"whoami", "git-receive-pack '/a.git'"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "ssh", "-v", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
			"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
			"-i", filepath.Join(public, "1"), "-i", filepath.Join(public, "2"), "-i", malloryFile,
			"-p", port, "git@"+host, command)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, _ := cmd.Output()
		for _, k := range []gossh.Signer{mallory, admin} {
			if want := "Server accepts key: " + filepath.Join(public,
				map[bool]string{true: "1", false: "2"}[k == mallory]); !strings.Contains(stderr.String(), want) {
				t.Fatalf("the client did not offer as it should: no %q in\n%s", want, stderr.String())
			}
		}
		if command == "whoami" && string(out) != "mallory\n" {
			t.Errorf("whoami: %q\n%s", out, stderr.String())
		}
		if command != "whoami" && !strings.Contains(stderr.String(), "your key may only read a") {
			t.Errorf("%s: %q\n%s", command, out, stderr.String())
		}
	}
	if _, err := tryDialSSH(addr, gossh.PublicKeys(forged{admin.PublicKey(), mallory})); err == nil {
		t.Error("logged in with a key that did not sign")
	}
	if _, err := tryDialSSH(addr); err == nil {
		t.Error("logged in without a key")
	}
	if _, err := tryDialSSH(addr, gossh.Password("")); err == nil {
		t.Error("logged in with a password")
	}
}

// TestSSHStalledHandshakes opens hundreds of connections that never log in.
// Other clients lose nothing, even at the same address.
func TestSSHStalledHandshakes(t *testing.T) {
	signer, line, _ := sshKey(t)
	w := newSSHWire(t, line+" ada")
	addr := w.serveSSH("127.0.0.1")
	var stalled []net.Conn
	defer func() {
		for _, c := range stalled {
			c.Close()
		}
	}()
	for i := range 3 * sshd.StrangersPerAddr {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		stalled = append(stalled, c)
		if i%2 == 0 {
			io.WriteString(c, "SSH-2.0-stalled\r\n")
		}
	}
	client := dialSSH(t, addr, gossh.PublicKeys(signer))
	defer client.Close()
	s, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.CombinedOutput("whoami"); err != nil || string(out) != "ada\n" {
		t.Fatalf("%q, %v", out, err)
	}
	// The server closed the connections that had waited longest, to make
	// room.
	stalled[1].SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, stalled[1]); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest stalled connection is still open")
	}
}

// TestRefuseSSH has a server tell everybody why it serves nothing, whatever the key and the command.
func TestRefuseSSH(t *testing.T) {
	_, _, file := sshKey(t)
	w := newSSHWire(t)
	w.repo("team/a")
	addr := w.serveSSHWith("127.0.0.1", func(ctx context.Context, l net.Listener) error {
		return w.RefuseSSH(ctx, l, func() string { return "this is at https://other.example.org now" })
	})
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	env := sshGit(t, file)
	ssh, _ := strings.CutPrefix(env[0], "GIT_SSH_COMMAND=")
	for _, args := range []string{"git-upload-pack '/team/a.git'", "git-receive-pack '/team/a.git'", "whoami", "", "-tt otter",
		"-s sftp"} {
		line := strings.Replace(ssh, "ssh ", "ssh -p "+port+" git@"+host+" ", 1) + " " + args
		if strings.HasPrefix(args, "-") {
			line = strings.Replace(ssh, "ssh ", "ssh "+strings.Fields(args)[0]+" -p "+port+" git@"+host+" ", 1) + " " +
				strings.Fields(args)[1]
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "ramus: this is at https://other") {
			t.Errorf("%q ends with %d, %v: %s", args, code, err, out)
		}
	}
	out, err := stockEnvTry(env, "", "clone", "-q", "ssh://git@"+addr+"/team/a.git", filepath.Join(t.TempDir(), "c"))
	if err == nil || !strings.Contains(out+err.Error(), "ramus: this is at https://other.example.org now") {
		t.Errorf("git clone: %v %s", err, out)
	}
}
