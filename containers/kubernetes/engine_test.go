package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
	"github.com/ramus-dev/ramus/containers/runner"
)

func newSpec() containers.Spec {
	return containers.Spec{Key: "run:Fancy_Mallard", Owner: "owner", ClientKey: "ssh-ed25519 AAAA",
		Env:    []string{"A=b"},
		Labels: map[string]string{"repo": "app"}}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestStart(t *testing.T) {
	f, e := newFake(t)
	e.UserNamespaces = true
	c, err := e.Start(bounded(t), newSpec())
	if err != nil {
		t.Fatal(err)
	}
	if c.Key != "run:Fancy_Mallard" || !c.Running || c.Labels["repo"] != "app" ||
		!strings.HasPrefix(c.ID, "ramus-run-fancy-mallard-") {
		t.Errorf("started %+v", c)
	}
	f.mu.Lock()
	p := f.pods[c.ID]
	f.mu.Unlock()
	s := p.Spec
	if *s.AutomountServiceAccountToken || *s.EnableServiceLinks || *s.HostUsers || s.HostNetwork ||
		s.RestartPolicy != "Never" ||
		s.SecurityContext.SeccompProfile.Type != "RuntimeDefault" || s.DNSPolicy != "None" {
		t.Errorf("the pod has fewer walls than it should: %+v", s)
	}
	if len(s.Containers) != 2 || s.Containers[0].Name != wayName || s.Containers[1].Name != taskName {
		t.Fatalf("containers are %+v", s.Containers)
	}
	for _, c := range s.Containers {
		if !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation ||
			!slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}) || c.Resources.Limits["memory"] == "" {
			t.Errorf("container %s has %+v", c.Name, c)
		}
	}
	if slices.Contains(s.Containers[1].SecurityContext.Capabilities.Add, "NET_ADMIN") {
		t.Error("the task may change the network")
	}
	var config runner.Config
	if err := json.Unmarshal([]byte(s.Containers[1].Command[2]), &config); err != nil || !config.Sealed ||
		!config.UserPIDs ||
		!slices.Equal(config.Env, []string{"A=b"}) {
		t.Errorf("the runner is told %+v, %v", config, err)
	}
	list, err := e.List(t.Context(), "owner")
	if err != nil || len(list) != 1 || list[0].ID != c.ID || !list[0].Running {
		t.Errorf("listed %+v, %v", list, err)
	}
	if list, err := e.List(t.Context(), "someone else"); err != nil || len(list) != 0 {
		t.Errorf("another owner has %+v, %v", list, err)
	}
	if err := e.Assign(t.Context(), c.ID, "conv:b", map[string]string{"repo": "web"}); err != nil {
		t.Fatal(err)
	}
	if list, err := e.List(t.Context(), "owner"); err != nil || list[0].Key != "conv:b" ||
		list[0].Labels["repo"] != "web" {
		t.Errorf("assigned as %+v, %v", list, err)
	}
	if err := e.Remove(bounded(t), c.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(bounded(t), c.ID); err != nil {
		t.Errorf("a pod that does not exist: %v", err)
	}
	if _, err := e.Dial(bounded(t), c.ID); !errors.Is(err, containers.ErrGone) {
		t.Errorf("dialled after its end: %v", err)
	}
	if err := e.Assign(t.Context(), c.ID, "conv:b", nil); !errors.Is(err, containers.ErrGone) {
		t.Errorf("assigned after its end: %v", err)
	}
}

// waiting returns a change of a pod whose containers wait for their images. A task whose first container waits has ended, because
// it has no program.
func waiting(task, first string) func(p *pod) {
	return func(p *pod) {
		p.Spec.NodeName = "node1"
		states := map[string]string{taskName: `{"waiting":{"reason":"` + task + `","message":"no such image"}}`}
		if first != "" {
			states[wayName] = `{"waiting":{"reason":"` + first + `","message":"no such image"}}`
			states[taskName] = `{"terminated":{"exitCode":128,"reason":"StartError","message":"no such file"}}`
		}
		for name, state := range states {
			var s containerStatus
			_ = json.Unmarshal([]byte(`{"name":"`+name+`","state":`+state+`}`), &s)
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
		}
	}
}

