package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes/clustertest"
)

// clusterWorld has two replicas whose leases are kept by a real API server, and whose containers are pods.
type clusterWorld struct {
	*replicaWorld
	admin     *kube.Client
	namespace string // of leases and pods
}

func newClusterWorld(t *testing.T) *clusterWorld {
	t.Helper()
	admin, _, err := clustertest.Admin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	namespace, err := clustertest.MakeNamespace(t.Context(), admin, "ramus-replicas-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := admin.Do(ctx, http.MethodDelete, "/api/v1/namespaces/"+namespace, nil, nil, nil); err != nil {
			t.Error(err)
		}
	})
	w := &clusterWorld{newReplicaWorld(t), admin, namespace}
	w.env = append(append(w.env, clusterConfig()...), "RAMUS_KUBERNETES_NAMESPACE="+namespace,
		"RAMUS_REPLICAS_NAMESPACE="+namespace, "RAMUS_REPLICAS_LEASE=15s", "RAMUS_WORK_TREE=portable")
	return w
}

// pods returns the names of the pods that the cluster has.
func (w *clusterWorld) pods() (names []string) {
	w.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	path := "/api/v1/namespaces/" + w.namespace + "/pods"
	if err := w.admin.Do(w.t.Context(), http.MethodGet, path, nil, nil, &list); err != nil {
		w.t.Error(err)
	}
	for _, p := range list.Items {
		names = append(names, p.Metadata.Name)
	}
	return names
}

// TestClusterKilled kills the API server, the kubelet, containerd and a replica, while somebody pushes and three
// callers work. It needs RAMUS_TEST_ENGINE=kubernetes.
func TestClusterKilled(t *testing.T) {
	if !onCluster() {
		t.Skip("runs with RAMUS_TEST_ENGINE=kubernetes")
	}
	rounds := 1
	if os.Getenv("RAMUS_TEST") == "full" {
		rounds = 20
	}
	w := newClusterWorld(t)
	w.start("ramus-0")
	w.start("ramus-1")
	w.token = strings.TrimSpace(w.ramus("ramus-0", "token", "create", "--subject", "ada", "--repo", "*", "--scope", "admin"))
	w.mustGit(w.dir, "init", "-q", "work")
	w.mustGit(w.dir+"/work", "commit", "-q", "--allow-empty", "-m", "begin")
	w.ramus("ramus-0", "repo", "import", "app", w.dir+"/work")
	w.ramus("ramus-0", "repo", "move", "app", "--to", "ramus-1") // so that the home stays
	home := w.procs["ramus-0"].url

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pushed := &pusher{acked: map[string]string{}}
	var work sync.WaitGroup
	work.Go(func() { w.push(ctx, pushed, "p", "app", func(int) string { return home }) })
	workers := []*worker{{caller: "otter"}, {caller: "badger"}, {caller: "heron"}}
	for _, k := range workers {
		work.Go(func() { w.work(ctx, k) })
	}
	w.goesOn(workers)
	t.Logf("without a kill each caller has a command that is answered after %v", w.goesOn(workers).Round(10*time.Millisecond))

	kill := func(what string) {
		if what == "replica" {
			_ = w.stop("ramus-1", syscall.SIGKILL)
			w.start("ramus-1")
		} else if out, err := exec.Command("../../scripts/cluster.sh", "kill", what).CombinedOutput(); err != nil {
			t.Errorf("cannot kill %s: %v: %s", what, err, out)
		}
	}
	for _, what := range []string{"apiserver", "kubelet", "containerd", "replica"} {
		t.Run(what, func(t *testing.T) {
			var waits []time.Duration
			for range rounds {
				kill(what)
				waits = append(waits, w.goesOn(workers))
			}
			slices.Sort(waits)
			t.Logf("killed %d times; each caller had a command that was answered after %v (median), %v (longest)", rounds,
				waits[len(waits)/2].Round(10*time.Millisecond), waits[len(waits)-1].Round(10*time.Millisecond))
		})
	}
	stop()
	work.Wait()

	w.compare(pushed, home+"/app.git")
	for _, k := range workers {
		w.once(k)
		w.ramus("ramus-0", "rm", k.caller)
	}
	w.mustGit(w.data("ramus-1")+"/repos/app.git", "fsck", "--strict")
	for _, name := range []string{"ramus-0", "ramus-1"} {
		if err := w.stop(name, syscall.SIGTERM); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for end := time.Now().Add(time.Minute); len(w.pods()) > 0 && time.Now().Before(end); {
		time.Sleep(200 * time.Millisecond)
	}
	if left := w.pods(); len(left) > 0 {
		t.Errorf("the cluster still has %v", left)
	}
}
