package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	sweepEvery = 5 * time.Minute  // between two looks at the clouds
	soonEvery  = 30 * time.Second // the same while a node starts or ends
	lookEvery  = 10 * time.Second // between two looks at the cluster; a kubelet renews its Lease as often
)

// Start looks after the nodes until [Nodes.Close]: at the clouds every five minutes, and every half minute while a node
// starts or ends, and at the cluster every ten seconds.
func (n *Nodes) Start() {
	if n == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	n.mu.Lock()
	n.base, n.stop = ctx, stop
	n.mu.Unlock()
	n.work.Go(func() {
		n.repeat(ctx, func() time.Duration {
			if n.hurries() {
				return soonEvery
			}
			return sweepEvery
		}, "cannot look after the nodes", n.Sweep)
	})
	if n.Cluster != nil {
		n.work.Go(func() {
			n.repeat(ctx, func() time.Duration { return lookEvery }, "cannot look at the cluster", n.Look)
		})
	}
}

// hurries reports whether a node starts, or a machine is to be removed soon.
func (n *Nodes) hurries() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.book {
		if e.starts() || e.State == StateStopping && e.Again.Sub(n.Now()) < sweepEvery {
			return true
		}
	}
	return false
}

// isDue reports whether the machine of a node that is stopping is to be removed now.
func (n *Nodes) isDue(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.book[id]
	return e != nil && !n.Now().Before(e.Again)
}

// repeat calls f at once and after each pause, until ctx ends.
func (n *Nodes) repeat(ctx context.Context, pause func() time.Duration, failed string, f func(context.Context) error) {
	for {
		once, done := context.WithTimeout(ctx, time.Minute)
		if err := f(once); err != nil && ctx.Err() == nil {
			n.Log.Warn(failed, "err", err)
		}
		done()
		for last := time.Now(); time.Since(last) < pause(); {
			select {
			case <-time.After(lookEvery):
			case <-ctx.Done():
				return
			}
		}
	}
}

// Close ends the work in the background and waits for it.
func (n *Nodes) Close() {
	if n == nil || n.stop == nil {
		return
	}
	n.mu.Lock() // no goroutine begins after stop
	n.stop()
	n.mu.Unlock()
	n.work.Wait()
}

// listing is the list of a cloud's machines.
type listing struct {
	machines map[string]Machine // by node
	err      error
}

// clouds lists the machines with the token of each owner in the book, and with the server's.
func (n *Nodes) clouds(ctx context.Context) (of map[string]listing, all []Machine, err error) {
	owners := make(map[string]bool)
	if n.Provider != nil {
		owners[""] = true
	}
	n.mu.Lock()
	for _, e := range n.book {
		if e.Source == SourceCloud {
			owners[e.Owner] = true
		}
	}
	n.mu.Unlock()
	of = make(map[string]listing, len(owners))
	var errs []error
	for owner := range owners {
		var some []Machine
		cloud, err := n.at(ctx, owner)
		if err == nil {
			some, err = cloud.List(ctx)
		}
		l := listing{make(map[string]Machine, len(some)), err}
		for _, m := range some {
			m.Owner = owner
			l.machines[m.Node] = m
			all = append(all, m)
		}
		of[owner] = l
		errs = append(errs, err)
	}
	return of, all, errors.Join(errs...)
}

// Leaked returns the machines of the clouds that belong to no node that is in use.
func (n *Nodes) Leaked(ctx context.Context) ([]Machine, error) {
	leaked := []Machine{}
	if n == nil {
		return leaked, nil
	}
	_, all, err := n.clouds(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot look for leaked machines: %w: %w", ErrCloud, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range all {
		if e := n.book[m.Node]; e == nil || !e.Live() {
			leaked = append(leaked, m)
		}
	}
	return leaked, nil
}

// Sweep finishes the work that a crash or the cloud interrupted. It gives up machines that are not ready in time,
// removes machines of nodes that are stopping, and notices machines that are gone.
func (n *Nodes) Sweep(ctx context.Context) error {
	before := n.List()
	of, _, err := n.clouds(ctx)
	errs := []error{err}
	for _, node := range before {
		l := of[node.Owner]
		m, there := l.machines[node.ID]
		err = nil
		switch cloud := node.Source == SourceCloud; {
		case node.Source == SourceCluster || cloud && l.err != nil:
		case node.State == StateStopping:
			if n.isDue(node.ID) {
				_, err = n.Stop(ctx, node.ID, "the server")
			}
		case node.State == StateRunning && cloud && !there:
			_, err = n.lose(node.ID)
		case !node.starts():
		case n.Now().Sub(node.Created) > n.BootWait:
			_, err = n.giveUp(ctx, node.ID, fmt.Errorf("it was not ready after %v", n.BootWait))
		case m.Problem != "":
			_, err = n.giveUp(ctx, node.ID, fmt.Errorf("%w: %s", ErrCloud, m.Problem))
		case node.Server == "" && there: // a crash between the order and the book
			_, err = n.change(node.ID, func(e *entry) error {
				e.State, e.Server, e.Address = StateCreating, m.ID, m.Address
				e.note(n.Now(), "created", "server "+m.ID+" at "+m.Address+", found by its label")
				return nil
			})
		case there && node.Address != m.Address: // some clouds choose it late
			_, err = n.change(node.ID, func(e *entry) error {
				e.Address = m.Address
				return nil
			})
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, n.ageOut())...)
}

// lose puts a running node whose machine is gone into the state error.
func (n *Nodes) lose(id string) (Node, error) {
	return n.change(id, func(e *entry) error {
		if e.State == StateRunning {
			e.State, e.Error = StateError, "the cloud no longer has the machine"
			e.disarm()
			e.note(n.Now(), "error", e.Error)
		}
		return nil
	})
}

// giveUp removes a node that does not become ready, for a reason.
func (n *Nodes) giveUp(ctx context.Context, id string, reason error) (Node, error) {
	gone := false
	e, err := n.change(id, func(e *entry) error {
		if gone = e.starts(); gone {
			e.State = StateStopping // its machine cannot become ready any more
			e.disarm()
		}
		return nil
	})
	if err != nil || !gone {
		return e, err
	}
	if e.Automatic {
		n.pauseOrders(fmt.Errorf("%s: %w", id, reason))
	}
	node, err := n.fail(ctx, id, reason)
	if errors.Is(err, reason) {
		err = nil
	}
	return node, err
}
