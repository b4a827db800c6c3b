package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/nodes/cluster"
)

// automatic is the state of orders that nobody asked for by name.
type automatic struct {
	wanted time.Time // the last time at which a container waited
	asked  bool      // one is on its way to the cloud
	next   time.Time // the time before which none is made, after a failure
	err    error     // the reason; not nil before next
}

// settleTime is the time after which a container that waited is on a node, or still waits. The scheduler looks at new
// nodes only every few seconds. Until then no node is idle.
const settleTime = 15 * time.Second

// orderAgain is the pause after an order that failed.
const orderAgain = time.Minute

// Room is called while a container waits because no node has room. It orders a node unless one starts, and returns what
// is done, for people. It may be called often.
func (n *Nodes) Room() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.Now()
	n.order.wanted = now
	live := 0
	for _, e := range n.book {
		if e.Source != SourceCloud || !e.Live() {
			continue
		}
		live++
		if e.starts() {
			return fmt.Sprintf("no node has room; %s (%s in %s) starts", e.ID, e.Size, e.Location)
		}
	}
	switch {
	case n.order.asked:
		return "no node has room; one is ordered"
	case live >= n.Most:
		return fmt.Sprintf("no node has room, and nodes.most is %d", n.Most)
	case now.Before(n.order.next):
		return "no node has room, and none could be ordered: " + tail(n.order.err.Error(), maxText)
	case n.base == nil || n.base.Err() != nil:
		return "no node has room"
	}
	n.order.asked = true
	n.work.Go(func() {
		ctx, done := context.WithTimeout(n.base, 2*time.Minute)
		defer done()
		_, err := n.Add(ctx, Wish{By: "the server, for lack of room", automatic: true})
		if err != nil {
			n.Log.Warn("cannot order a node for a container that waits", "err", err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.order.asked = false
		if err != nil { // the reason of a pause that began meanwhile stays
			n.order.err, n.order.next = err, n.Now().Add(orderAgain)
		}
	})
	return "no node has room; one is ordered"
}

// pauseOrders has no machine be ordered for lack of room as long as one may take to be ready, because the last one was not.
// Containers that wait learn the reason.
func (n *Nodes) pauseOrders(reason error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.order.err, n.order.next = reason, n.Now().Add(n.BootWait)
}

// retire removes a node that was ordered for lack of room and has had no container for IdleAfter. The node is closed for
// new containers first, so that none begins on a machine that ends.
func (n *Nodes) retire(ctx context.Context, node Node) error {
	n.mu.Lock()
	since, known := n.idle[node.ID]
	used := node.Member == nil || node.Member.Containers > 0 || n.Now().Sub(n.order.wanted) < settleTime
	switch {
	case !node.Automatic || node.State != StateRunning || used || n.IdleAfter <= 0:
		delete(n.idle, node.ID)
		known = false
	case !known:
		n.idle[node.ID] = n.Now()
	}
	due := known && n.Now().Sub(since) >= n.IdleAfter
	n.mu.Unlock()
	if !due {
		return nil
	}
	if err := n.Cluster.Close(ctx, node.ID, true); err != nil {
		return err
	}
	members, err := n.Cluster.Members(ctx)
	if err != nil || hasContainers(members, node.ID) {
		n.mu.Lock()
		delete(n.idle, node.ID)
		n.mu.Unlock()
		return errors.Join(err, n.Cluster.Close(ctx, node.ID, false))
	}
	_, err = n.Stop(ctx, node.ID, fmt.Sprintf("the server: no container for %v", n.IdleAfter))
	return err
}

func hasContainers(members []cluster.Member, name string) bool {
	for _, m := range members {
		if m.Name == name {
			return m.Containers > 0
		}
	}
	return false
}