func TestStartHasTheReasonOfTheCluster(t *testing.T) {
	defer func(d time.Duration) { stuckWait = d }(stuckWait)
	stuckWait = 0
	for _, test := range []struct {
		name string
		how  func(p *pod)
		want string
	}{
		{"image", waiting("ImagePullBackOff", ""), "no image for its container task: registry/task:1: ImagePullBackOff: no such image"},
		{"image of a wrong name", waiting("InvalidImageName", ""), "registry/task:1: InvalidImageName: no such image"},
		{"image of the first container", waiting("", "ErrImagePull"), "no image for its container way: registry/ramus:1: ErrImagePull: no such image"},
		{"evicted", func(p *pod) {
			p.Spec.NodeName, p.Status.Phase, p.Status.Reason, p.Status.Message = "node1", "Failed", "Evicted",
				"the node was low on memory"
		}, "Evicted: the node was low on memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, e := newFake(t)
			f.created = test.how
			_, err := e.Start(bounded(t), newSpec())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Start: %v", err)
			}
			if lost := errors.Is(err, containers.ErrGone); lost != (test.name == "evicted") {
				t.Errorf("the container counts as lost: %t", lost)
			}
			if left := f.names(); len(left) > 0 {
				t.Errorf("pods %s are left", left)
			}
		})
	}
}

func TestStartWithoutRoomSaysWhatItWaitsFor(t *testing.T) {
	f, e := newFake(t)
	f.created = func(p *pod) {
		p.Status.Conditions = []condition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable",
			Message: "0/1 nodes: too little memory"}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := e.Start(ctx, newSpec())
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "too little memory") {
		t.Errorf("Start: %v", err)
	}
	if left := f.names(); len(left) > 0 {
		t.Errorf("pods %s are left", left)
	}
}

func TestLostAnswerLeavesNoPod(t *testing.T) {
	shorten(t, &createWait, 300*time.Millisecond)
	f, e := newFake(t)
	f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		f.create(discard{http.Header{}}, r)
		panic(http.ErrAbortHandler) // it was created, and the client does not learn it
	}
	if _, err := e.Start(bounded(t), newSpec()); !errors.Is(err, containers.ErrUnavailable) {
		t.Errorf("Start: %v", err)
	}
	if left := f.names(); len(left) > 0 {
		t.Errorf("pods %s are left", left)
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// A pod that ends closes its connections, also if the watch missed it.
func TestEndOfAPodClosesItsConnections(t *testing.T) {
	for _, test := range []struct {
		name, want string
		end        func(f *fake, id string)
	}{
		{"evicted", "Evicted", func(f *fake, id string) {
			f.change(id, func(p *pod) { p.Status.Phase, p.Status.Reason = "Failed", "Evicted" })
		}},
		{"drained", "node is shutting down", func(f *fake, id string) {
			f.change(id, func(p *pod) {
				now := time.Now()
				p.Metadata.DeletionTimestamp = &now
				p.Status.Conditions = []condition{{Type: "DisruptionTarget", Status: "True",
					Reason:  "TerminationByKubelet",
					Message: "node is shutting down"}}
			})
		}},
		{"deleted", "", func(f *fake, id string) { f.drop(id) }},
		{"deleted while no watch ran", "", func(f *fake, id string) {
			f.mu.Lock()
			f.expired = true
			delete(f.pods, id)
			f.version++
			f.mu.Unlock()
			f.endWatches()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, e, c, conn := dialled(t, greet)
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			test.end(f, c.ID)
			if _, err := io.Copy(io.Discard, conn); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the connection does not end as a lost one: %v", err)
			}
			_, err := e.Dial(bounded(t), c.ID)
			if !errors.Is(err, containers.ErrGone) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("dialled again: %v", err)
			}
		})
	}
}

func TestKindsOfErrors(t *testing.T) {
	for _, test := range []struct {
		name        string
		refuse      func(w http.ResponseWriter, r *http.Request) bool
		unavailable bool
	}{
		{"forbidden", func(w http.ResponseWriter, r *http.Request) bool {
			refusal(w, http.StatusForbidden, "Forbidden", "pods is forbidden")
			return true
		}, false},
		{"too many requests", func(w http.ResponseWriter, r *http.Request) bool {
			refusal(w, http.StatusTooManyRequests, "TooManyRequests", "later")
			return true
		}, true},
		{"etcd is away", func(w http.ResponseWriter, r *http.Request) bool {
			refusal(w, http.StatusInternalServerError, "InternalError", "etcdserver: leader changed")
			return true
		}, true},
		{"a proxy", func(w http.ResponseWriter, r *http.Request) bool {
			http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
			return true
		}, true},
		{"hangs up", func(w http.ResponseWriter, r *http.Request) bool { panic(http.ErrAbortHandler) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, e := newFake(t)
			f.refuse = test.refuse
			_, err := e.List(bounded(t), "owner")
			if err == nil || errors.Is(err, containers.ErrUnavailable) != test.unavailable ||
				errors.Is(err, containers.ErrGone) {
				t.Errorf("List: %v", err)
			}
		})
	}
}

