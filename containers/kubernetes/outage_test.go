package kubernetes_test

import (
	"crypto/rand"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// A program of the cluster that is killed ends no command and repeats none, and no output is lost. It comes back by
// itself.
func TestOutages(t *testing.T) {
	config, namespace := cluster(t)
	f := &containers.Fleet{Engine: newEngine(t, config, namespace), Dir: t.TempDir()}
	fleet(t, f)
	l, err := f.Acquire(t.Context(), containers.Request{Key: "run:outage"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	const lines = 100
	for _, name := range []string{"apiserver", "kubelet", "containerd", "etcd"} {
		t.Run(name, func(t *testing.T) {
			p, err := l.Host.Start(t.Context(), containers.Command{ID: rand.Text(),
				Shell: fmt.Sprintf(
					"echo begun >>%s; for i in $(seq %d); do echo line $i; sleep 0.05; done; cat %[1]s",
					name, lines)})
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Second, func() {
				if said, err := exec.Command("../../scripts/cluster.sh", "kill", name).CombinedOutput(); err != nil {
					t.Errorf("kill: %v: %s", err, said)
				}
			})
			var out strings.Builder
			began := time.Now()
			exit, err := p.Output(&out, nil)
			if err != nil || exit.Code != 0 {
				t.Fatalf("%+v, %v", exit, err)
			}
			t.Logf("ended after %v", time.Since(began).Round(time.Millisecond))
			var want strings.Builder
			for i := range lines {
				fmt.Fprintf(&want, "line %d\n", i+1)
			}
			if out.String() != want.String()+"begun\n" {
				t.Errorf("its output is %q", out.String())
			}
		})
	}
}
