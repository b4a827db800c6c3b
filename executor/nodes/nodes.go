package nodes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/nodes/cluster"
	"github.com/ramus-dev/ramus/executor/nodes/programs"
	"github.com/ramus-dev/ramus/executor/record"
)

// Nodes are the nodes of a server. Its exported fields are its options, which may be changed until Open. Methods are
// safe for concurrent use.
type Nodes struct {
	// Dir is the folder of the book. It is made if it is missing.
	Dir string
	// Provider makes the machines. Nil means that the server itself orders none.
	Provider Provider
	// Own returns the provider with the token of a person. Nil means that people have none.
	Own func(ctx context.Context, person string) (Provider, error)
	// Cluster is the cluster that machines join. Nil means that there is none, and machines only report.
	Cluster *cluster.Cluster
	// Join is how machines join the cluster.
	Join Join
	// Programs are those that machines install. Required with a Cluster.
	Programs *programs.Programs
	// URL is where machines reach this server. Required with a Provider.
	URL string
	// Size and Location are those of a node whose order names none.
	Size, Location string
	// Most is the number of ordered nodes that may have a machine at once. The default is 5.
	Most int
	// Ranges are the addresses that may connect to SSH of a node. Nil means none.
	Ranges []netip.Prefix
	// StaleAfter is the silence after which a node is stale. The default is 3 minutes.
	StaleAfter time.Duration
	// BootWait is how long a machine may take until it is ready. The default is 15 minutes.
	BootWait time.Duration
	// IdleAfter is how long a node that was ordered for lack of room may have no container. Zero means that such nodes
	// stay.
	IdleAfter time.Duration
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Log gets the errors of the work that nobody waits for. Nil means that nothing is logged.
	Log *slog.Logger

	mu      sync.Mutex // guards book and all that follows
	book    map[string]*entry
	members map[string]cluster.Member // as the cluster was last seen
	idle    map[string]time.Time      // since when automatic nodes have no container
	order   automatic

	work sync.WaitGroup     // the goroutines
	base context.Context    // of the goroutines; nil before Start
	stop context.CancelFunc // ends them
}

// Open reads the book.
func (n *Nodes) Open() error {
	n.Most, n.StaleAfter = cmp.Or(n.Most, 5), cmp.Or(n.StaleAfter, 3*time.Minute)
	n.BootWait, n.Join = cmp.Or(n.BootWait, 15*time.Minute), cmp.Or(n.Join, JoinKubelet)
	if n.Now == nil {
		n.Now = time.Now
	}
	if n.Log == nil {
		n.Log = slog.New(slog.DiscardHandler)
	}
	if n.Provider != nil && n.URL == "" {
		return errors.New("cannot use nodes: machines need the `url` of this server")
	}
	book, err := readBook(n.Dir)
	if err != nil {
		return fmt.Errorf("cannot open the book of nodes: %w", err)
	}
	n.book, n.idle = book, make(map[string]time.Time)
	return nil
}

// List returns all nodes, the oldest first.
func (n *Nodes) List() []Node {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]Node, 0, len(n.book))
	for _, e := range n.book {
		all = append(all, n.shown(e))
	}
	slices.SortFunc(all, func(a, b Node) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return all
}

