package kubernetes

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
)

// fake is an API server with the pods of one namespace. It speaks the API's HTTP, and refuses what the API server
// refuses.
type fake struct {
	t  *testing.T
	ns string
	// refuse, if it is not nil, may answer a request itself, and then returns true.
	refuse func(w http.ResponseWriter, r *http.Request) bool
	// created is called with each new pod, with the fake locked, and may change it.
	created func(p *pod)
	// exec serves the streams of a command.
	exec func(ws *websocket.Conn, pod, container string, args []string)

	mu       sync.Mutex // guards the fields below
	pods     map[string]*pod
	version  int
	expired  bool // the next watch begins at a version that is too old
	watchers map[chan kube.Change]bool
	calls    []string
}

// newFake returns an API server and an engine that uses it. Both end with the test.
func newFake(t *testing.T) (*fake, *Engine) {
	t.Helper()
	f := &fake{t: t, ns: "boxes", pods: map[string]*pod{}, watchers: map[chan kube.Change]bool{}, version: 1}
	f.created = func(p *pod) { p.Spec.NodeName, p.Status.Phase = "node1", "Running" }
	f.exec = greet
	server := httptest.NewServer(f)
	e := &Engine{Cluster: &kube.Config{Server: server.URL}, Namespace: f.ns, Runtime: "registry/ramus:1",
		Image: "registry/task:1"}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	return f, e
}

// dialled returns a pod of a new API server, and a connection to it that exec serves.
func dialled(t *testing.T, exec func(ws *websocket.Conn, pod, container string, args []string)) (
	*fake, *Engine, containers.Container, net.Conn) {
	t.Helper()
	f, e := newFake(t)
	c, err := e.Start(bounded(t), newSpec())
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.exec = exec
	f.mu.Unlock()
	conn, err := e.Dial(bounded(t), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return f, e, c, conn
}

func refusal(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "status": "Failure", "reason": reason,
		"message": message, "code": code})
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.calls = append(f.calls, r.Method+" "+r.URL.Path)
	refuse := f.refuse
	f.mu.Unlock()
	if refuse != nil && refuse(w, r) {
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+f.ns+"/pods")
	if !ok {
		refusal(w, http.StatusNotFound, "NotFound", "the server could not find "+r.URL.Path)
		return
	}
	name, sub, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	switch {
	case sub == "exec":
		f.serveExec(w, r, name)
	case r.Method == http.MethodGet && name == "" && r.URL.Query().Get("watch") == "true":
		f.watch(w, r)
	case r.Method == http.MethodGet && name == "":
		f.list(w, r)
	case r.Method == http.MethodPost && name == "":
		f.create(w, r)
	default:
		f.one(w, r, name)
	}
}

// matches reports whether a pod has the labels of a selector of the forms "key" and "key=value".
func matches(p *pod, selector string) bool {
	for part := range strings.SplitSeq(selector, ",") {
		key, value, exact := strings.Cut(part, "=")
		got, ok := p.Metadata.Labels[key]
		if !ok || exact && got != value {
			return false
		}
	}
	return true
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list podList
	list.Metadata.ResourceVersion = strconv.Itoa(f.version)
	for _, p := range f.pods {
		if matches(p, r.URL.Query().Get("labelSelector")) {
			list.Items = append(list.Items, *p)
		}
	}
	json.NewEncoder(w).Encode(list)
}

