package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/proc"
	"github.com/ramus-dev/ramus/containers/runner"
)

// fake is a Docker Engine that speaks the API's HTTP over a unix socket and
// answers by a test's handlers. A request no handler was given for is an error
// of the test.
type fake struct {
	t       *testing.T
	api     string // its API version
	answers map[string]http.HandlerFunc
	ended   chan struct{} // closed when the test ends, for handlers that hang

	mu    sync.Mutex // guards the below
	calls []string   // "METHOD /path?query", versions taken off
	paths []string   // as they came
}

var versioned = regexp.MustCompile(`^/v[0-9.]+`)

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := versioned.ReplaceAllString(r.URL.Path, "")
	call := r.Method + " " + path
	f.mu.Lock()
	f.paths = append(f.paths, r.URL.Path)
	if path != "/_ping" {
		f.calls = append(f.calls, strings.TrimSuffix(call+"?"+r.URL.RawQuery, "?"))
	}
	f.mu.Unlock()
	w.Header().Set("Api-Version", f.api)
	w.Header().Set("Content-Type", "application/json")
	if path == "/_ping" {
		return
	}
	answer := f.answers[call]
	if answer == nil {
		f.t.Errorf("the engine was asked for %s", call)
		answer = status(http.StatusNotImplemented, "no answer")
	}
	answer(w, r)
}

func (f *fake) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func status(code int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		if code != http.StatusNoContent {
			json.NewEncoder(w).Encode(map[string]string{"message": message})
		}
	}
}

func body(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(v) }
}

// inTurn answers the first request by the first handler, and so on; the last one stays.
func inTurn(answers ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		next := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		mu.Unlock()
		next(w, r)
	}
}

func fakeEngine(t *testing.T, api string, answers map[string]http.HandlerFunc) (*Engine, *fake) {
	t.Helper()
	dir := t.TempDir()
	f := &fake{t: t, api: api, answers: answers, ended: make(chan struct{})}
	l, err := net.Listen("unix", filepath.Join(dir, "d"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f}
	var served sync.WaitGroup
	served.Go(func() { server.Serve(l) })
	e := &Engine{Host: "unix://" + l.Addr().String(), Runner: staticProgram(t)}
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		close(f.ended)
		server.Close()
		served.Wait()
		for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Errorf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
				break
			}
		}
	})
	return e, f
}

