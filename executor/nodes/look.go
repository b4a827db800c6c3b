package nodes

import (
	"context"
	"errors"
	"time"

	"github.com/ramus-dev/ramus/executor/nodes/cluster"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// Look reads the nodes of the cluster. It takes nodes that joined without this server into the book, moves nodes whose
// kubelet is ready to the state running, keeps changes of health as events, and removes automatic nodes that are idle.
func (n *Nodes) Look(ctx context.Context) error {
	members, err := n.Cluster.Members(ctx)
	if err == nil {
		n.mu.Lock()
		n.members = make(map[string]cluster.Member, len(members))
		for _, m := range members {
			n.members[m.Name] = m
		}
		n.mu.Unlock()
		err = n.adopt(members)
	}
	errs := []error{err}
	for _, node := range n.List() {
		errs = append(errs, n.follow(node), n.retire(ctx, node))
	}
	return errors.Join(errs...)
}

// bookable matches the names of nodes of the cluster that the book has. Longer ones would not be names of files.
var bookable = pattern.New(`^[a-z0-9]([a-z0-9.-]{0,198}[a-z0-9])?$`)

// ownMachine is the name of the server's own machine in lists.
const ownMachine = "local"

// adopt takes the members that the book lacks into it.
func (n *Nodes) adopt(members []cluster.Member) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range members {
		if n.book[m.Name] != nil || m.Name == ownMachine || !bookable.MatchString(m.Name) || n.makeRoom() != nil {
			continue
		}
		e := &entry{Node: Node{ID: m.Name, Source: SourceCluster, State: StateRunning, Address: m.Address,
			Created: m.Joined, Ready: m.Joined}}
		e.note(n.Now(), "joined", "without this server")
		if err := n.enter(e); err != nil {
			return err
		}
	}
	return nil
}

// follow moves a node to the state that the cluster shows, and keeps a change of its health.
func (n *Nodes) follow(node Node) error {
	there := node.Member != nil
	ready := there && node.Member.Ready == "True"
	foreign := node.Source == SourceCluster
	if !(node.State == StateCreating && ready || foreign && there == (node.State == StateStopped) ||
		node.State == StateRunning && node.Health != n.noted(node.ID)) {
		return nil
	}
	_, err := n.change(node.ID, func(e *entry) error {
		now := n.Now().UTC()
		switch {
		case e.State == StateCreating && ready:
			e.State, e.Ready, e.Noted = StateRunning, now, HealthHealthy
			e.note(now, "running", "its kubelet is ready")
		case foreign && e.State == StateRunning && !there:
			e.State, e.Noted = StateStopped, ""
			e.note(now, "left", "the cluster has it no more")
		case foreign && e.State == StateStopped && there:
			e.State = StateRunning
			e.note(now, "joined", "again")
		case e.State == StateRunning:
			if e.Noted != "" || node.Health != HealthHealthy {
				e.note(now, string(node.Health), unwell(node))
			}
			e.Noted = node.Health
		}
		return nil
	})
	return err
}

func (n *Nodes) noted(id string) Health {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.book[id]; e != nil {
		return e.Noted
	}
	return ""
}

// unwell returns why a node is not healthy.
func unwell(node Node) string {
	switch m := node.Member; {
	case node.Health == HealthHealthy:
		return ""
	case m == nil:
		return "the cluster has no such node"
	case m.Why != "":
		return m.Why
	case m.Beat.IsZero():
		return "its kubelet never renewed its lease"
	default:
		return "no sign of life since " + m.Beat.UTC().Format(time.RFC3339)
	}
}

// shown returns a node with its health, and as the cluster has it. n.mu is held.
func (n *Nodes) shown(e *entry) Node {
	node := e.Node
	if n.Cluster != nil {
		if m, ok := n.members[e.ID]; ok {
			node.Member, node.Seen = &m, m.Beat
		}
	}
	if node.State != StateRunning {
		return node
	}
	silent := n.Now().Sub(node.Seen)
	switch {
	case silent > 3*n.StaleAfter:
		node.Health = HealthUnhealthy
	case n.Cluster != nil && (node.Member == nil || node.Member.Ready == "False"):
		node.Health = HealthUnhealthy
	case silent > n.StaleAfter || n.Cluster != nil && node.Member.Ready != "True":
		node.Health = HealthStale
	default:
		node.Health = HealthHealthy
	}
	return node
}
