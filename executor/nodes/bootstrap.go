package nodes

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ramus-dev/ramus/executor/nodes/cluster"
	"github.com/ramus-dev/ramus/executor/record"
)

// bootstrapWithin is how long the token of a new machine is good.
const bootstrapWithin = 5 * time.Minute

// ErrCloud means that the cloud, or the cluster, refused a request or did not answer.
var ErrCloud = errors.New("the cloud or the cluster does not do it")

// ErrToken means that a token does not belong to a node.
var ErrToken = errors.New("the token does not belong to this node")

// Bootstrap is the answer to the redemption of a token.
type Bootstrap struct {
	Node string `json:"node"`
	// CallbackToken authorises the reports of this machine, until the node ends.
	CallbackToken string `json:"callback_token"`
	// Cluster lets the machine join the cluster. Nil means that there is none.
	Cluster *cluster.Invitation `json:"cluster,omitempty"`
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// is reports whether a token has a hash. An empty hash is that of no token.
func is(token, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(hash(token)), []byte(want)) == 1
}

// disarm ends the tokens of a node.
func (e *entry) disarm() { e.Bootstrap, e.Callback = "", "" }

// invitedFor is how long a machine may take from its first request to its kubelet's.
const invitedFor = 15 * time.Minute

// Redeem exchanges the token of a new machine for the token of its reports, and for one of the cluster. from is the
// address that asks, for the events of the node. The same error answers a token that is unknown, used or too old. The
// token stays good if the cluster does not answer.
func (n *Nodes) Redeem(ctx context.Context, token, from string) (Bootstrap, error) {
	id := n.holder(token)
	if id == "" {
		return Bootstrap{}, errRedeem
	}
	b := Bootstrap{Node: id, CallbackToken: newToken()}
	if n.Cluster != nil {
		invitation, err := n.Cluster.Invite(ctx, id, n.Now().Add(invitedFor))
		if err != nil {
			return Bootstrap{}, fmt.Errorf("%w: %w", ErrCloud, err)
		}
		b.Cluster = &invitation
	}
	_, err := n.change(id, func(e *entry) error {
		if !is(token, e.Bootstrap) || e.State != StateCreating || !n.Now().Before(e.BootstrapEnds) {
			return errRedeem
		}
		e.Bootstrap, e.Callback = "", hash(b.CallbackToken)
		if b.Cluster != nil {
			e.Invitation = b.Cluster.ID()
		}
		e.note(n.Now(), "bootstrapped", "from "+from)
		return nil
	})
	if err != nil && b.Cluster != nil { // another request was first
		if err := n.Cluster.Revoke(context.WithoutCancel(ctx), b.Cluster.ID()); err != nil {
			n.Log.Warn("a token of the cluster stays until its end", "err", err)
		}
	}
	if err != nil {
		return Bootstrap{}, err
	}
	return b, nil
}

var errRedeem = fmt.Errorf("%w: the token is unknown, used, or older than five minutes", record.ErrNotFound)

// holder returns the node whose bootstrap token it is, and which is still in time. Returns "" if there is none.
func (n *Nodes) holder(token string) string {
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, e := range n.book {
		if is(token, e.Bootstrap) && n.Now().Before(e.BootstrapEnds) {
			return id
		}
	}
	return ""
}

// report changes the entry of a node by a report of its machine.
func (n *Nodes) report(id, token string, f func(*entry, time.Time)) error {
	if n == nil {
		return ErrToken
	}
	_, err := n.change(id, func(e *entry) error {
		if !is(token, e.Callback) {
			return ErrToken
		}
		f(e, n.Now().UTC())
		return nil
	})
	if errors.Is(err, record.ErrNotFound) {
		return ErrToken
	}
	return err
}

// Ready takes the report of a machine that it is ready. A repeated report is a sign of life. With a cluster the node
// runs when its kubelet is ready.
func (n *Nodes) Ready(id, token string) error {
	return n.report(id, token, func(e *entry, now time.Time) {
		e.Seen = now
		if e.State != StateCreating {
			return
		}
		if n.Cluster != nil {
			e.note(now, "booted", "its kubelet starts")
			return
		}
		e.State, e.Ready = StateRunning, now
		e.note(now, "running", "")
	})
}

// Beat takes a sign of life of a machine.
func (n *Nodes) Beat(id, token string) error {
	return n.report(id, token, func(e *entry, now time.Time) { e.Seen = now })
}

// Allowed returns the addresses that may connect to SSH of a node, for its machine.
func (n *Nodes) Allowed(id, token string) ([]netip.Prefix, error) {
	if err := n.Beat(id, token); err != nil {
		return nil, err
	}
	return n.Ranges, nil
}

// BootLog adds lines to the boot log of a node, of which the last 64 KiB are kept.
func (n *Nodes) BootLog(id, token, lines string) error {
	return n.report(id, token, func(e *entry, now time.Time) {
		e.Seen, e.BootLog = now, tail(e.BootLog+lines, maxBootLog)
	})
}
