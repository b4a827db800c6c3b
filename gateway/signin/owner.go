package signin

import (
	"crypto/rand"
	"crypto/sha256"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
)

// The owner's link signs in who can use the unix socket, which only the owner of the data folder can. The link works
// once, within linkLife. Its code is in the query, which no log has.
const (
	linkPath = "/auth/link"
	linkLife = 10 * time.Minute
	// maxLinks bounds the links that nobody has used yet. The oldest ends for a new one.
	maxLinks = 16
)

// ownerLinks are the codes of links, by their SHA-256. They are only in memory.
type ownerLinks struct {
	mu   sync.Mutex  // guards open
	open []ownerCode // the oldest first
}

type ownerCode struct {
	sum   [sha256.Size]byte
	until time.Time
}

// give returns a new code.
func (l *ownerLinks) give(now time.Time) (code string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(now)
	if len(l.open) >= maxLinks {
		l.open = l.open[1:]
	}
	code, until = rand.Text()+rand.Text(), now.Add(linkLife)
	l.open = append(l.open, ownerCode{sha256.Sum256([]byte(code)), until})
	return code, until
}

// redeemCode redeems a code, once.
func (l *ownerLinks) redeemCode(code string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(now)
	sum := sha256.Sum256([]byte(code))
	i := slices.IndexFunc(l.open, func(one ownerCode) bool { return one.sum == sum })
	if i < 0 {
		return false
	}
	l.open = slices.Delete(l.open, i, i+1)
	return true
}

func (l *ownerLinks) drop(now time.Time) {
	l.open = slices.DeleteFunc(l.open, func(one ownerCode) bool { return !now.Before(one.until) })
}

// OwnerLink returns a link that signs in the owner of the data folder, once within ten minutes. address is where the
// browser reaches this server, to a path of it.
func (p *People) OwnerLink(address, to string) (link string, until time.Time) {
	code, until := p.links.give(p.Now())
	q := url.Values{"code": {code}}
	if to = route.OwnPath(to); to != "/" {
		q.Set(route.BackParameter, to)
	}
	return address + linkPath + "?" + q.Encode(), until
}

// NewLink asks for a link that signs in the owner of the data folder.
type NewLink struct {
	To string `json:"to,omitempty" jsonschema:"the path of this server to come to; empty is the first page"`
}

// Link is a link that signs in the owner of the data folder, once.
type Link struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// newLink makes the owner's link. A token does not suffice, because who has one is not the owner of the data folder.
func (api *API) newLink(c *route.Call) error {
	var n NewLink
	if err := c.ReadOptionalJSON(&n); err != nil {
		return err
	}
	switch {
	case !c.Who.Local:
		return route.NewProblem(route.KindDenied, "only the server's own machine makes such links").
			WithHint("run `ramus open` there, without RAMUS_URL")
	case api.People == nil:
		return route.NewProblem(route.KindConflict,
			"this server ends with its command, and has no pages").WithHint("start `ramus serve`")
	}
	address := c.Address()
	if address == "" {
		address = api.Loopback
	}
	if address == "" {
		return route.NewProblem(route.KindConflict, "no browser can reach this server").
			WithHint("set `listen` to an address of the loopback, or `url` to the address where people reach it")
	}
	var l Link
	l.URL, l.Expires = api.People.OwnerLink(address, n.To)
	return c.Reply(l)
}

// followLink signs in who has the owner's link.
func (api *API) followLink(c *route.Call) error {
	if api.People == nil {
		return errNobody()
	}
	if err := checkTransport(c); err != nil {
		return err
	}
	if c.R.Header.Get("Sec-Purpose") != "" || c.R.Header.Get("Purpose") == "prefetch" {
		// A browser that loads the page before the person asks for it would use the link up.
		return route.NewProblem(route.KindUnavailable, "this link is not loaded in advance").WithHint("follow it")
	}
	q := c.R.URL.Query()
	if !api.People.links.redeemCode(q.Get("code"), api.Now()) {
		return route.NewProblem(route.KindDenied, "this link was used before, or is older than ten minutes").
			WithHint("`ramus open` on the server's machine makes a new one")
	}
	return api.People.letIn(c, api.People.owner(), route.OwnPath(q.Get(route.BackParameter)), nil)
}
