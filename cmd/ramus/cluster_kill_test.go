package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// worker runs commands of a caller one after another, each until it is answered.
type worker struct {
	caller   string
	answered atomic.Int64
	maybe    []int // commands that failed or had no answer, which ran once or not at all
}

// work runs commands until ctx ends. The number of each command is a line of a file of the caller.
func (w *clusterWorld) work(ctx context.Context, k *worker) {
	for n := 0; ctx.Err() == nil; n++ {
		for {
			// A key makes a command one, however often it is asked for.
			out, err := w.tryRamus("ramus-0", "exec", k.caller, "--repo", "app", "--key", fmt.Sprint(k.caller, "-", n), "--",
				fmt.Sprintf("echo %d >>%s.txt; sleep 0.3", n, k.caller))
			if err == nil {
				k.answered.Add(1)
				break
			}
			if strings.Contains(out, "(interrupted)") || strings.Contains(out, "(container_lost)") || ctx.Err() != nil {
				k.maybe = append(k.maybe, n)
				break
			}
		}
	}
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

// goesOn waits until each caller has had a command that was answered, and returns the time that it took.
func (w *clusterWorld) goesOn(workers []*worker) time.Duration {
	w.t.Helper()
	begun := time.Now()
	for _, k := range workers {
		// The answer to a command that had ended before may still be on its way.
		for want := k.answered.Load() + 2; k.answered.Load() < want; time.Sleep(10 * time.Millisecond) {
			if time.Since(begun) > 2*time.Minute {
				w.t.Fatalf("%s does not work any more", k.caller)
			}
		}
	}
	return time.Since(begun)
}

// once fails if a command of a caller ran twice, or was answered and is not in the file.
func (w *clusterWorld) once(k *worker) {
	w.t.Helper()
	out := w.ramus("ramus-0", "exec", k.caller, "--", "cat "+k.caller+".txt")
	seen, twice := map[string]bool{}, 0
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); seen[line] {
			twice++
		}
		seen[line] = true
	}
	lost := 0
	for n := range int(k.answered.Load()) + len(k.maybe) {
		if !seen[strconv.Itoa(n)] && !slices.Contains(k.maybe, n) {
			lost++
		}
	}
	w.t.Logf("%s: %d commands were answered, %d have no good answer, %d lost, %d ran twice", k.caller, k.answered.Load(),
		len(k.maybe), lost, twice)
	if lost > 0 || twice > 0 {
		w.t.Errorf("%s: %d of %d commands are lost, %d ran twice:\n%s", k.caller, lost, k.answered.Load(), twice, out)
	}
}
