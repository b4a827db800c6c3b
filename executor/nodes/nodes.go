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

	"github.com/ramus-dev/ramus/executor/record"
)

// Nodes are the nodes of a server. Its exported fields are its options, which may be changed until Open. Methods are
// safe for concurrent use.
type Nodes struct {
	// Dir is the folder of the book. It is made if it is missing.
	Dir string
	// Provider makes the machines. Nil means that nodes can only be listed and forgotten.
	Provider Provider
	// URL is where machines reach this server. Required with a Provider.
	URL string
	// Size and Location are those of a node whose order names none.
	Size, Location string
	// Most is the number of nodes that may have a machine at once. The default is 5.
	Most int
	// Ranges are the addresses that may connect to SSH of a node. Nil means none.
	Ranges []netip.Prefix
	// StaleAfter is the silence after which a node is stale. The default is 3 minutes.
	StaleAfter time.Duration
	// BootWait is how long a machine may take until it is ready. The default is 15 minutes.
	BootWait time.Duration
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Log gets the errors of the work that nobody waits for. Nil means that nothing is logged.
	Log *slog.Logger

	mu   sync.Mutex // guards book and all below it
	book map[string]*entry

	stop    context.CancelFunc // ends the sweeps
	sweeper sync.WaitGroup
}

// sweepEvery is the time between two sweeps.
const sweepEvery = 5 * time.Minute

// Open reads the book.
func (n *Nodes) Open() error {
	n.Most, n.StaleAfter = cmp.Or(n.Most, 5), cmp.Or(n.StaleAfter, 3*time.Minute)
	n.BootWait = cmp.Or(n.BootWait, 15*time.Minute)
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
	n.book = book
	return nil
}