// Get returns a node.
func (n *Nodes) Get(id string) (Node, error) {
	if n == nil {
		return Node{}, missing(id)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	e, ok := n.book[id]
	if !ok {
		return Node{}, missing(id)
	}
	return n.shown(e), nil
}

// History returns the events and the boot log of a node.
func (n *Nodes) History(id string) (History, error) {
	if n == nil {
		return History{}, missing(id)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	e, ok := n.book[id]
	if !ok {
		return History{}, missing(id)
	}
	return History{Events: slices.Clone(e.Events), BootLog: e.BootLog}, nil
}

func missing(id string) error { return fmt.Errorf("%w: there is no node %q", record.ErrNotFound, id) }

// change changes an entry under the lock and makes it durable. The book keeps the earlier entry if that fails.
func (n *Nodes) change(id string, f func(*entry) error) (Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, ok := n.book[id]
	if !ok {
		return Node{}, missing(id)
	}
	e := *old
	e.Events = slices.Clone(old.Events)
	if err := f(&e); err != nil {
		return Node{}, err
	}
	if err := n.keep(&e); err != nil {
		return Node{}, fmt.Errorf("cannot write the book of nodes: %w", err)
	}
	n.book[id] = &e
	return n.shown(&e), nil
}

// errNoProvider is the refusal of changes without a cloud.
var errNoProvider = fmt.Errorf("%w: no cloud is configured; set nodes.provider", record.ErrConflict)

// at returns the cloud with the token of an owner. Empty means the server.
func (n *Nodes) at(ctx context.Context, owner string) (Provider, error) {
	switch {
	case owner == "" && n.Provider != nil:
		return n.Provider, nil
	case owner != "" && n.Own != nil:
		return n.Own(ctx, owner)
	}
	return nil, errNoProvider
}

// Wish is a wish for a node.
type Wish struct {
	// Size and Location are the defaults if they are empty.
	Size, Location string
	// Owner is the person with whose token the machine is ordered. Empty means the server's token.
	Owner string
	// By is the person or the token that wants it.
	By string

	automatic bool
}

// Add orders a node, and returns it when the cloud makes its machine. If the cloud refuses, the node stays in the book
// in the state error.
func (n *Nodes) Add(ctx context.Context, w Wish) (Node, error) {
	wrap := func(err error) (Node, error) { return Node{}, fmt.Errorf("cannot add a node: %w", err) }
	if n == nil {
		return wrap(errNoProvider)
	}
	cloud, err := n.at(ctx, w.Owner)
	if err != nil {
		return wrap(err)
	}
	w.Size, w.Location = cmp.Or(w.Size, n.Size), cmp.Or(w.Location, n.Location)
	if err := cloud.Check(w.Size, w.Location); err != nil {
		return wrap(fmt.Errorf("%w: %w", record.ErrInvalid, err))
	}
	token := newToken()
	id, err := n.enterNode(Node{Source: SourceCloud, Size: w.Size, Location: w.Location, Owner: w.Owner, By: w.By,
		Automatic: w.automatic}, w.Size+" in "+w.Location, token)
	if err != nil {
		return wrap(err)
	}
	node, err := n.create(ctx, cloud, id, token)
	if err != nil {
		return node, fmt.Errorf("cannot add node %s: %w", id, err)
	}
	return node, nil
}

func newToken() string { return rand.Text() + rand.Text() }

// enterNode writes a new node into the book.
func (n *Nodes) enterNode(node Node, text, token string) (id string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	live := 0
	for _, e := range n.book {
		if e.Live() && e.Source == SourceCloud {
			live++
		}
	}
	if node.Source == SourceCloud && live >= n.Most {
		return "", fmt.Errorf("%w: %d nodes have machines, and nodes.most is %d", record.ErrConflict, live, n.Most)
	}
	if err := n.makeRoom(); err != nil {
		return "", err
	}
	now := n.Now().UTC()
	node.ID, node.State, node.Created = "node-"+strings.ToLower(rand.Text()[:10]), StatePending, now
	node.By = tail(node.By, 200)
	e := &entry{Node: node, Bootstrap: hash(token), BootstrapEnds: now.Add(bootstrapWithin)}
	e.note(now, "ordered", text)
	return node.ID, n.enter(e)
}

// enter adds an entry to the book. n.mu is held.
func (n *Nodes) enter(e *entry) error {
	if err := n.keep(e); err != nil {
		return fmt.Errorf("cannot write the book of nodes: %w", err)
	}
	n.book[e.ID] = e
	return nil
}

// description returns the description of the machine of a node.
func (n *Nodes) description(id, token string) Description {
	d := Description{Node: id, URL: n.URL, Token: token, Firewall: true, Ranges: n.Ranges}
	if n.Cluster != nil {
		d.Join, d.Install = n.Join, n.Programs.Installer()
	}
	return d
}

// create asks the cloud for the machine of a node.
func (n *Nodes) create(ctx context.Context, cloud Provider, id, token string) (Node, error) {
	data, err := Describe(n.description(id, token))
	if err != nil {
		return n.fail(ctx, id, err)
	}
	node, err := n.move(id, StateCreating, "creating", "", StatePending)
	if err != nil {
		return Node{}, err
	}
	m, err := cloud.Create(ctx, Order{Node: id, Size: node.Size, Location: node.Location, UserData: data})
	if err != nil {
		return n.fail(ctx, id, fmt.Errorf("%w: %w", ErrCloud, err))
	}
	node, err = n.change(id, func(e *entry) error {
		if !e.Live() || e.State == StateStopping {
			return fmt.Errorf("%w: it was stopped meanwhile", record.ErrConflict)
		}
		e.Server, e.Address = m.ID, m.Address
		e.note(n.Now(), "created", "server "+m.ID+" at "+m.Address)
		return nil
	})
	if errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrNotFound) {
		return node, errors.Join(err, cloud.Delete(context.WithoutCancel(ctx), id))
	}
	return node, err
}

// fail removes the machine of a node, if there is one, and puts the node into the state error with its reason. If the
// machine may be left, the node is stopping until a later sweep has removed it.
func (n *Nodes) fail(ctx context.Context, id string, reason error) (Node, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	node, err := n.Get(id)
	if err != nil {
		return node, errors.Join(reason, err)
	}
	removed := n.remove(ctx, node)
	node, err = n.change(id, func(e *entry) error {
		if e.State == StateStopped { // by a person, meanwhile
			return nil
		}
		e.State, e.Error = StateError, tail(reason.Error(), maxText)
		e.disarm()
		e.note(n.Now(), "error", reason.Error())
		if removed != nil {
			e.notRemoved(n.Now(), removed)
		}
		return nil
	})
	return node, errors.Join(reason, err)
}

// remove removes the machine of a node, and the node from the cluster. A machine that a person brought stays. An error
// means that the machine may be left. A node that stays in the cluster is only logged, because it costs nothing.
func (n *Nodes) remove(ctx context.Context, node Node) error {
	if node.Source == SourceCloud {
		cloud, err := n.at(ctx, node.Owner)
		if err == nil {
			err = cloud.Delete(ctx, node.ID)
		}
		if err != nil {
			return err
		}
	}
	if n.Cluster == nil {
		return nil
	}
	n.mu.Lock()
	invitation := ""
	if e := n.book[node.ID]; e != nil {
		invitation = e.Invitation
	}
	n.mu.Unlock()
	err := n.Cluster.Forget(ctx, node.ID)
	if invitation != "" {
		err = errors.Join(err, n.Cluster.Revoke(ctx, invitation))
	}
	if err != nil {
		n.Log.Warn("a node that has no machine stays in the cluster", "node", node.ID, "err", err)
	}
	return nil
}

// move changes the state of a node that is in one of the states from.
func (n *Nodes) move(id string, to State, kind, text string, from ...State) (Node, error) {
	return n.change(id, func(e *entry) error {
		if !slices.Contains(from, e.State) {
			return fmt.Errorf("%w: node %s is %s", record.ErrConflict, id, e.State)
		}
		e.State = to
		e.note(n.Now(), kind, text)
		return nil
	})
}

// errForeign is the refusal to stop a node that this server did not make.
var errForeign = fmt.Errorf("%w: it joined the cluster without this server; use kubectl drain and kubectl delete node",
	record.ErrConflict)

// Stop removes the machine of a node. The node stays in the book. A node without a machine stays as it is. If the cloud
// does not answer, the node is stopping, and a later sweep tries again.
func (n *Nodes) Stop(ctx context.Context, id, by string) (Node, error) {
	node, err := n.Get(id)
	if err != nil || node.State == StateStopped {
		return node, err
	}
	wrap := func(err error) (Node, error) { return node, fmt.Errorf("cannot stop node %s: %w", id, err) }
	if node.Source == SourceCluster {
		return wrap(errForeign)
	}
	if node.Source == SourceCloud {
		if _, err := n.at(ctx, node.Owner); errors.Is(err, errNoProvider) {
			return wrap(err)
		}
	}
	if node.State != StateStopping {
		_, err = n.change(id, func(e *entry) error {
			e.State = StateStopping
			e.disarm()
			e.note(n.Now(), "stopping", "by "+by)
			return nil
		})
		if err != nil {
			return node, err
		}
	}
	if removed := n.remove(ctx, node); removed != nil {
		node, err = n.change(id, func(e *entry) error {
			if e.State == StateStopping {
				e.notRemoved(n.Now(), removed)
			}
			return nil
		})
		return wrap(errors.Join(fmt.Errorf("%w: %w", ErrCloud, removed), err))
	}
	left := ""
	if node.Source == SourceSSH {
		left = "its machine runs on; /usr/local/lib/ramus/leave on it ends the kubelet"
	}
	return n.change(id, func(e *entry) error {
		if e.State != StateStopping {
			return nil // another call was faster
		}
		e.State, e.Tries, e.Again = StateStopped, 0, time.Time{}
		if e.Error != "" { // it failed before
			e.State = StateError
		}
		e.note(n.Now(), "stopped", left)
		return nil
	})
}

// Remove stops a node and takes it out of the book. Without a provider it is only taken out if it has no machine.
func (n *Nodes) Remove(ctx context.Context, id, by string) (Node, error) {
	node, err := n.Get(id)
	if err != nil {
		return node, err
	}
	if n.Provider != nil || node.Live() {
		if node, err = n.Stop(ctx, id, by); err != nil {
			return node, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return node, n.strike(id)
}

// Stale returns the silence after which a node is stale, in seconds.
func (n *Nodes) Stale() int {
	if n == nil {
		return 0
	}
	return int(n.StaleAfter / time.Second)
}
