package nodes

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// bootstrapWithin is how long the token of a new machine is good.
const bootstrapWithin = 5 * time.Minute

// ErrCloud means that the cloud refused a request, or did not answer.
var ErrCloud = errors.New("the cloud does not do it")

// ErrToken means that a token does not belong to a node.
var ErrToken = errors.New("the token does not belong to this node")

// Bootstrap is the answer to the redemption of a token.
type Bootstrap struct {
	Node string `json:"node"`
	// CallbackToken authorises the reports of this machine, until the node ends.
	CallbackToken string `json:"callback_token"`
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// is reports whether a token has a hash. An empty hash is that of no token.
func is(token, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(hash(token)), []byte(want)) == 1
}

// Redeem exchanges the token of a new machine for the token of its reports. from is the address that asks, for the
// events of the node. The same error answers a token that is unknown, used or too old.
func (n *Nodes) Redeem(token, from string) (Bootstrap, error) {
	id := n.holder(token)
	if id == "" {
		return Bootstrap{}, errRedeem
	}
	callback := rand.Text() + rand.Text()
	_, err := n.change(id, func(e *entry) error {
		if !is(token, e.Bootstrap) || e.State != StateCreating {
			return errRedeem
		}
		if !n.Now().Before(e.BootstrapEnds) {
			return errRedeem
		}
		e.Bootstrap, e.Callback = "", hash(callback)
		e.note(n.Now(), "bootstrapped", "from "+from)
		return nil
	})
	if err != nil {
		return Bootstrap{}, err
	}
	return Bootstrap{Node: id, CallbackToken: callback}, nil
}

var errRedeem = fmt.Errorf("%w: the token is unknown, used, or older than five minutes", record.ErrNotFound)

// holder returns the node whose bootstrap token it is. Returns "" if there is none.
func (n *Nodes) holder(token string) string {
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, e := range n.book {
		if is(token, e.Bootstrap) {
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

// Ready takes the report of a machine that it is ready. A repeated report is a sign of life.
func (n *Nodes) Ready(id, token string) error {
	return n.report(id, token, func(e *entry, now time.Time) {
		e.Seen = now
		if e.State == StateCreating {
			e.State, e.Ready = StateRunning, now
			e.note(now, "running", "")
		}
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