// staticProgram is a file that passes for a static program.
func staticProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	// An ELF header without program headers: nothing asks for an interpreter.
	elf := make([]byte, 64)
	copy(elf, "\x7fELF\x02\x01\x01")
	elf[16], elf[18], elf[20], elf[52], elf[54], elf[58] = 2, 62, 1, 64, 56, 64
	if err := os.WriteFile(path, elf, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVersionIsNegotiated(t *testing.T) {
	for _, test := range []struct{ engine, want string }{
		{"1.41", "/v1.41/"}, // Engine 20.10
		{"1.43", "/v1.43/"}, // Engine 24
		{"1.52", "/v1.52/"}, // Engine 29
		{"9.99", "/v" + client.MaxAPIVersion + "/"},
	} {
		t.Run(test.engine, func(t *testing.T) {
			e, f := fakeEngine(t, test.engine, map[string]http.HandlerFunc{"GET /containers/json": body([]any{})})
			if _, err := e.List(t.Context(), "me"); err != nil {
				t.Fatal(err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if last := f.paths[len(f.paths)-1]; !strings.HasPrefix(last, test.want) {
				t.Errorf("asked for %s, want %s…", last, test.want)
			}
		})
	}
}

func TestCheckNamesEveryProblem(t *testing.T) {
	good := map[string]any{
		"OSType": "linux", "MemoryLimit": true, "CpuCfsQuota": true, "PidsLimit": true,
		"SwapLimit": true, "SecurityOptions": []string{"name=seccomp,profile=default"}, "Driver": "overlay2", "NCPU": 2,
	}
	image := map[string]any{"Id": "sha256:1", "Os": "linux"}
	for _, test := range []struct {
		name, api string
		change    map[string]any
		image     http.HandlerFunc
		want      []string
	}{
		{name: "good", api: "1.41", image: body(image)},
		{name: "old", api: "1.40", image: body(image), want: []string{"20.10"}},
		{name: "no controllers", api: "1.41", change: map[string]any{"MemoryLimit": false, "PidsLimit": false},
			image: body(image), want: []string{"cannot limit memory", "cannot limit pids"}},
		{name: "several", api: "1.41", change: map[string]any{"OSType": "windows", "SecurityOptions": []string{}},
			image: status(404, "No such image"), want: []string{"windows", "seccomp", "make image"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			info := make(map[string]any)
			for _, m := range []map[string]any{good, test.change} {
				for k, v := range m {
					info[k] = v
				}
			}
			e, _ := fakeEngine(t, test.api, map[string]http.HandlerFunc{
				"GET /version":                       body(map[string]any{"Version": "0.0", "ApiVersion": test.api}),
				"GET /info":                          body(info),
				"GET /images/ramus/task:latest/json": test.image,
			})
			err := e.Check(t.Context())
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("Check: %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
		})
	}
}

func TestEngineThatIsNotThere(t *testing.T) {
	refusing := filepath.Join(t.TempDir(), "d")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: refusing, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	spec := containers.Spec{Key: "run:a", Owner: "me", Dir: t.TempDir()}
	for _, host := range []string{
		"unix://" + filepath.Join(t.TempDir(), "missing"),
		"unix://" + refusing,
		"tcp://127.0.0.1:1",
	} {
		e := &Engine{Host: host, Runner: staticProgram(t)}
		_, listErr := e.List(t.Context(), "me")
		_, startErr := e.Start(t.Context(), spec)
		_, dialErr := e.Dial(t.Context(), "abc")
		for what, err := range map[string]error{
			"Check": e.Check(t.Context()), "List": listErr, "Start": startErr, "Dial": dialErr,
			"Remove": e.Remove(t.Context(), "abc"),
		} {
			if !errors.Is(err, containers.ErrUnavailable) || errors.Is(err, containers.ErrGone) {
				t.Errorf("%s: %s: %v", host, what, err)
			}
		}
		e.Close()
	}
	for _, host := range []string{"ssh://someone@somewhere", "nonsense"} {
		e := &Engine{Host: host, Runner: staticProgram(t)}
		if err := e.Check(t.Context()); err == nil {
			t.Errorf("%s is accepted", host)
		}
	}
}

func TestEngineThatHangs(t *testing.T) {
	var f *fake
	hang := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-f.ended:
		}
	}
	var e *Engine
	e, f = fakeEngine(t, "1.41", map[string]http.HandlerFunc{"GET /containers/json": hang})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.List(ctx, "me"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("List: %v", err)
	}
}

func TestEngineThatHangsUp(t *testing.T) {
	e, _ := fakeEngine(t, "1.41", map[string]http.HandlerFunc{
		"GET /containers/json": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `[{"Id":`)
			panic(http.ErrAbortHandler)
		},
	})
	if _, err := e.List(t.Context(), "me"); !errors.Is(err, containers.ErrUnavailable) {
		t.Errorf("List: %v", err)
	}
}

