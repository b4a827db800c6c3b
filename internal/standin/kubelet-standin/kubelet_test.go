package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/spdystream"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
	"github.com/ramus-dev/ramus/containers/runner"
	"github.com/ramus-dev/ramus/internal/goroutines"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
)

// apiServer has pods, and keeps what the nodes report.
type apiServer struct {
	t *testing.T

	mu      sync.Mutex // guards the fields below
	there   map[string]bool
	status  map[string]string // the last status by path
	deleted map[string]string // the bodies by path
	watch   chan string
	changed chan struct{} // is closed and replaced when something was reported
}

func newAPIServer(t *testing.T) (*apiServer, *kube.Client) {
	a := &apiServer{t: t, there: map[string]bool{}, status: map[string]string{}, deleted: map[string]string{}, watch: make(chan string, 10),
		changed: make(chan struct{})}
	server := httptest.NewServer(a)
	client, err := kube.New(kube.Config{Server: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.CloseClientConnections()
		server.Close()
	})
	return a, client
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if r.Method == http.MethodGet && path == "/api/v1/pods" {
		if r.URL.Query().Get("fieldSelector") != placed {
			a.t.Errorf("asked for %s", r.URL)
		}
		if r.URL.Query().Get("watch") != "true" {
			io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
			return
		}
		w.(http.Flusher).Flush()
		for {
			select {
			case line := <-a.watch:
				io.WriteString(w, line+"\n")
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() {
		close(a.changed)
		a.changed = make(chan struct{})
	}()
	switch object := strings.TrimSuffix(path, "/status"); r.Method {
	case http.MethodPost:
		var o struct {
			Metadata struct{ Name string } `json:"metadata"`
		}
		if err := json.Unmarshal(body, &o); err != nil {
			a.t.Error(err)
		}
		a.there[path+"/"+o.Metadata.Name] = true
		w.WriteHeader(http.StatusCreated)
	case http.MethodPatch:
		if !a.there[object] {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		a.status[object] = string(body)
	case http.MethodDelete:
		if !a.there[object] {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		delete(a.there, object)
		a.deleted[object] = string(body)
	}
	io.WriteString(w, "{}")
}

// change tells the nodes of a pod.
func (a *apiServer) change(kind string, p map[string]any) {
	a.t.Helper()
	a.mu.Lock()
	m := p["metadata"].(map[string]any)
	a.there["/api/v1/namespaces/boxes/pods/"+m["name"].(string)] = kind != kube.Deleted
	a.mu.Unlock()
	b, err := json.Marshal(map[string]any{"type": kind, "object": p})
	if err != nil {
		a.t.Fatal(err)
	}
	a.watch <- string(b)
}

// await waits until is returns true. It fails the test after a minute.
func (a *apiServer) await(what string, is func() bool) {
	a.t.Helper()
	limit := time.After(time.Minute)
	for {
		a.mu.Lock()
		ok, changed := is(), a.changed
		a.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			a.mu.Lock()
			defer a.mu.Unlock()
			a.t.Fatalf("%s: the nodes report %v and delete %v", what, a.status, a.deleted)
		}
	}
}

// TestKubelet has a node with pods from their start to their end.
func TestKubelet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run here: only root may make the namespaces of pods")
	}
	goroutines.Watch(t)
	dir, bin := t.TempDir(), t.TempDir()
	defer remains.Check(t, dir)
	if err := programs.Into(bin, "cmd/ramus-runner"); err != nil {
		t.Fatal(err)
	}
	box, err := newSandboxes(filepath.Join(dir, "pods"), filepath.Join(bin, "ramus-runner"))
	if err != nil {
		t.Fatal(err)
	}
	a, client := newAPIServer(t)
	ca, certificate := authority(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{client: client, log: slog.New(slog.NewTextHandler(t.Output(), nil)), sandboxes: box, threads: 2, address: "127.0.0.1",
		port: ln.Addr().(*net.TCPAddr).Port, pods: map[string]*pod{}, byName: map[string]*pod{}, nodes: map[string]bool{"n-0": true, "n-1": true},
		label: "n", perNode: 10}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- k.run(ctx, ln, ca, func() { close(ready) }) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := box.close(); err != nil {
			t.Error(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for path, there := range a.there {
			if there && !strings.Contains(path, "/pods/") {
				t.Errorf("%s is left", path)
			}
		}
	}()
	<-ready
	a.await("nodes", func() bool {
		return strings.Contains(a.status["/api/v1/nodes/n-0"], `"type":"Ready"`) && a.there[leases+"/n-1"]
	})

	config, err := json.Marshal(runner.Config{Listen: "unix:" + way.Socket, UID: 1000, GID: 1000, Spool: way.Spool, Sealed: true,
		Alive: way.Program, ClientKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJoXwMOUJVL/5x0dTm5bXCRhAgN6n4Y3R5YCfTQH9mSb"})
	if err != nil {
		t.Fatal(err)
	}
	object := func(name, node string, containers ...string) map[string]any {
		var list []map[string]any
		for _, c := range containers {
			list = append(list, map[string]any{"name": c, "command": []string{way.Program, "runner", string(config)}})
		}
		return map[string]any{"metadata": map[string]any{"name": name, "namespace": "boxes", "uid": "uid-" + name},
			"spec": map[string]any{"nodeName": node, "containers": list}, "status": map[string]any{"phase": "Pending"}}
	}
	const pods = "/api/v1/namespaces/boxes/pods/"
	said := func(name, text string) {
		t.Helper()
		a.await(name+" "+text, func() bool { return strings.Contains(a.status[pods+name], text) })
	}
	one := object("one", "n-1", wayName, taskName)
	a.change(kube.Added, object("elsewhere", "real", wayName, taskName))
	a.change(kube.Added, object("strange", "n-0", "nginx"))
	a.change(kube.Added, one)
	said("strange", `"phase":"Failed"`)
	said("one", `"ready":true`)
	if _, err := os.Stat(filepath.Join(box.dir, "uid-elsewhere")); err == nil {
		t.Error("the pod of another node is started")
	}

	// The runner is reached by an exec in the first container.
	client2 := &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true}
	opening, err := json.Marshal(way.Opening{Session: "s", Engine: "e", Socket: way.Socket})
	if err != nil {
		t.Fatal(err)
	}
	in, out := streams(t, ln.Addr().String(), client2, way.Program, "way", "connect", string(opening))
	for {
		kind, data, err := way.ReadFrame(out, nil)
		if err != nil {
			t.Fatal(err)
		}
		if kind == way.FrameRefused { // the runner starts
			time.Sleep(10 * time.Millisecond)
			in, out = streams(t, ln.Addr().String(), client2, way.Program, "way", "connect", string(opening))
			continue
		}
		if kind != way.FrameHello || len(data) != 8 {
			t.Fatalf("a frame of kind %d: %q", kind, data)
		}
		break
	}
	s := way.NewStream()
	go s.Carry(both{out, in}, 0)
	greeting := make([]byte, 4)
	if _, err := io.ReadFull(s, greeting); err != nil || string(greeting) != "SSH-" {
		t.Errorf("the runner greets with %q, %v", greeting, err)
	}

	// A runner that is killed is the end of its container, and of its connection.
	for _, p := range remains.Of(filepath.Join(box.dir, "uid-one")) {
		if p, err := os.FindProcess(p.PID); err == nil {
			_ = p.Kill()
		}
	}
	said("one", `"exitCode":137`)
	if _, err := io.Copy(io.Discard, s); err != nil {
		t.Errorf("the connection: %v", err)
	}
	s.CloseWrite()

	// One that is to be deleted ends before the API server is told to forget it.
	one["metadata"].(map[string]any)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	a.change(kube.Modified, one)
	a.await("one is deleted", func() bool { return strings.Contains(a.deleted[pods+"one"], `"uid":"uid-one"`) })
	if _, err := os.Stat(filepath.Join(box.dir, "uid-one")); !os.IsNotExist(err) {
		t.Errorf("the folder of a pod is left: %v", err)
	}
	// One that is gone already is deleted by nobody.
	two := object("two", "n-0", wayName, taskName)
	a.change(kube.Added, two)
	said("two", `"ready":true`)
	a.change(kube.Deleted, two)
	for until := time.Now().Add(time.Minute); k.find("boxes", "two") != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("a pod that is gone is kept")
		}
	}
	a.mu.Lock()
	if _, told := a.deleted[pods+"two"]; told {
		t.Error("a pod that is gone is deleted")
	}
	a.mu.Unlock()
	// The end of the nodes is that of their pods.
	a.change(kube.Added, object("three", "n-0", wayName, taskName))
	said("three", `"ready":true`)
}

// streams opens an exec in the first container of the pod one, and returns its stdin and its stdout.
func streams(t *testing.T, address string, config *tls.Config, args ...string) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	c, refused := asked(t, address, config, "/exec/boxes/one/way?"+
		url.Values{"command": args, "input": {"1"}, "output": {"1"}, "error": {"1"}}.Encode(), nil)
	if c == nil {
		t.Fatal(refused)
	}
	conn, err := spdystream.NewConnection(c, false)
	if err != nil {
		t.Fatal(err)
	}
	go conn.Serve(spdystream.NoOpStreamHandler)
	t.Cleanup(func() { conn.Close() })
	opened := map[string]*spdystream.Stream{}
	for _, kind := range []string{"error", "stdin", "stdout", "stderr"} {
		if opened[kind], err = conn.CreateStream(http.Header{"streamType": {kind}}, nil, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"error", "stderr"} {
		go io.Copy(io.Discard, opened[kind]) // a stream that nobody reads blocks the connection
	}
	return opened["stdin"], opened["stdout"]
}

// both is a connection of two streams.
type both struct {
	io.Reader
	io.WriteCloser
}
