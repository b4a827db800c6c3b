package kubernetes_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes/clustertest"
	"github.com/ramus-dev/ramus/internal/remains"
)

// Pods on simulated nodes are containers as others: they perform commands without a network, one whose runner is killed is lost, and
// those that are removed leave no process. The measurement of a thousand callers stands on that.
func TestSimulatedNodes(t *testing.T) {
	config, namespace := cluster(t)
	admin, err := kube.New(*config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	dir := t.TempDir()
	t.Cleanup(func() { remains.Check(t, dir) })
	nodes, err := clustertest.Simulate(t.Context(), dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(nodes.Dir); err != nil || len(left) > 0 {
			t.Errorf("the nodes leave %v, %v", left, err)
		}
	})
	e := newEngine(t, config, namespace)
	if e.Template, err = nodes.Template(t.Context(), admin, namespace); err != nil {
		t.Fatal(err)
	}
	const callers = 4
	f := &containers.Fleet{Engine: e, Dir: t.TempDir(), Capacity: callers}
	fleet(t, f)
	acquire := func(n int) *containers.Lease {
		t.Helper()
		l, err := f.Acquire(t.Context(), containers.Request{Key: fmt.Sprint("run:simulated-", n)})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	// folder returns the folder of a caller's pod.
	folder := func(l *containers.Lease) string {
		t.Helper()
		var p struct {
			Metadata struct {
				UID string `json:"uid"`
			} `json:"metadata"`
			Spec struct {
				NodeName string `json:"nodeName"`
			} `json:"spec"`
		}
		if err := admin.Do(t.Context(), http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods/"+l.Host.Container().ID, nil, nil,
			&p); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p.Spec.NodeName, e.Template+"-") {
			t.Errorf("a pod is on node %s", p.Spec.NodeName)
		}
		return filepath.Join(nodes.Dir, p.Metadata.UID)
	}
	leases := make([]*containers.Lease, callers)
	together(callers, func(n int) {
		l, err := f.Acquire(t.Context(), containers.Request{Key: fmt.Sprint("run:simulated-", n)})
		if err != nil {
			t.Error(err)
			return
		}
		leases[n] = l
	})
	if t.Failed() {
		t.FailNow()
	}
	for n, l := range leases {
		want := fmt.Sprintf("1000 of %d\nlo\n", n)
		said, _ := perform(t, l.Host, fmt.Sprintf("echo of %d >mine; echo $(id -u) $(cat mine); ls /sys/class/net 2>/dev/null || "+
			"tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", n))
		if said != want {
			t.Errorf("caller %d says %q; want %q", n, said, want)
		}
	}

	lost := folder(leases[0])
	killed := remains.Of(lost)
	if len(killed) == 0 {
		t.Fatal("a pod has no process")
	}
	for _, p := range killed {
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	<-leases[0].Host.Done()
	_, err = leases[0].Host.Start(t.Context(), containers.Command{ID: "after", Args: []string{"true"}})
	if !errors.Is(err, containers.ErrGone) {
		t.Errorf("after the end of its runner: %v", err)
	}
	leases[0].Release()
	l := acquire(0)
	if !l.Fresh {
		t.Error("a container whose runner was killed is used again")
	}
	if said, _ := perform(t, l.Host, "cat mine 2>&1 || echo gone"); !strings.HasSuffix(said, "gone\n") {
		t.Errorf("the new container says %q", said)
	}
	folders := []string{lost, folder(l)}
	l.Release()
	for n, l := range leases {
		if n > 0 {
			folders = append(folders, folder(l))
			l.Release()
		}
		if err := f.Remove(t.Context(), fmt.Sprint("run:simulated-", n)); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range folders {
		for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			_, err := os.Stat(dir)
			left := remains.Of(dir)
			if errors.Is(err, os.ErrNotExist) && len(left) == 0 {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("a pod that was removed leaves %v, %v", left, err)
			}
		}
	}
}