func TestListTellsTheCallersLabels(t *testing.T) {
	e, f := fakeEngine(t, "1.41", map[string]http.HandlerFunc{"GET /containers/json": body([]map[string]any{
		{"Id": "2", "Created": 20, "State": "exited",
			"Labels": map[string]string{"ramus.owner": "me", "ramus.key": "run:b", "maintainer": "the image's"}},
		{"Id": "1", "Created": 10, "State": "running", "Labels": map[string]string{
			"ramus.owner": "me", "ramus.key": "run:a", "ramus.image": "x@sha256:1", "ramus.labels": `["team"]`,
			"team": "red", "maintainer": "the image's"}},
	})})
	list, err := e.List(t.Context(), "me")
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(list)
	want := `[{"ID":"1","Key":"run:a","Image":"x@sha256:1","Running":true,"Created":"1970-01-01T00:00:10Z","Labels":{"team":"red"}},` +
		`{"ID":"2","Key":"run:b","Image":"","Running":false,"Created":"1970-01-01T00:00:20Z","Labels":null}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if calls := f.asked(); len(calls) != 1 || !strings.Contains(calls[0], "ramus.owner%3Dme") || !strings.Contains(calls[0], "all=1") {
		t.Errorf("asked %q", calls)
	}
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.MkdirAll(filepath.Join(dir, "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	mounted := body(map[string]any{"Id": "abc",
		"Mounts": []map[string]any{{"Destination": "/run/ramus/run", "Source": dir}}})
	conflict := status(409, "removal of container abc is already in progress")
	none := body([]any{})
	for _, test := range []struct {
		name     string
		inspect  http.HandlerFunc
		removals []http.HandlerFunc
		want     int // removals asked for
		fails    bool
	}{
		{"once", mounted, []http.HandlerFunc{status(204, "")}, 1, false},
		{"gone", status(404, "No such container"), []http.HandlerFunc{status(404, "No such container")}, 1, false},
		{"going", mounted, []http.HandlerFunc{conflict, conflict, status(404, "No such container")}, 3, false},
		{"busy", mounted, []http.HandlerFunc{status(500, "device or resource busy"), status(204, "")}, 2, false},
		{"refused", mounted, []http.HandlerFunc{status(403, "no")}, 1, true},
		{"not ours", body(map[string]any{"Id": "abc"}), nil, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			answers := map[string]http.HandlerFunc{"GET /containers/abc/json": test.inspect, "GET /containers/json": none}
			if test.removals != nil {
				answers["DELETE /containers/abc"] = inTurn(test.removals...)
			}
			e, f := fakeEngine(t, "1.41", answers)
			if err := e.Remove(t.Context(), "abc"); (err != nil) != test.fails {
				t.Fatal(err)
			}
			removals := 0
			for _, call := range f.asked() {
				if strings.HasPrefix(call, "DELETE ") {
					removals++
					if call != "DELETE /containers/abc?force=1&v=1" {
						t.Error(call)
					}
				}
			}
			if removals != test.want {
				t.Errorf("%d removals, want %d", removals, test.want)
			}
		})
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's folder is left: %v", err)
	}
}

// A container is not renamed while it is removed, nor removed while it is renamed.
func TestAssignAndRemoveTakeTurns(t *testing.T) {
	var on, most atomic.Int32
	alone := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			most.Store(max(most.Load(), on.Add(1)))
			time.Sleep(time.Millisecond) // longer finds more, never less
			on.Add(-1)
			status(code, "")(w, r)
		}
	}
	e, _ := fakeEngine(t, "1.41", map[string]http.HandlerFunc{
		"GET /containers/abc/json": body(map[string]any{"Id": "abc",
			"Mounts": []map[string]any{{"Destination": "/run/ramus/run", "Source": t.TempDir()}}}),
		"GET /containers/json":        body([]any{}),
		"POST /containers/abc/rename": alone(204),
		"DELETE /containers/abc":      alone(204),
	})
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			if err := e.Assign(t.Context(), "abc", "run:a", nil); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if err := e.Remove(t.Context(), "abc"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	e.undoing.Wait()
	if most.Load() != 1 || len(e.turns) != 0 {
		t.Errorf("%d at once; turns left: %v", most.Load(), e.turns)
	}
}

func TestStartWithoutImage(t *testing.T) {
	for image, want := range map[string]string{"": "make image", "debian:12": "docker pull debian:12"} {
		e, _ := fakeEngine(t, "1.41", map[string]http.HandlerFunc{
			"GET /images/ramus/task:latest/json": status(404, "No such image"),
			"GET /images/debian:12/json":         status(404, "No such image"),
		})
		_, err := e.Start(t.Context(), containers.Spec{Key: "run:a", Owner: "me", Dir: t.TempDir(), Image: image})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", image, err)
		}
	}
}

// TestStartAbandoned: the caller gives up while the engine makes the container;
// the container must not stay.
func TestStartAbandoned(t *testing.T) {
	ctx, abandon := context.WithCancel(t.Context())
	defer abandon()
	returned := make(chan struct{})
	removed := make(chan struct{})
	e, _ := fakeEngine(t, "1.41", map[string]http.HandlerFunc{
		"GET /images/ramus/task:latest/json": body(map[string]any{"Id": "sha256:1"}),
		"GET /info":                          body(map[string]any{"NCPU": 2}),
		"GET /containers/abc/json": body(map[string]any{"Id": "abc",
			"Mounts": []map[string]any{{"Destination": "/run/ramus/run", "Source": t.TempDir()}}}),
		"POST /containers/create": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			abandon()
			<-returned
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"Id":"abc"}`)
		},
		"DELETE /containers/abc": func(w http.ResponseWriter, r *http.Request) {
			close(removed)
			w.WriteHeader(http.StatusNoContent)
		},
	})
	_, err := e.Start(ctx, containers.Spec{Key: "run:a", Owner: "me", Dir: t.TempDir()})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v", err)
	}
	close(returned)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-removed:
	default:
		t.Error("Close returned and the container was not removed")
	}
}

