package clustertest

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/internal/programs"
)

// simulatedLabel is the label and the taint of simulated nodes. The value of the label is the name of their Nodes value.
const simulatedLabel = "ramus.dev/simulated"

// PerNode is the number of pods that a simulated node takes, as a kubelet's default.
const PerNode = 110

const (
	// readyWait bounds the time until simulated nodes are ready, and endWait that until they have ended.
	readyWait = time.Minute
	endWait   = 2 * time.Minute
)

// Nodes are nodes of the cluster that a process of kubelet-standin simulates. They take the pods of [Nodes.Template] alone.
type Nodes struct {
	// Dir has a folder for each pod, by its UID.
	Dir string

	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan error
}

// Simulate starts nodes, and returns when they are ready. It builds the programs, and puts them and all else into dir. This process must
// be in the network of the cluster. The caller calls Close.
func Simulate(ctx context.Context, dir string, nodes int) (*Nodes, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot simulate nodes: %w", err) }
	bin := filepath.Join(dir, "bin")
	if err := programs.Into(bin, "cmd/ramus-runner", "internal/standin/kubelet-standin"); err != nil {
		return nil, wrap(err)
	}
	n := &Nodes{Dir: filepath.Join(dir, "pods"), name: "simulated-" + strings.ToLower(rand.Text()[:6]), ended: make(chan error, 1)}
	n.cmd = exec.Command(filepath.Join(bin, "kubelet-standin"), "-attached", "-kubeconfig", Kubeconfig(), "-prefix", n.name, "-nodes",
		strconv.Itoa(nodes), "-pods", strconv.Itoa(PerNode), "-dir", n.Dir, "-runner", filepath.Join(bin, "ramus-runner"))
	said, err := os.Create(n.log())
	if err != nil {
		return nil, wrap(err)
	}
	defer said.Close()
	n.cmd.Stderr = said
	// An interrupt of a terminal is for this process, which ends the nodes after their pods.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		return nil, wrap(err)
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, wrap(err)
	}
	if err := n.cmd.Start(); err != nil {
		return nil, wrap(err)
	}
	ready := make(chan bool, 1)
	go func() { // ends with the process
		lines := bufio.NewScanner(out)
		ready <- lines.Scan()
		_, _ = io.Copy(io.Discard, out)
		n.ended <- n.cmd.Wait()
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, readyWait, fmt.Errorf("they are not ready after %v", readyWait))
	defer cancel()
	select {
	case ok := <-ready:
		if ok {
			return n, nil
		}
		err = errors.New("it ended at its start")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, wrap(errors.Join(err, n.Close()))
}

func (n *Nodes) log() string { return filepath.Join(filepath.Dir(n.Dir), "kubelet-standin.log") }

// Close ends the nodes and all their pods, and returns when nothing of them is left. The error has what the nodes complained of.
func (n *Nodes) Close() error {
	_ = n.stdin.Close()
	var err error
	select {
	case err = <-n.ended:
	case <-time.After(endWait):
		_ = n.cmd.Process.Kill()
		err = errors.Join(fmt.Errorf("they did not end within %v", endWait), <-n.ended)
	}
	if err == nil {
		return nil
	}
	said, _ := os.ReadFile(n.log())
	return fmt.Errorf("cannot end simulated nodes: %w: %s", err, said[max(0, len(said)-2000):])
}

// Template makes a PodTemplate in a namespace, and returns its name. Pods that are made of it are placed on these nodes alone.
func (n *Nodes) Template(ctx context.Context, admin *kube.Client, namespace string) (string, error) {
	err := admin.Do(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/podtemplates", nil, map[string]any{
		"metadata": map[string]string{"name": n.name},
		"template": map[string]any{"spec": map[string]any{
			"nodeSelector": map[string]string{simulatedLabel: n.name},
			"tolerations":  []map[string]string{{"key": simulatedLabel, "operator": "Exists"}},
			"containers":   []map[string]string{{"name": "none", "image": "none"}}}}}, nil)
	return n.name, err
}