// Start sweeps at once and every five minutes, until [Nodes.Close]. Without a provider it does nothing.
func (n *Nodes) Start() {
	if n == nil || n.Provider == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.sweeper.Go(func() {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for {
			once, done := context.WithTimeout(ctx, time.Minute)
			if err := n.Sweep(once); err != nil && ctx.Err() == nil {
				n.Log.Warn("cannot look after the nodes", "err", err)
			}
			done()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

// Close ends the sweeps and waits for them.
func (n *Nodes) Close() {
	if n == nil || n.stop == nil {
		return
	}
	n.stop()
	n.sweeper.Wait()
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

// shown returns a node with its health. n.mu is held.
func (n *Nodes) shown(e *entry) Node {
	node := e.Node
	if node.State != StateRunning {
		return node
	}
	switch silent := n.Now().Sub(node.Seen); {
	case silent <= n.StaleAfter:
		node.Health = HealthHealthy
	case silent <= 3*n.StaleAfter:
		node.Health = HealthStale
	default:
		node.Health = HealthUnhealthy
	}
	return node
}

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

// Add orders a node, and returns it when the cloud makes its machine. An empty size or location is the default. If the
// cloud refuses, the node stays in the book in the state error.
func (n *Nodes) Add(ctx context.Context, size, location, by string) (Node, error) {
	if n == nil || n.Provider == nil {
		return Node{}, fmt.Errorf("cannot add a node: %w", errNoProvider)
	}
	size, location = cmp.Or(size, n.Size), cmp.Or(location, n.Location)
	if err := n.Provider.Check(size, location); err != nil {
		return Node{}, fmt.Errorf("cannot add a node: %w: %w", record.ErrInvalid, err)
	}
	token := rand.Text() + rand.Text()
	id, err := n.begin(size, location, by, token)
	if err != nil {
		return Node{}, fmt.Errorf("cannot add a node: %w", err)
	}
	node, err := n.create(ctx, id, size, location, token)
	if err != nil {
		return node, fmt.Errorf("cannot add node %s: %w", id, err)
	}
	return node, nil
}

// begin writes a new node into the book.
func (n *Nodes) begin(size, location, by, token string) (id string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	live := 0
	for _, e := range n.book {
		if e.Live() {
			live++
		}
	}
	if live >= n.Most {
		return "", fmt.Errorf("%w: %d nodes have machines, and nodes.most is %d", record.ErrConflict, live, n.Most)
	}
	if len(n.book) >= maxEntries {
		return "", fmt.Errorf("%w: the book has %d nodes; remove some", record.ErrConflict, len(n.book))
	}
	now := n.Now().UTC()
	e := &entry{Node: Node{ID: "node-" + strings.ToLower(rand.Text()[:10]), State: StatePending, Size: size,
		Location: location, By: tail(by, 200), Created: now}, Bootstrap: hash(token), BootstrapEnds: now.Add(bootstrapWithin)}
	e.note(now, "ordered", size+" in "+location)
	if err := n.keep(e); err != nil {
		return "", fmt.Errorf("cannot write the book of nodes: %w", err)
	}
	n.book[e.ID] = e
	return e.ID, nil
}

// create asks the cloud for the machine of a node.
func (n *Nodes) create(ctx context.Context, id, size, location, token string) (Node, error) {
	data, err := Describe(Description{Node: id, URL: n.URL, Token: token, Ranges: n.Ranges})
	if err != nil {
		return n.fail(ctx, id, err)
	}
	if _, err := n.move(id, StateCreating, "creating", "", StatePending); err != nil {
		return Node{}, err
	}
	m, err := n.Provider.Create(ctx, Order{Node: id, Size: size, Location: location, UserData: data})
	if err != nil {
		return n.fail(ctx, id, fmt.Errorf("%w: %w", ErrCloud, err))
	}
	node, err := n.change(id, func(e *entry) error {
		if !e.Live() || e.State == StateStopping {
			return fmt.Errorf("%w: it was stopped meanwhile", record.ErrConflict)
		}
		e.Server, e.Address = m.ID, m.Address
		e.note(n.Now(), "created", "server "+m.ID+" at "+m.Address)
		return nil
	})
	if errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrNotFound) {
		return node, errors.Join(err, n.Provider.Delete(context.WithoutCancel(ctx), id))
	}
	return node, err
}

// fail removes the machine of a node, if there is one, and puts the node into the state error with its reason.
func (n *Nodes) fail(ctx context.Context, id string, reason error) (Node, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	removed := n.Provider.Delete(ctx, id)
	node, err := n.change(id, func(e *entry) error {
		if e.State == StateStopped { // by a person, meanwhile
			return nil
		}
		e.State, e.Error, e.Bootstrap, e.Callback = StateError, tail(reason.Error(), maxText), "", ""
		e.note(n.Now(), "error", reason.Error())
		if removed != nil {
			e.note(n.Now(), "leaked", "the cloud may still have the machine: "+removed.Error())
		}
		return nil
	})
	return node, errors.Join(reason, err)
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

// Stop removes the machine of a node. The node stays in the book. A node without a machine stays as it is. If the cloud
// does not answer, the node is stopping, and a later sweep tries again.
func (n *Nodes) Stop(ctx context.Context, id, by string) (Node, error) {
	node, err := n.Get(id)
	if err != nil || node.State == StateStopped {
		return node, err
	}
	if n.Provider == nil {
		return node, fmt.Errorf("cannot stop node %s: %w", id, errNoProvider)
	}
	if node.State != StateStopping {
		_, err = n.change(id, func(e *entry) error {
			e.State, e.Bootstrap, e.Callback = StateStopping, "", ""
			e.note(n.Now(), "stopping", "by "+by)
			return nil
		})
		if err != nil {
			return node, err
		}
	}
	if err := n.Provider.Delete(ctx, id); err != nil {
		node, _ = n.Get(id)
		return node, fmt.Errorf("cannot stop node %s: %w: %w", id, ErrCloud, err)
	}
	return n.move(id, StateStopped, "stopped", "", StateStopping, StateStopped)
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
	if err := n.forget(id); err != nil {
		return node, fmt.Errorf("cannot remove node %s: %w", id, err)
	}
	delete(n.book, id)
	return node, nil
}

// Stale returns the silence after which a node is stale, in seconds.
func (n *Nodes) Stale() int {
	if n == nil {
		return 0
	}
	return int(n.StaleAfter / time.Second)
}

// Leaked returns the machines of the cloud that belong to no node that is in use.
func (n *Nodes) Leaked(ctx context.Context) ([]Machine, error) {
	if n == nil || n.Provider == nil {
		return []Machine{}, nil
	}
	all, err := n.Provider.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot look for leaked machines: %w: %w", ErrCloud, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	leaked := []Machine{}
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
	if n.Provider == nil {
		return nil
	}
	before := n.List()
	all, err := n.Provider.List(ctx)
	if err != nil {
		return err
	}
	machines := make(map[string]Machine, len(all))
	for _, m := range all {
		machines[m.Node] = m
	}
	var errs []error
	for _, node := range before {
		m, there := machines[node.ID]
		switch {
		case node.State == StateStopping:
			_, err = n.Stop(ctx, node.ID, "the server")
		case node.State == StateRunning && !there:
			_, err = n.lose(node.ID)
		case node.State != StatePending && node.State != StateCreating:
			err = nil
		case n.Now().Sub(node.Created) > n.BootWait:
			_, err = n.giveUp(ctx, node.ID)
		case node.Server == "" && there: // a crash between the order and the book
			_, err = n.change(node.ID, func(e *entry) error {
				e.State, e.Server, e.Address = StateCreating, m.ID, m.Address
				e.note(n.Now(), "created", "server "+m.ID+" at "+m.Address+", found by its label")
				return nil
			})
		default:
			err = nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// lose puts a running node whose machine is gone into the state error.
func (n *Nodes) lose(id string) (Node, error) {
	return n.change(id, func(e *entry) error {
		if e.State == StateRunning {
			e.State, e.Error, e.Callback = StateError, "the cloud no longer has the machine", ""
			e.note(n.Now(), "error", e.Error)
		}
		return nil
	})
}

// giveUp removes a node that did not become ready in time.
func (n *Nodes) giveUp(ctx context.Context, id string) (Node, error) {
	gone := false
	e, err := n.change(id, func(e *entry) error {
		if gone = e.State == StatePending || e.State == StateCreating; gone {
			e.State, e.Bootstrap, e.Callback = StateStopping, "", "" // its machine cannot become ready any more
		}
		return nil
	})
	if err != nil || !gone {
		return e, err
	}
	late := fmt.Errorf("it was not ready after %v", n.BootWait)
	node, err := n.fail(ctx, id, late)
	if errors.Is(err, late) {
		err = nil
	}
	return node, err
}