func TestRecipe(t *testing.T) {
	spec := containers.Spec{
		Key: "run:Fancy/mallard", Owner: "me", Dir: "/data/c1", ClientKey: "ssh-ed25519 AAAA",
		Env: []string{"A=spec"}, Limits: containers.Limits{CPUs: 64, Memory: 1 << 30},
		Labels: map[string]string{"team": "red", labelOwner: "somebody else"},
	}
	p := parts{name: "image:1", runner: "/opt/ramus-runner", program: "/opt/ramus", cpus: 4}
	p.image.ID = "sha256:1"
	o, err := recipe(spec, p)
	if err != nil {
		t.Fatal(err)
	}
	c, h := o.Config, o.HostConfig

	if !slices.Equal(c.Entrypoint, []string{"/run/ramus/ramus"}) || c.Cmd[0] != "runner" || c.Image != "sha256:1" || c.User != "0:0" {
		t.Errorf("process 1: %q %q of %s as %s", c.Entrypoint, c.Cmd, c.Image, c.User)
	}
	var cfg runner.Config
	if err := json.Unmarshal([]byte(c.Cmd[1]), &cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.UID != 1000 || cfg.GID != 1000 || cfg.ClientKey != spec.ClientKey || cfg.Output != 1<<30 || !slices.Equal(cfg.Env, spec.Env) {
		t.Errorf("runner: %+v", cfg)
	}
	if c.Labels[labelOwner] != "me" || c.Labels[labelKey] != spec.Key || c.Labels[labelImage] != "image:1@sha256:1" ||
		c.Labels["team"] != "red" {
		t.Errorf("labels: %v", c.Labels)
	}

	if !c.NetworkDisabled || h.NetworkMode != "none" || h.IpcMode != container.IPCModePrivate || h.PidMode != "" ||
		h.UTSMode != "" || h.CgroupnsMode != container.CgroupnsModePrivate {
		t.Errorf("namespaces: %+v", h)
	}
	if !h.ReadonlyRootfs || h.Privileged || !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.CapAdd) != 5 ||
		!slices.Equal(h.SecurityOpt, []string{"no-new-privileges"}) || len(h.Devices) != 0 {
		t.Errorf("rights: %+v", h)
	}
	if h.LogConfig.Type != "none" || h.RestartPolicy.Name != container.RestartPolicyDisabled || h.AutoRemove {
		t.Errorf("life: %+v", h)
	}
	r := h.Resources
	if r.Memory != 1<<30 || r.MemorySwap != r.Memory || r.NanoCPUs != 4e9 || *r.PidsLimit != 512 {
		t.Errorf("limits: %+v", r)
	}
	if h.Tmpfs["/tmp"] != "rw,exec,nosuid,nodev,mode=1777,size=536870912" || !strings.Contains(h.Tmpfs["/run/ramus"], "mode=0700") {
		t.Errorf("memory folders: %v", h.Tmpfs)
	}
	// What is mounted from the host: the runner, twice, the program, the socket's folder, and the names; nothing else.
	var binds []mount.Mount
	for _, m := range h.Mounts {
		if m.Type == mount.TypeBind {
			binds = append(binds, m)
		} else if m.Type != mount.TypeVolume || m.Source != "" {
			t.Errorf("mount %+v", m)
		}
	}
	if len(binds) != 5 || binds[0].Source != "/opt/ramus-runner" || !binds[0].ReadOnly ||
		binds[1].Source != "/opt/ramus-runner" || binds[1].Target != "/ramus-runner" || !binds[1].ReadOnly ||
		binds[2].Source != "/opt/ramus" || binds[2].Target != "/ramus" || !binds[2].ReadOnly ||
		binds[3].Source != "/data/c1/run" || binds[4].Source != "/data/c1/hosts" || binds[4].Target != "/etc/hosts" ||
		!binds[4].ReadOnly {
		t.Errorf("mounts from the host: %+v", binds)
	}

	spec.Env = []string{"A=" + strings.Repeat("x", maxArgument)}
	if _, err := recipe(spec, p); err == nil {
		t.Error("an environment that no program can be started with is accepted")
	}
}

