package kubernetes

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/hetzner"
	"github.com/ramus-dev/ramus/internal/clocktest"
	"github.com/ramus-dev/ramus/internal/standin/hetznertest"
)

// TestOrderTimesOut has the wait of a container end with the reason when the machine that was ordered for it is not ready
// in time. No pod and no machine are left, and no second machine is ordered at once.
func TestOrderTimesOut(t *testing.T) {
	t.Parallel()
	cloud := hetznertest.New("secret")
	t.Cleanup(cloud.Close)
	clock := clocktest.At(time.Now())
	n := &nodes.Nodes{Dir: filepath.Join(t.TempDir(), "nodes"), URL: "https://ramus.example.org", Size: "small", Location: "nbg1",
		Provider: hetzner.New(hetzner.Options{Token: "secret", Endpoint: cloud.URL, Name: "ramus", Image: "debian-13", Wait: time.Millisecond}),
		Now:      clock.Now}
	if err := n.Open(); err != nil {
		t.Fatal(err)
	}
	n.Start()
	t.Cleanup(n.Close)
	f, e := newFake(t)
	f.created = func(p *pod) {
		p.Status.Conditions = []condition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "0/1 nodes: too little memory"}}
	}
	e.Room, e.Wait = n.Room, 5*time.Second
	ended := make(chan error, 1)
	go func() {
		_, err := e.Start(bounded(t), newSpec())
		ended <- err
	}()
	for until := time.Now().Add(4 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		all := n.List()
		if len(all) == 1 && all[0].Server != "" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("no machine is ordered: %+v", all)
		}
	}
	if said := n.Room(); !strings.Contains(said, "starts") {
		t.Errorf("while the machine starts: %q", said)
	}
	clock.Add(16 * time.Minute)
	if err := n.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := <-ended
	if !errors.Is(err, containers.ErrUnavailable) || !strings.Contains(err.Error(), "was not ready after 15m0s") ||
		!strings.Contains(err.Error(), "did not start within 5s") {
		t.Errorf("the wait ends with: %v", err)
	}
	t.Log(err)
	if all := cloud.Machines(); len(all) > 0 || len(n.List()) != 1 {
		t.Errorf("machines %+v, nodes %+v", all, n.List())
	}
	if left := f.names(); len(left) > 0 {
		t.Errorf("pods %s are left", left)
	}
	// Another machine is ordered later.
	clock.Add(16 * time.Minute)
	if said := n.Room(); said != "no node has room; one is ordered" {
		t.Errorf("after the pause: %q", said)
	}
}
