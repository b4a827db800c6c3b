package nodes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/nodes/cluster"
)

// State is the state of a node.
type State string

// The states. A node that is stopped or in error has no machine, unless its event says that the cloud did not answer.
const (
	StatePending  State = "pending"  // in the book; the cloud was not asked yet
	StateCreating State = "creating" // its machine is made, or starts
	StateRunning  State = "running"  // its machine has reported that it is ready
	StateStopping State = "stopping" // its machine is removed
	StateStopped  State = "stopped"
	StateError    State = "error"
)

// Health is the health of a running node, by the time since its last sign of life. With a cluster that is the Lease of
// its kubelet, and the condition Ready counts as well.
type Health string

// The kinds of health. A node that does not run has none.
const (
	HealthHealthy   Health = "healthy"
	HealthStale     Health = "stale"     // silent for longer than [Nodes.StaleAfter], or not heard of by the cluster
	HealthUnhealthy Health = "unhealthy" // silent for three times as long, not ready, or not in the cluster
)

// Source is where the machine of a node comes from.
type Source string

// The sources of machines.
const (
	SourceCloud   Source = "cloud"   // this server ordered it
	SourceSSH     Source = "ssh"     // a person brought it, and this server's script made it a node
	SourceCluster Source = "cluster" // it joined the cluster without this server
)

// Node is a node as clients see it. Zero times mean that it has not happened.
type Node struct {
	ID       string `json:"id"`
	State    State  `json:"state"`
	Health   Health `json:"health,omitempty"`
	Source   Source `json:"source"`
	Size     string `json:"size,omitempty"`     // of a machine at a cloud
	Location string `json:"location,omitempty"` // of a machine at a cloud
	// Owner is the person whose token the machine was ordered with. Empty means the server's token.
	Owner string `json:"owner,omitempty"`
	// Automatic means that the server ordered it because no node had room. It is removed when it is idle.
	Automatic bool `json:"automatic,omitempty"`
	// Server is the cloud's id of the machine, and Address its public address.
	Server  string `json:"server,omitempty"`
	Address string `json:"address,omitempty"`
	// By is the person or the token that ordered the node.
	By      string    `json:"by,omitempty"`
	Created time.Time `json:"created"`
	Ready   time.Time `json:"ready,omitzero"`
	Seen    time.Time `json:"seen,omitzero"` // the last sign of life
	Error   string    `json:"error,omitempty"`
	// Member is the node as the cluster has it. Nil means that it is in none.
	Member *cluster.Member `json:"member,omitempty"`
}

// Live reports whether the node has a machine, or gets one.
func (n Node) Live() bool { return n.starts() || n.State == StateRunning || n.State == StateStopping }

// starts reports whether the node is not ready yet.
func (n Node) starts() bool { return n.State == StatePending || n.State == StateCreating }

// Event is one line of the history of a node.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // such as "created", "bootstrapped", "running"
	Text string    `json:"text,omitempty"`
}

// History has the latest events of a node, the oldest first, and the end of its boot log.
type History struct {
	Events  []Event `json:"events"`
	BootLog string  `json:"boot_log,omitempty"`
}

// Order is a wish for a machine.
type Order struct {
	Node, Size, Location string
	// UserData is the description for cloud-init.
	UserData string
}

// Machine is a server of a cloud.
type Machine struct {
	ID      string    `json:"id"`
	Node    string    `json:"node,omitempty"` // the node in its label
	Name    string    `json:"name"`
	Address string    `json:"address,omitempty"`
	Created time.Time `json:"created,omitzero"`
	// Problem says why the machine will never start. Empty means that it may.
	Problem string `json:"problem,omitempty"`
	// Owner is the person with whose token it was found. Empty means the server's token.
	Owner string `json:"owner,omitempty"`
}

// CheckChoice returns an error that names the choices if there is no such size or location.
func CheckChoice(sizes map[string]string, locations []string, size, location string) error {
	if sizes[size] == "" {
		return fmt.Errorf("there is no size %q: want one of %s", size, strings.Join(slices.Sorted(maps.Keys(sizes)), ", "))
	}
	if !slices.Contains(locations, location) {
		return fmt.Errorf("there is no location %q: want one of %s", location, strings.Join(locations, ", "))
	}
	return nil
}

// Provider is a cloud. It sees only the machines with this server's label. Methods are safe for concurrent use.
type Provider interface {
	// Create makes the machine of an order. Returns the present one if the node has one.
	Create(ctx context.Context, o Order) (Machine, error)
	// Delete removes all machines of a node. It is no error if there is none.
	Delete(ctx context.Context, node string) error
	// List returns all machines.
	List(ctx context.Context) ([]Machine, error)
	// Check returns an error that names the choices if there is no such size or location.
	Check(size, location string) error
}