func TestTemplate(t *testing.T) {
	parse := func(text string) (template, error) {
		var object podTemplate
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		return newTemplate(object)
	}
	got, err := parse(`{"template":{"metadata":{"labels":{"team":"red"}},
		"spec":{"containers":[{"name":"x"}],"restartPolicy":"Always",
		"nodeSelector":{"pool":"ramus"},"tolerations":[{"key":"ramus","operator":"Exists"}],
		"imagePullSecrets":[{"name":"s"}],"runtimeClassName":"gvisor"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	r := recipe{namespace: "boxes", runtime: "ramus", template: got}
	p, err := r.task(newSpec(), "task")
	if err != nil {
		t.Fatal(err)
	}
	if p.Metadata.Labels["team"] != "red" || p.Metadata.Labels[labelKind] != kindTask ||
		p.Spec.RuntimeClassName != "gvisor" ||
		p.Spec.RestartPolicy != "Never" || len(p.Spec.Tolerations) != 3 ||
		!strings.Contains(string(p.Spec.ImagePullSecrets), `"s"`) {
		t.Errorf("the pod is %+v", p)
	}
	if again, err := r.task(newSpec(), "task"); err != nil || len(again.Spec.Tolerations) != 3 ||
		len(got.spec.Tolerations) != 1 {
		t.Errorf("the template was changed: %+v, %v", got.spec.Tolerations, err)
	}
	for _, field := range []string{`"hostNetwork":true`, `"hostPID":true`, `"volumes":[]`,
		`"serviceAccountName":"admin"`} {
		if _, err := parse(`{"template":{"spec":{` + field + `}}}`); err == nil {
			t.Errorf("a template with %s is accepted", field)
		}
	}
}

// serveSidecar plays `way sidecar`: it echoes its input to stdout, and ends with a report.
func serveSidecar(ws *websocket.Conn, report string) {
	out := func(kind byte, data string) {
		var b bytes.Buffer
		(&way.FrameWriter{W: &b}).Frame(kind, []byte(data))
		ws.WriteMessage(websocket.BinaryMessage, append([]byte{1}, b.Bytes()...))
	}
	out(way.FrameReady, "")
	var in bytes.Buffer
	for {
		_, m, err := ws.ReadMessage()
		if err != nil {
			return
		}
		if m[0] == 0 {
			in.Write(m[1:])
		}
		for {
			rest := bytes.NewReader(in.Bytes())
			kind, data, err := way.ReadFrame(rest, nil)
			if err != nil {
				break
			}
			in.Next(in.Len() - rest.Len())
			if kind == way.FrameInput {
				out(way.FrameStdout, string(data))
				continue
			}
			out(way.FrameStderr, "done")
			out(way.FrameReport, report)
			ws.WriteMessage(websocket.BinaryMessage, exitStatus(0))
			return
		}
	}
}

func TestRunSidecar(t *testing.T) {
	f, e := newFake(t)
	e.Side = Side{Image: "registry/browser:1", Count: 2}
	report := `{"Code":7,"OOM":false,"Memory":1000}`
	f.exec = func(ws *websocket.Conn, pod, container string, args []string) {
		switch {
		case args[2] == "connect":
			greet(ws, pod, container, args)
		case args[2] == "sidecar" && container == "side0":
			ws.WriteMessage(websocket.BinaryMessage, exitStatus(way.Busy)) // of another process
		case args[2] == "sidecar":
			serveSidecar(ws, report)
		default:
			ws.WriteMessage(websocket.BinaryMessage, exitStatus(0))
		}
	}
	c, err := e.Start(bounded(t), newSpec())
	if err != nil {
		t.Fatal(err)
	}
	run := func() (string, containers.SidecarExit, error) {
		var out bytes.Buffer
		exit, err := e.RunSidecar(bounded(t), c.ID,
			containers.Sidecar{Owner: "owner", Key: "browser:x", Args: []string{"cat"},
				Stdin: strings.NewReader("some input"), Stdout: &out})
		return out.String(), exit, err
	}
	if out, exit, err := run(); err != nil || out != "some input" || exit.Code != 7 || exit.Memory != 1000 {
		t.Errorf("%q, %+v, %v", out, exit, err)
	}
	report = `{"Code":127,"Error":"no such file"}`
	if _, _, err := run(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a program that is not there: %v", err)
	}
	report = `{"Code":-9}`
	if _, _, err := run(); err == nil {
		t.Error("a report that no sidecar writes is believed")
	}
	_, err = e.RunSidecar(bounded(t), c.ID, containers.Sidecar{Owner: "owner", Key: "x", Args: []string{"cat"},
		Image: "another"})
	if !errors.Is(err, containers.ErrLacks) {
		t.Errorf("another image: %v", err)
	}
	if err := e.Remove(bounded(t), c.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(); !errors.Is(err, containers.ErrGone) {
		t.Errorf("next to a container that is gone: %v", err)
	}
}

func TestUsage(t *testing.T) {
	f, e := newFake(t)
	f.exec = func(ws *websocket.Conn, pod, container string, args []string) {
		switch {
		case args[2] == "connect":
			greet(ws, pod, container, args)
		case container != wayName || strings.Join(args[2:], " ") != "usage 10 /work /cache":
			ws.WriteMessage(websocket.BinaryMessage, message(2, "ramus-runner: cannot do that\n"))
			ws.WriteMessage(websocket.BinaryMessage, exitStatus(way.Failed))
		default:
			ws.WriteMessage(websocket.BinaryMessage, message(1, `{"Bytes":4096,"Files":3}`+"\n"))
			ws.WriteMessage(websocket.BinaryMessage, exitStatus(0))
		}
	}
	c, err := e.Start(bounded(t), newSpec())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Usage(bounded(t), c.ID, []string{"/work", "/cache"}, 10); err != nil || got.Bytes != 4096 ||
		got.Files != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := e.Usage(bounded(t), c.ID, []string{"/etc"}, 10); err == nil ||
		!strings.Contains(err.Error(), "cannot do that") {
		t.Errorf("a measurement that fails: %v", err)
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name string
		lack string // a verb and a resource that the credential may not use
		pods http.HandlerFunc
		want []string
	}{
		{name: "good"},
		{name: "rights", lack: "get exec", want: []string{"get pods/exec", "docs/kubernetes.md"}},
		{name: "pod security", pods: func(w http.ResponseWriter, r *http.Request) {
			refusal(w, http.StatusForbidden, "Forbidden", `violates PodSecurity "baseline:latest": NET_ADMIN`)
		}, want: []string{"PodSecurity", "enforce=privileged"}},
		{name: "no namespace", pods: func(w http.ResponseWriter, r *http.Request) {
			refusal(w, http.StatusNotFound, "NotFound", `namespaces "boxes" not found`)
		}, want: []string{"kubectl create namespace boxes"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, e := newFake(t)
			f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.URL.Path == "/version":
					io.WriteString(w, `{"gitVersion":"v1.34.1"}`)
				case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
					var review struct {
						Spec struct {
							ResourceAttributes struct{ Verb, Resource, Subresource, Namespace string }
						}
					}
					if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
						t.Error(err)
					}
					a := review.Spec.ResourceAttributes
					if a.Namespace != "boxes" {
						t.Errorf("asked for namespace %q", a.Namespace)
					}
					json.NewEncoder(w).Encode(map[string]any{
						"status": map[string]bool{"allowed": a.Verb+" "+a.Subresource != test.lack}})
				case r.Method == http.MethodPost && test.pods != nil:
					test.pods(w, r)
				default:
					return false
				}
				return true
			}
			err := e.Check(bounded(t))
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("Check: %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
			if left := f.names(); len(left) > 0 {
				t.Errorf("a check made pods %s", left)
			}
		})
	}
}

// A connection that stands costs no request, so a container of the pool is taken without one.
func TestConnectionsMakeNoRequests(t *testing.T) {
	f, e, c, conn := dialled(t, greet)
	before := len(f.asked())
	for range 10 {
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	e.watching(func(w *watch) { // its list and its watch may come at any time
		for p, changed := w.await(c.ID); p == nil; p, changed = w.await(c.ID) {
			<-changed
		}
	})
	for _, call := range f.asked()[before:] {
		if call != "GET /api/v1/namespaces/boxes/pods" {
			t.Errorf("asked for %s", call)
		}
	}
}
