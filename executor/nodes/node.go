package nodes

import (
	"context"
	"time"
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

// Health is the health of a running node, by the time since its last sign of life.
type Health string

// The kinds of health. A node that does not run has none.
const (
	HealthHealthy   Health = "healthy"
	HealthStale     Health = "stale"     // silent for longer than [Nodes.StaleAfter]
	HealthUnhealthy Health = "unhealthy" // silent for three times as long
)

// Node is a node as clients see it. Zero times mean that it has not happened.
type Node struct {
	ID       string `json:"id"`
	State    State  `json:"state"`
	Health   Health `json:"health,omitempty"`
	Size     string `json:"size"`
	Location string `json:"location"`
	// Server is the cloud's id of the machine, and Address its public address.
	Server  string `json:"server,omitempty"`
	Address string `json:"address,omitempty"`
	// By is the person or the token that ordered the node.
	By      string    `json:"by,omitempty"`
	Created time.Time `json:"created"`
	Ready   time.Time `json:"ready,omitzero"`
	Seen    time.Time `json:"seen,omitzero"` // the last sign of life
	Error   string    `json:"error,omitempty"`
}

// Live reports whether the node has a machine, or gets one.
func (n Node) Live() bool {
	return n.State == StatePending || n.State == StateCreating || n.State == StateRunning || n.State == StateStopping
}

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
