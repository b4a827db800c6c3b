package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
	"github.com/ramus-dev/ramus/containers/runner"
	"github.com/ramus-dev/ramus/internal/shortpath"
)

// object has the fields of a Pod that a node needs.
type object struct {
	Metadata struct {
		Name              string     `json:"name"`
		Namespace         string     `json:"namespace"`
		UID               string     `json:"uid"`
		ResourceVersion   string     `json:"resourceVersion"`
		DeletionTimestamp *time.Time `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		NodeName   string      `json:"nodeName"`
		Containers []container `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type container struct {
	Name    string   `json:"name"`
	Image   string   `json:"image"`
	Command []string `json:"command"`
}

// Names of the containers of a pod of ramus.
const (
	wayName  = "way"
	taskName = "task"
)

// pod is a pod on one of the nodes. Its goroutine is live.
type pod struct {
	object
	k        *kubelet
	ip       string
	folder   string    // "" until it is made
	cmd      *exec.Cmd // process 1; nil until it is started
	sessions *way.Server
	began    time.Time

	gone     chan struct{} // is closed when the API server has forgotten it
	ending   chan struct{} // is closed when it is to be deleted, or is gone
	goneOnce sync.Once
	endOnce  sync.Once

	mu       sync.Mutex // guards the fields below, and began and sessions
	running  map[string]bool
	streams  map[*stream]bool // of commands
	exitCode int              // of the runner
}

func newPod(k *kubelet, o object, number int) *pod {
	return &pod{object: o, k: k, ip: fmt.Sprintf("10.203.%d.%d", number/250%250, 1+number%250), gone: make(chan struct{}),
		ending: make(chan struct{}), running: map[string]bool{}, streams: map[*stream]bool{}}
}

func (p *pod) name() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// delete has the pod end, and then be deleted.
func (p *pod) delete() { p.endOnce.Do(func() { close(p.ending) }) }

// removed has the pod end that the API server has forgotten.
func (p *pod) removed() {
	p.goneOnce.Do(func() { close(p.gone) })
	p.delete()
}

// live is the life of the pod: it starts, is reported, ends, and leaves nothing.
func (p *pod) live(ctx context.Context) {
	defer p.k.over(p)
	ended, err := p.start(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		p.k.log.Warn("a pod does not start", "pod", p.name(), "err", err)
		p.report(ctx, p.failed(err))
	case err == nil:
		p.report(ctx, p.status())
		select {
		case <-ended:
			p.report(ctx, p.status())
		case <-p.ending:
		case <-ctx.Done():
		}
	}
	select {
	case <-p.ending:
	case <-ctx.Done():
	}
	p.stop(ended)
	p.finalize(ctx)
}

// start starts the runner. ended is closed when it has ended, and nil after an error.
func (p *pod) start(ctx context.Context) (ended <-chan struct{}, err error) {
	if p.Status.Phase == "Running" {
		return nil, errors.New("it ended with an earlier process of kubelet-standin")
	}
	command, err := p.command()
	if err != nil {
		return nil, err
	}
	select {
	case p.k.starting <- struct{}{}:
		defer func() { <-p.k.starting }()
	case <-p.ending:
		return nil, context.Canceled
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.folder, err = p.k.sandboxes.folder(p.Metadata.UID)
	if err != nil {
		return nil, err
	}
	if p.cmd, err = p.k.sandboxes.start(p.folder, command); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.sessions, p.began = way.NewServer(p.dial), time.Now()
	p.running[wayName], p.running[taskName] = true, true
	p.mu.Unlock()
	done := make(chan struct{})
	p.k.living.Go(func() {
		defer close(done)
		p.await()
	})
	return done, nil
}

// await waits for the end of the runner.
func (p *pod) await() {
	_ = p.cmd.Wait() // its status has all
	code := p.cmd.ProcessState.ExitCode()
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exitCode, p.running[taskName] = code, false
}

// command returns the command of the runner, with fewer threads than it makes by default.
func (p *pod) command() ([]string, error) {
	if len(p.Spec.Containers) != 2 || p.Spec.Containers[0].Name != wayName || p.Spec.Containers[1].Name != taskName {
		return nil, errors.New("it is no pod of ramus without sidecars, and no other is simulated")
	}
	args := p.Spec.Containers[1].Command
	if len(args) != 3 || args[0] != way.Program || args[1] != "runner" {
		return nil, fmt.Errorf("the command of its container %s is not the runner's", taskName)
	}
	var config runner.Config
	if err := json.Unmarshal([]byte(args[2]), &config); err != nil {
		return nil, fmt.Errorf("cannot read the configuration of its runner: %w", err)
	}
	config.Threads = p.k.threads
	text, err := json.Marshal(config)
	return []string{args[0], args[1], string(text)}, err
}

// dial connects with a socket of the pod.
func (p *pod) dial(socket string) (c net.Conn, err error) {
	path, ok := inside(p.folder, socket)
	if !ok {
		return nil, fmt.Errorf("there is no %s", socket)
	}
	err = shortpath.To(filepath.Dir(path), filepath.Base(path), func(short string) error {
		c, err = net.DialTimeout("unix", short, askWait)
		return err
	})
	return c, err
}

// stop ends all that runs in the pod, and removes its folder. ended is what start returned.
func (p *pod) stop(ended <-chan struct{}) {
	p.mu.Lock()
	clear(p.running)
	for s := range p.streams {
		s.Close()
	}
	p.mu.Unlock()
	if p.sessions != nil {
		p.sessions.Close()
	}
	if ended != nil {
		_ = p.cmd.Process.Kill() // and all others with process 1
		<-ended
	}
	if p.folder == "" {
		return
	}
	if err := os.RemoveAll(p.folder); err != nil {
		p.k.log.Error("a pod leaves files", "pod", p.name(), "err", err)
	}
}

// finalize has the API server forget a pod that was deleted with a time of grace.
func (p *pod) finalize(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-p.gone:
			return
		default:
		}
		err := p.k.ask(ctx, http.MethodDelete, p.path(), url.Values{"gracePeriodSeconds": {"0"}},
			map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": map[string]string{"uid": p.Metadata.UID}}, nil)
		if err == nil || kube.IsCode(err, http.StatusNotFound, http.StatusConflict) {
			return
		}
		p.k.log.Warn("a pod is not deleted yet", "pod", p.name(), "err", err)
		pause(ctx, again)
	}
}

func (p *pod) path() string {
	return "/api/v1/namespaces/" + url.PathEscape(p.Metadata.Namespace) + "/pods/" + url.PathEscape(p.Metadata.Name)
}

// report reports the status of the pod, until the API server has it or the pod is deleted.
func (p *pod) report(ctx context.Context, status map[string]any) {
	select {
	case p.k.asking <- struct{}{}:
		defer func() { <-p.k.asking }()
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		err := p.k.ask(ctx, http.MethodPatch, p.path()+"/status", nil,
			map[string]any{"metadata": map[string]string{"uid": p.Metadata.UID}, "status": status}, nil)
		if err == nil || kube.IsCode(err, http.StatusNotFound, http.StatusConflict) {
			return
		}
		p.k.log.Warn("the status of a pod is not reported yet", "pod", p.name(), "err", err)
		select {
		case <-p.ending:
			return
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// status returns the status of a pod that was started.
func (p *pod) status() map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	began := p.began.UTC().Format(time.RFC3339)
	now := time.Now().UTC().Format(time.RFC3339)
	var list []map[string]any
	for _, c := range p.Spec.Containers {
		running := p.running[c.Name]
		state := map[string]any{"running": map[string]string{"startedAt": began}}
		if !running {
			state = map[string]any{"terminated": map[string]any{"exitCode": p.exitCode, "reason": "Error",
				"message": "its process ended", "startedAt": began, "finishedAt": now}}
		}
		list = append(list, map[string]any{"name": c.Name, "image": c.Image, "imageID": "", "ready": running, "started": running,
			"restartCount": 0, "state": state, "containerID": "simulated://" + p.Metadata.UID + "-" + c.Name})
	}
	ready := "False"
	if p.running[taskName] {
		ready = "True"
	}
	var conditions []map[string]string
	for _, c := range [][2]string{{"PodScheduled", "True"}, {"PodReadyToStartContainers", "True"}, {"Initialized", "True"},
		{"ContainersReady", ready}, {"Ready", ready}} {
		conditions = append(conditions, map[string]string{"type": c[0], "status": c[1], "lastTransitionTime": now})
	}
	return map[string]any{"phase": "Running", "startTime": began, "hostIP": p.k.address, "podIP": p.ip,
		"podIPs": []map[string]string{{"ip": p.ip}}, "conditions": conditions, "containerStatuses": list}
}

// failed returns the status of a pod that cannot start.
func (p *pod) failed(why error) map[string]any {
	return map[string]any{"phase": "Failed", "reason": "Simulated", "message": "it cannot be simulated: " + why.Error()}
}

// inside returns the path outside of a path in the pod. ok is false if the path is in none of the volumes.
func inside(folder, path string) (outside string, ok bool) {
	clean := filepath.Clean(path)
	for _, v := range volumes {
		if rest, found := strings.CutPrefix(clean+"/", v.at+"/"); found {
			return filepath.Join(folder, v.name, rest), true
		}
	}
	return "", false
}