func TestSidecarRecipe(t *testing.T) {
	s := containers.Sidecar{
		Owner: "me", Key: "browser:run:x", Args: []string{"/bin/a", "b", "c"}, Env: []string{"A=b"},
		Limits: containers.Limits{CPUs: 64, Memory: 200 << 20},
	}
	o := sidecarRecipe("abc", s, "sha256:1", 4)
	c, h := o.Config, o.HostConfig
	if !slices.Equal(c.Entrypoint, []string{"/bin/a"}) || !slices.Equal(c.Cmd, []string{"b", "c"}) ||
		c.Image != "sha256:1" || c.User != "1000:1000" ||
		!slices.Equal(c.Env, []string{"HOME=/tmp/home", "A=b"}) || !slices.Equal(c.Healthcheck.Test, []string{"NONE"}) {
		t.Errorf("program: %+v", c)
	}
	// None of a caller's container: List and Remove go by those.
	if len(c.Labels) != 3 || c.Labels["ramus.sidecar"] != s.Key || c.Labels["ramus.sidecar.of"] != "abc" ||
		c.Labels["ramus.sidecar.owner"] != "me" {
		t.Errorf("labels: %v", c.Labels)
	}
	if h.NetworkMode != "container:abc" || h.IpcMode != container.IPCModePrivate || h.PidMode != "" ||
		h.CgroupnsMode != container.CgroupnsModePrivate {
		t.Errorf("namespaces: %+v", h)
	}
	if !h.ReadonlyRootfs || h.Privileged || !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.CapAdd) != 0 ||
		!slices.Equal(h.SecurityOpt, []string{"no-new-privileges"}) || len(h.Devices)+len(h.Mounts)+len(h.Binds)+
		len(h.PortBindings) != 0 {
		t.Errorf("rights: %+v", h)
	}
	if h.LogConfig.Type != "none" || h.RestartPolicy.Name != container.RestartPolicyDisabled || h.OomScoreAdj != 500 {
		t.Errorf("life: %+v", h)
	}
	r := h.Resources
	if r.Memory != 200<<20 || r.MemorySwap != r.Memory || r.NanoCPUs != 4e9 || *r.PidsLimit != 256 || h.ShmSize != 25<<20 ||
		!strings.HasSuffix(h.Tmpfs["/tmp"], fmt.Sprintf("size=%d", 100<<20)) ||
		!strings.Contains(h.Tmpfs["/tmp/home"], "mode=0700,uid=1000") {
		t.Errorf("limits: %+v, %v", h, h.Tmpfs)
	}
	if o := sidecarRecipe("", s, "sha256:1", 4); o.HostConfig.NetworkMode != "none" {
		t.Errorf("alone: %s", o.HostConfig.NetworkMode)
	}
}

