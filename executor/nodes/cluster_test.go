package nodes_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/cluster"
	"github.com/ramus-dev/ramus/executor/nodes/programs"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/standin/cloudtest"
)

// api is the part of an API server that nodes need. It keeps objects as it got them.
type api struct {
	t  *testing.T
	mu sync.Mutex // guards all below

	down    bool
	nodes   map[string]object
	beats   map[string]time.Time
	pods    map[string]string // key of the caller, by node
	secrets map[string]object
}

type object = map[string]any

// joined gives the world a cluster.
func (w *world) joined() *api {
	a := &api{t: w.t, nodes: map[string]object{}, beats: map[string]time.Time{}, pods: map[string]string{},
		secrets: map[string]object{}}
	s := httptest.NewServer(http.HandlerFunc(a.serve))
	w.t.Cleanup(s.Close)
	client, err := kube.New(kube.Config{Server: s.URL})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(client.Close)
	w.Cluster = &cluster.Cluster{API: client, Namespace: "ramus-containers", Server: "https://10.0.0.1:6443", CA: []byte("PEM")}
	w.Programs = &programs.Programs{URL: w.URL, Key: "ssh-ed25519 AAAA"}
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var in object
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&in)
	}
	reply := func(status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	list := []object{}
	node, isNode := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	secret, isSecret := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/kube-system/secrets/bootstrap-token-")
	switch {
	case a.down:
		reply(503, object{"kind": "Status", "message": "etcd does not answer"})
	case r.URL.Path == "/api/v1/nodes":
		for _, n := range a.nodes {
			list = append(list, n)
		}
		reply(200, object{"items": list})
	case strings.HasSuffix(r.URL.Path, "/leases"):
		for name, at := range a.beats {
			list = append(list, object{"metadata": object{"name": name}, "spec": object{"renewTime": at}})
		}
		reply(200, object{"items": list})
	case strings.HasSuffix(r.URL.Path, "/ramus-containers/pods"):
		for key, node := range a.pods {
			list = append(list, object{"metadata": object{"annotations": object{"ramus.dev/key": key}},
				"spec": object{"nodeName": node}, "status": object{"phase": "Running"}})
		}
		reply(200, object{"items": list})
	case strings.HasSuffix(r.URL.Path, "/secrets") && r.Method == http.MethodPost:
		id := in["stringData"].(object)["token-id"].(string)
		a.secrets[id] = in
		reply(201, in)
	case isSecret && r.Method == http.MethodDelete && a.secrets[secret] != nil:
		delete(a.secrets, secret)
		reply(200, object{})
	case isNode && r.Method == http.MethodDelete && a.nodes[node] != nil:
		delete(a.nodes, node)
		reply(200, object{})
	case isNode && r.Method == http.MethodPatch && a.nodes[node] != nil:
		a.nodes[node]["spec"] = in["spec"]
		reply(200, a.nodes[node])
	default:
		reply(404, object{"kind": "Status", "reason": "NotFound", "message": "not found"})
	}
}

// beat has the kubelet of a node report, as the condition Ready says.
func (a *api) beat(w *world, name, ready string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beats[name] = w.clock.Now()
	a.nodes[name] = object{"metadata": object{"name": name, "creationTimestamp": w.clock.Now()}, "spec": object{},
		"status": object{"conditions": []object{{"type": "Ready", "status": ready, "reason": "KubeletSays", "message": "so"}},
			"nodeInfo": object{"kubeletVersion": "v1.34.1", "operatingSystem": "linux", "architecture": "arm64"}}}
}

