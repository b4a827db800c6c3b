package nodes

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/internal/clocktest"
)

// heldCloud makes machines, and holds the answer until answer is closed.
type heldCloud struct {
	made, answer chan struct{}
}

func (c *heldCloud) Create(_ context.Context, o Order) (Machine, error) {
	close(c.made)
	<-c.answer
	return Machine{ID: "1", Node: o.Node}, nil
}

func (c *heldCloud) Delete(context.Context, string) error    { return nil }
func (c *heldCloud) List(context.Context) ([]Machine, error) { return nil, nil }
func (c *heldCloud) Check(string, string) error              { return nil }

// TestPauseDuringOrder keeps the reason of a pause that begins while a machine is ordered.
func TestPauseDuringOrder(t *testing.T) {
	cloud := &heldCloud{made: make(chan struct{}), answer: make(chan struct{})}
	n := &Nodes{Dir: filepath.Join(t.TempDir(), "nodes"), URL: "https://ramus.example.org", Size: "small", Location: "nbg1",
		Provider: cloud, Now: clocktest.At(time.Unix(1000, 0)).Now}
	if err := n.Open(); err != nil {
		t.Fatal(err)
	}
	n.Start()
	defer n.Close()
	if said := n.Room(); !strings.Contains(said, "is ordered") {
		t.Fatal(said)
	}
	<-cloud.made
	n.pauseOrders(errors.New("the last machine was not ready"))
	close(cloud.answer)
	for asked := true; asked; time.Sleep(time.Millisecond) {
		n.mu.Lock()
		asked = n.order.asked
		n.mu.Unlock()
	}
	if _, err := n.Stop(t.Context(), n.List()[0].ID, "ada"); err != nil {
		t.Fatal(err)
	}
	if said := n.Room(); !strings.HasSuffix(said, "the last machine was not ready") {
		t.Errorf("after the order: %q", said)
	}
}
