package terminal

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

const (
	ticketTime = 30 * time.Second
	ticketsMax = 4096 // tickets that were not used yet
)

// ticket lets one socket in.
type ticket struct {
	who      route.Who
	caller   record.Caller
	terminal string // empty for any
	until    time.Time
}

// tickets are those that were not used yet, by the SHA-256 of their secret. Its zero value is ready.
type tickets struct {
	mu   sync.Mutex // guards list
	list map[[sha256.Size]byte]ticket
}

// issue returns the secret of a new ticket.
func (t *tickets) issue(k ticket, now time.Time) (string, error) {
	secret := rand.Text() + rand.Text()
	k.until = now.Add(ticketTime)
	t.mu.Lock()
	defer t.mu.Unlock()
	for sum, old := range t.list {
		if now.After(old.until) {
			delete(t.list, sum)
		}
	}
	if len(t.list) >= ticketsMax {
		return "", route.NewProblem(route.KindUnavailable, "too many tickets for terminals were not used yet")
	}
	if t.list == nil {
		t.list = map[[sha256.Size]byte]ticket{}
	}
	t.list[sha256.Sum256([]byte(secret))] = k
	return secret, nil
}

// redeem returns the ticket of a secret, once.
func (t *tickets) redeem(secret string, now time.Time) (ticket, bool) {
	sum := sha256.Sum256([]byte(secret))
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.list[sum]
	delete(t.list, sum)
	return k, ok && !now.After(k.until)
}