func (f *fake) watch(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if f.expired {
		f.expired = false
		f.mu.Unlock()
		refusal(w, http.StatusGone, "Expired", "too old resource version")
		return
	}
	if r.URL.Query().Get("resourceVersion") != strconv.Itoa(f.version) {
		f.mu.Unlock()
		refusal(w, http.StatusGone, "Expired", "too old resource version")
		return
	}
	changes := make(chan kube.Change, 100)
	f.watchers[changes] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, changes)
		f.mu.Unlock()
	}()
	flusher := w.(http.Flusher)
	w.WriteHeader(http.StatusOK)
	flusher.Flush()
	for {
		select {
		case c, ok := <-changes:
			if !ok {
				return
			}
			json.NewEncoder(w).Encode(c)
			flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// endWatches ends all watches, as an API server does from time to time.
func (f *fake) endWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.watchers {
		close(c)
		delete(f.watchers, c)
	}
}

// tell gives a change to all watches. The fake is locked.
func (f *fake) tell(kind string, p *pod) {
	f.version++
	p.Metadata.ResourceVersion = strconv.Itoa(f.version)
	b, err := json.Marshal(p)
	if err != nil {
		f.t.Error(err)
	}
	for c := range f.watchers {
		c <- kube.Change{Type: kind, Object: b}
	}
}

// change changes a pod, as a kubelet does.
func (f *fake) change(name string, how func(*pod)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(f.pods[name])
	f.tell(kube.Modified, f.pods[name])
}

// drop deletes a pod without telling a watch that is not there.
func (f *fake) drop(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[name]
	delete(f.pods, name)
	f.tell(kube.Deleted, p)
}

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	var p pod
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		refusal(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pods[p.Metadata.Name] != nil {
		refusal(w, http.StatusConflict, "AlreadyExists", "pods \""+p.Metadata.Name+"\" already exists")
		return
	}
	if r.URL.Query().Get("dryRun") == "All" {
		json.NewEncoder(w).Encode(p)
		return
	}
	now := time.Unix(int64(f.version), 0)
	p.Metadata.CreationTimestamp, p.Status.Phase = &now, "Pending"
	f.created(&p)
	f.pods[p.Metadata.Name] = &p
	f.tell(kube.Added, &p)
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(p)
}

func (f *fake) one(w http.ResponseWriter, r *http.Request, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[name]
	if p == nil {
		refusal(w, http.StatusNotFound, "NotFound", "pods \""+name+"\" not found")
		return
	}
	switch r.Method {
	case http.MethodDelete:
		if r.URL.Query().Get("gracePeriodSeconds") != "0" {
			f.t.Errorf("pod %s is deleted with a period of grace", name)
		}
		delete(f.pods, name)
		f.tell(kube.Deleted, p)
	case http.MethodPatch:
		if got := r.Header.Get("Content-Type"); got != kube.MergePatch {
			refusal(w, http.StatusUnsupportedMediaType, "UnsupportedMediaType", got)
			return
		}
		var patch struct{ Metadata meta }
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			refusal(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
		for k, v := range patch.Metadata.Annotations {
			p.Metadata.Annotations[k] = v
		}
		f.tell(kube.Modified, p)
	}
	json.NewEncoder(w).Encode(p)
}

func (f *fake) serveExec(w http.ResponseWriter, r *http.Request, name string) {
	f.mu.Lock()
	p := f.pods[name]
	running := p != nil && p.Status.Phase == "Running"
	f.mu.Unlock()
	switch {
	case p == nil:
		refusal(w, http.StatusNotFound, "NotFound", "pods \""+name+"\" not found")
		return
	case !running:
		refusal(w, http.StatusInternalServerError, "InternalError", "container not found")
		return
	}
	up := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		f.t.Error(err)
		return
	}
	defer ws.Close()
	q := r.URL.Query()
	f.exec(ws, name, q.Get("container"), q["command"])
}

func message(stream byte, data string) []byte { return append([]byte{stream}, data...) }

// greet is a runner's greeting, and silence until the client goes.
func greet(ws *websocket.Conn, _, _ string, _ []string) {
	var b bytes.Buffer
	w := &way.FrameWriter{W: &b}
	w.Frame(way.FrameHello, make([]byte, 8))
	w.Frame(way.FrameData, []byte("SSH-2.0-runner\r\n"))
	ws.WriteMessage(websocket.BinaryMessage, message(1, b.String()))
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			return
		}
	}
}

// exitStatus is the last message of a command.
func exitStatus(code int) []byte {
	if code == 0 {
		return message(3, `{"status":"Success"}`)
	}
	return message(3, `{"status":"Failure","reason":"NonZeroExitCode",`+
		`"details":{"causes":[{"reason":"ExitCode","message":"`+strconv.Itoa(code)+`"}]}}`)
}

func (f *fake) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

func (f *fake) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name := range f.pods {
		names = append(names, name)
	}
	return names
}