func (a *api) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (w *world) look() {
	w.t.Helper()
	if err := w.Look(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// kinds returns the kinds of the events of a node.
func (w *world) kinds(id string) string {
	w.t.Helper()
	h, err := w.History(id)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, e := range h.Events {
		all = append(all, e.Kind)
	}
	return strings.Join(all, " ")
}

// TestJoin takes a node from its order to the cluster, through all kinds of health, and out of the cluster.
func TestJoin(t *testing.T) {
	w := open(t)
	a := w.joined()
	n := w.add()
	a.set(func() { a.down = true })
	if _, err := w.Redeem(t.Context(), w.token(), "192.0.2.1"); !errors.Is(err, nodes.ErrCloud) {
		t.Errorf("without an API server: %v", err)
	}
	a.set(func() { a.down = false })
	b, err := w.Redeem(t.Context(), w.token(), "192.0.2.1")
	if err != nil || b.Cluster == nil || b.Cluster.Server != "https://10.0.0.1:6443" || string(b.Cluster.CA) != "PEM" {
		t.Fatalf("%+v, error %v", b, err)
	}
	if _, err := w.Redeem(t.Context(), w.token(), "192.0.2.1"); !errors.Is(err, record.ErrNotFound) || len(a.secrets) != 1 {
		t.Errorf("a second redemption: %v, %d tokens", err, len(a.secrets))
	}
	if err := w.Ready(n.ID, b.CallbackToken); err != nil {
		t.Fatal(err)
	}
	w.look()
	w.is(n.ID, nodes.StateCreating, "") // the kubelet is not there yet
	a.beat(w, n.ID, "Unknown")
	w.look()
	w.is(n.ID, nodes.StateCreating, "")
	for _, step := range []struct {
		ready  string // "" sends no beat
		after  time.Duration
		health nodes.Health
	}{
		{"True", 0, nodes.HealthHealthy}, {"False", 0, nodes.HealthUnhealthy}, {"True", time.Minute, nodes.HealthHealthy},
		{"Unknown", 0, nodes.HealthStale}, {"", 3*time.Minute + 1, nodes.HealthStale},
		{"", 6 * time.Minute, nodes.HealthUnhealthy}, {"True", 0, nodes.HealthHealthy},
	} {
		if step.ready != "" {
			a.beat(w, n.ID, step.ready)
		}
		w.clock.Add(step.after)
		w.look()
		w.is(n.ID, nodes.StateRunning, step.health)
	}
	a.set(func() { delete(a.nodes, n.ID) })
	w.look()
	w.is(n.ID, nodes.StateRunning, nodes.HealthUnhealthy)
	want := "ordered creating created bootstrapped booted running unhealthy healthy stale unhealthy healthy unhealthy"
	if got := w.kinds(n.ID); got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	a.beat(w, n.ID, "True")
	if _, err := w.Stop(t.Context(), n.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	w.machines(0)
	if len(a.nodes)+len(a.secrets) != 0 {
		t.Errorf("the cluster has %v %v", a.nodes, a.secrets)
	}
}

// TestForeignNode keeps the events of a node that joined the cluster without the server, which cannot be stopped.
func TestForeignNode(t *testing.T) {
	w := open(t)
	a := w.joined()
	for _, name := range []string{"worker.example", "local", "../x"} {
		a.beat(w, name, "True")
	}
	w.look()
	all := w.List()
	if len(all) != 1 || all[0].Source != nodes.SourceCluster || all[0].Member.Platform != "linux arm64" {
		t.Fatalf("nodes %+v", all)
	}
	if _, err := w.Stop(t.Context(), "worker.example", "ada"); !errors.Is(err, record.ErrConflict) {
		t.Errorf("stopped: %v", err)
	}
	a.set(func() { clear(a.nodes) })
	w.look()
	w.is("worker.example", nodes.StateStopped, "")
	w.reopen()
	a.beat(w, "worker.example", "True")
	w.look()
	w.is("worker.example", nodes.StateRunning, nodes.HealthHealthy)
	if got := w.kinds("worker.example"); got != "joined left joined" {
		t.Errorf("events %q", got)
	}
}

// TestRoom orders one node for containers without room, and removes it when it has been idle.
func TestRoom(t *testing.T) {
	w := open(t)
	a := w.joined()
	w.IdleAfter = 30 * time.Minute
	w.cloud.Fail(cloudtest.Faults{Full: true})
	w.Start()
	defer w.Close()
	until := func(want string) {
		t.Helper()
		for range 500 {
			if strings.Contains(w.Room(), want) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%s, want %q", w.Room(), want)
	}
	until("server location is full")
	w.cloud.Fail(cloudtest.Faults{})
	until("server location is full") // it does not ask again at once
	w.machines(0)
	w.clock.Add(time.Minute)
	until("starts")
	var n nodes.Node
	for range 500 {
		all := w.List()
		if n = all[len(all)-1]; n.Server != "" {
			break
		}
		time.Sleep(10 * time.Millisecond) // the order is on its way
	}
	w.machines(1)
	if !n.Automatic || n.State != nodes.StateCreating {
		t.Errorf("node %+v", n)
	}
	if _, err := w.Redeem(t.Context(), w.token(), ""); err != nil {
		t.Fatal(err)
	}
	a.beat(w, n.ID, "True")
	a.set(func() { a.pods["run:x"], a.pods["pool:y"] = n.ID, n.ID })
	for range 3 {
		w.clock.Add(20 * time.Minute)
		a.beat(w, n.ID, "True")
		w.look()
		w.is(n.ID, nodes.StateRunning, nodes.HealthHealthy)
	}
	a.set(func() { delete(a.pods, "run:x") }) // that of the pool does not count
	for _, pause := range []time.Duration{29 * time.Minute, time.Minute} {
		a.beat(w, n.ID, "True")
		w.look()
		w.machines(1)
		w.clock.Add(pause)
	}
	a.beat(w, n.ID, "True")
	w.look()
	w.is(n.ID, nodes.StateStopped, "")
	w.machines(0)
}

// TestBring makes a machine of a person a node, which costs the cloud no request.
func TestBring(t *testing.T) {
	w := open(t)
	a := w.joined()
	n, script, err := w.Bring(t.Context(), "root@192.0.2.9", "ada")
	if err != nil || n.State != nodes.StateCreating || !strings.Contains(script, "apt-get") {
		t.Fatal(n, err)
	}
	if strings.Contains(script, "nftables") {
		t.Error("the script closes a machine although nobody may connect")
	}
	a.beat(w, n.ID, "True")
	w.look()
	w.is(n.ID, nodes.StateRunning, nodes.HealthHealthy)
	w.sweep()
	if _, err := w.Stop(t.Context(), n.ID, "ada"); err != nil || w.cloud.Requests() > 1 {
		t.Error(err, w.cloud.Requests())
	}
	w.is(n.ID, nodes.StateStopped, "")
	late, _, err := w.Bring(t.Context(), "root@192.0.2.9", "ada")
	if err != nil {
		t.Fatal(err)
	}
	w.clock.Add(16 * time.Minute)
	w.sweep()
	w.is(late.ID, nodes.StateError, "")
}