func TestSidecarWithoutImage(t *testing.T) {
	for image, want := range map[string]string{"": "make browser", "ramus/browser:video": "make browser",
		"other:1": "docker pull other:1"} {
		e, _ := fakeEngine(t, "1.41", map[string]http.HandlerFunc{
			"GET /images/ramus/browser:latest/json": status(404, "No such image"),
			"GET /images/ramus/browser:video/json":  status(404, "No such image"),
			"GET /images/other:1/json":              status(404, "No such image"),
		})
		_, err := e.RunSidecar(t.Context(), "abc",
			containers.Sidecar{Owner: "me", Key: "k", Args: []string{"a"}, Image: image})
		if !errors.Is(err, containers.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", image, err)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, key := range []string{"run:fancy-mallard", "", ":", "-x", "../x", "ALL CAPS", "ä€", strings.Repeat("k", 300), "a\x00b\xff"} {
		f.Add(key)
	}
	name := regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)
	host := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	f.Fuzz(func(t *testing.T, key string) {
		if n := containerName(key); !name.MatchString(n) || len(n) > 128 {
			t.Errorf("container %q for %q", n, key)
		}
		if h := plain(key, 63); !host.MatchString(h) {
			t.Errorf("host name %q for %q", h, key)
		}
	})
}

func TestDialSocket(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := dialSocket(t.Context(), deep); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	// A long path cannot be listened on either; the socket is moved there.
	short := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Rename(short, filepath.Join(deep, socketName)); err != nil {
		t.Fatal(err)
	}
	conn, err := dialSocket(t.Context(), deep)
	if err != nil {
		t.Fatalf("long path: %v", err)
	}
	conn.Close()

	link := t.TempDir()
	if err := os.Symlink(filepath.Join(deep, socketName), filepath.Join(link, socketName)); err != nil {
		t.Fatal(err)
	}
	if conn, err := dialSocket(t.Context(), link); err == nil {
		conn.Close()
		t.Error("a link was followed")
	}
	file := t.TempDir()
	if err := os.WriteFile(filepath.Join(file, socketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dialSocket(t.Context(), file); err == nil {
		t.Error("a file was dialled")
	}
}

// A process that is about to end is waited for; one that lives, or that cannot be seen, only
// for as long as somebody wants to know.
func TestProcessEnds(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	start, err := proc.Start(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if p := (process{cmd.Process.Pid, start}); p.endsSoon(over) {
		t.Error("a process that lives has ended")
	}
	if p := (process{cmd.Process.Pid, 0}); p.endsSoon(t.Context()) {
		t.Error("a process that cannot be seen has ended")
	}
	if p := (process{cmd.Process.Pid, start - 1}); !p.endsSoon(over) {
		t.Error("another process of its number is taken for it")
	}
	cmd.Process.Kill()
	if p := (process{cmd.Process.Pid, start}); !p.endsSoon(t.Context()) {
		t.Error("a killed process does not end")
	}
}

func TestProgram(t *testing.T) {
	good := staticProgram(t)
	private := filepath.Join(t.TempDir(), "private")
	script := filepath.Join(t.TempDir(), "script")
	for path, mode := range map[string]os.FileMode{private: 0o700, script: 0o755} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for path, ok := range map[string]bool{
		good: true, private: false, script: false, filepath.Dir(good): false, good + "x": false,
		"/bin/sh": false, // needs its libraries
	} {
		for _, e := range []*Engine{{Runner: path}, {Runner: good, Program: path}} {
			if _, _, err := e.programs(); (err == nil) != ok {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}
