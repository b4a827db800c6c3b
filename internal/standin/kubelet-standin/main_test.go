package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/spdystream"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
	"github.com/ramus-dev/ramus/containers/runner"
	"github.com/ramus-dev/ramus/internal/goroutines"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == sandboxCommand {
		fmt.Fprintln(os.Stderr, enterSandbox(os.Args[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// authority makes an authority, and a certificate of a client that it has signed.
func authority(t *testing.T) (ca []byte, client tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, own, own, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "apiserver"}, NotBefore: own.NotBefore,
		NotAfter: own.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	signed, err := x509.CreateCertificate(rand.Reader, leaf, own, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}
}

// port serves the port of a node with one pod, whose first container runs and whose second does not. It returns the address, and the
// configuration of a client that may ask.
func port(t *testing.T) (p *pod, address string, config *tls.Config) {
	t.Helper()
	goroutines.Watch(t)
	ca, client := authority(t)
	k := &kubelet{log: slog.New(slog.DiscardHandler), address: "127.0.0.1", byName: map[string]*pod{}}
	var o object
	o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID = "boxes", "one", "uid-1"
	p = newPod(k, o, 1)
	p.folder = t.TempDir()
	for _, v := range volumes {
		if err := os.Mkdir(filepath.Join(p.folder, v.name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.sessions = way.NewServer(p.dial)
	p.running[wayName] = true
	k.byName[p.name()] = p
	server, err := newServer(k, ca)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.ServeTLS(ln, "", "")
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return p, ln.Addr().String(), &tls.Config{Certificates: []tls.Certificate{client}, InsecureSkipVerify: true}
}

// asked asks for a command as an API server does. Returns the connection after an upgrade, and otherwise the refusal.
func asked(t *testing.T, address string, config *tls.Config, path string, change func(*http.Request)) (net.Conn, string) {
	t.Helper()
	c, err := tls.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	r, err := http.NewRequest(http.MethodPost, "https://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"},
		"X-Stream-Protocol-Version": {"v5.channel.k8s.io", "v4.channel.k8s.io"}}
	if change != nil {
		change(r)
	}
	if err := r.Write(c); err != nil {
		t.Fatal(err)
	}
	// One byte at a time, because the rest is SPDY.
	var head bytes.Buffer
	for one := make([]byte, 1); !bytes.HasSuffix(head.Bytes(), []byte("\r\n\r\n")); {
		if _, err := c.Read(one); err != nil {
			return nil, err.Error()
		}
		head.Write(one)
	}
	if strings.HasPrefix(head.String(), "HTTP/1.1 101 ") {
		return c, ""
	}
	text := make([]byte, 200)
	n, _ := c.Read(text)
	return nil, head.String()[9:12] + " " + strings.TrimSpace(string(text[:n]))
}

// The port of a node refuses what a kubelet refuses.
func TestRefusals(t *testing.T) {
	_, address, config := port(t)
	const good = "/exec/boxes/one/way?command=x&output=1"
	for _, test := range []struct {
		path   string
		change func(*http.Request)
		want   string
	}{
		{path: "/exec/boxes/two/way?command=x", want: "404 pod does not exist"},
		{path: "/exec/other/one/way?command=x", want: "404 pod does not exist"},
		{path: "/exec/boxes/one/uid-2/way?command=x", want: "404 pod does not exist"},
		{path: "/exec/boxes/one/task?command=x", want: `500 unable to upgrade connection: container not found ("task")`},
		{path: "/exec/boxes/one/side0?command=x", want: `500 unable to upgrade connection: container not found ("side0")`},
		{path: "/exec/boxes/one/way?output=1", want: "400 you must specify at least 1 of command"},
		{path: good, change: func(r *http.Request) { r.Header.Del("Upgrade") }, want: "400 you must upgrade"},
		{path: good, change: func(r *http.Request) { r.Header.Set("X-Stream-Protocol-Version", "v5.channel.k8s.io") }, want: "403 no protocol"},
		{path: good, change: func(r *http.Request) { r.Method = http.MethodDelete }, want: "405"},
		{path: "/pods", want: "404"},
	} {
		if _, got := asked(t, address, config, test.path, test.change); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q; want %q", test.path, got, test.want)
		}
	}
	_, client := authority(t)
	for name, config := range map[string]*tls.Config{"no certificate": {InsecureSkipVerify: true},
		"a certificate of another authority": {InsecureSkipVerify: true, Certificates: []tls.Certificate{client}}} {
		c, err := tls.Dial("tcp", address, config)
		if err == nil { // the refusal comes after the client's part of the handshake
			c.SetDeadline(time.Now().Add(time.Minute))
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "tls: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// performed performs a command in the first container of the pod of port, and returns its outputs and its status.
func performed(t *testing.T, address string, config *tls.Config, input bool, args ...string) (out, errs, status string) {
	t.Helper()
	query := url.Values{"command": args, "output": {"1"}, "error": {"1"}}
	if input {
		query.Set("input", "1")
	}
	c, refused := asked(t, address, config, "/exec/boxes/one/way?"+query.Encode(), nil)
	if c == nil {
		t.Fatal(refused)
	}
	conn, err := spdystream.NewConnection(c, false)
	if err != nil {
		t.Fatal(err)
	}
	go conn.Serve(spdystream.NoOpStreamHandler)
	defer conn.Close()
	read := map[string]chan string{}
	for _, kind := range []string{"error", "stdin", "stdout", "stderr"} {
		if kind == "stdin" && !input {
			continue
		}
		s, err := conn.CreateStream(http.Header{"streamType": {kind}}, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		if kind == "stdin" {
			continue
		}
		whole := make(chan string, 1)
		read[kind] = whole
		go func() {
			b, _ := io.ReadAll(s)
			whole <- string(b)
		}()
	}
	return <-read["stdout"], <-read["stderr"], <-read["error"]
}

// Commands of the first container end with the status that a kubelet gives, and others are not simulated.
func TestCommands(t *testing.T) {
	p, address, config := port(t)
	if err := os.WriteFile(filepath.Join(p.folder, "work", "a"), make([]byte, 5000), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _, status := performed(t, address, config, false, way.Program, "way", "usage", "10", containers.WorkDir)
	if !strings.Contains(out, `"Files":`) || !strings.Contains(status, `"Success"`) {
		t.Errorf("usage: %q, %q", out, status)
	}
	for _, args := range [][]string{{way.Program, "way", "usage", "10", "/etc"}, {way.Program, "way", "names"},
		{way.Program, "way", "usage", "10", containers.WorkDir + "/../etc"}, {way.Program, "way", "connect", "{}"}} {
		_, errs, status := performed(t, address, config, true, args...)
		if errs == "" || !strings.Contains(status, `"NonZeroExitCode"`) || !strings.Contains(status, `"125"`) {
			t.Errorf("%q: %q, %q", args, errs, status)
		}
	}
	if _, _, status := performed(t, address, config, false, "sh", "-c", "true"); !strings.Contains(status, "InternalError") {
		t.Errorf("a shell: %q", status)
	}
}

// A pod is a runner that answers, alone in namespaces of its own, and leaves nothing when it is killed.
func TestSandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run here: only root may make the namespaces of pods")
	}
	dir, bin := t.TempDir(), t.TempDir()
	defer remains.Check(t, dir)
	if err := programs.Into(bin, "cmd/ramus-runner"); err != nil {
		t.Fatal(err)
	}
	box, err := newSandboxes(filepath.Join(dir, "pods"), filepath.Join(bin, "ramus-runner"))
	if err != nil {
		t.Fatal(err)
	}
	folder, err := box.folder("uid-1")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(runner.Config{Listen: "unix:" + way.Socket, UID: 1000, GID: 1000, Spool: way.Spool, Sealed: true, Threads: 2,
		Alive: way.Program, ClientKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJoXwMOUJVL/5x0dTm5bXCRhAgN6n4Y3R5YCfTQH9mSb"})
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := box.start(folder, []string{way.Program, "runner", string(text)})
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{folder: folder}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	var c net.Conn
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c, err = p.dial(way.Socket); err == nil {
			break
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(filepath.Join(folder, "said"))
			t.Fatalf("the runner ended: %s", said)
		default:
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	greeting := make([]byte, 4)
	if _, err := io.ReadFull(c, greeting); err != nil || string(greeting) != "SSH-" {
		t.Errorf("it greets with %q, %v", greeting, err)
	}
	if _, err := p.dial("/etc/passwd"); err == nil {
		t.Error("a path outside of the volumes is dialled")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	<-ended
	if err := os.RemoveAll(folder); err != nil {
		t.Error(err)
	}
	if err := box.close(); err != nil {
		t.Error(err)
	}
}
