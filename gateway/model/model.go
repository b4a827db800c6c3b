// Package model is the way from a container to model APIs: it serves
// /model/PROVIDER/… at the door, adds the real key on the host's side, counts
// tokens and cost into the run's journal, and cuts off at a budget.
//
// # What goes through
//
// A client in the container takes http://127.0.0.1:7070/model/anthropic (…/openai,
// …/gemini) for the provider's address, and any key. Nothing of its request is
// forwarded that is not named here: a closed list of endpoints, a closed list of
// headers and of query parameters, a body that is a JSON object. The address
// asked is made from the configuration and the endpoint's own pattern. The same
// holds for what comes back: no cookies, no redirects, no organisation.
// Answers that are streams (text/event-stream) are passed on event by event, all
// others whole. Errors of the provider keep their status; asking again is the
// client's business.
//
// # What is counted
//
// Every call of a model is journalled in the run that works ([record.EventUsage],
// [record.ModelCall]) with the tokens that the provider says it counted. When
// an answer ends before that, because the client hung up or the connection broke,
// the tokens are estimated from the bytes that went either way, and marked so.
//
// # The budget
//
// A call is refused when what the run has used, as its journal tells, and what
// its calls at work are known to have used by now, has reached the budget; a
// stream that runs into it is ended. Because that is derived from the journal, a
// restart of the server changes nothing. Calls that are answered whole can exceed
// the budget by what they cost themselves, and at most [Proxy.Calls] are at work
// at once.
//
// # What is hostile
//
// The container is. The provider is trusted with what it is sent, not to be
// bounded, and its answers are searched for the key all the same.
package model

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Prefix is where the door serves the model APIs.
const Prefix = "/model/"

// Proxy serves the model APIs. Its exported fields are its options and may be
// changed until the first Handler. It is safe for concurrent use.
type Proxy struct {
	// Providers by name: "anthropic", "openai", "gemini".
	Providers map[string]Provider
	Budget    Budget
	// HTTP's transport makes the requests; nil means http.DefaultTransport.
	// Redirects are never followed.
	HTTP *http.Client
	// Timeout of one call; default 30 min, which a long answer can take.
	Timeout time.Duration
	// Calls is how many calls one run may have at work at once; default 16. More are
	// told to come again.
	Calls int
	// Now is the clock of durations; nil means time.Now.
	Now func() time.Time
	// Log hears of what is wrong on the host's side; nil: nobody does.
	Log *slog.Logger

	open      sync.Once
	providers map[string]*provider
	ledger    ledger
}

// Provider is one model API.
type Provider struct {
	// BaseURL of the API; empty: the provider's own, see [DefaultURL].
	BaseURL string
	// Key that the requests carry; a provider without one is not served.
	Key string
	// Prices by model name, or by a prefix of it that ends in "*": the longest that fits counts.
	Prices map[string]Price
}

// Price of a million tokens, in millionths of a currency unit. Tokens read from
// or written to the provider's cache cost as much as others where their price is 0.
type Price struct{ Input, Output, CacheRead, CacheWrite int64 }

// Budget bounds one run; zero fields do not. With CostMicros, models whose price
// is not known are refused.
type Budget struct {
	Tokens     int64 // in and out together, those read from a cache included
	CostMicros int64
	Calls      int64 // default 10,000: each is a line in the run's journal
}

func (b Budget) calls() int64 {
	if b.Calls == 0 {
		return 10_000
	}
	return b.Calls
}

// maxPrice keeps the cost of the most tokens within 63 bits.
const maxPrice = 1 << 30

// DefaultURL is a provider's own address, "" for a name that is none's.
func DefaultURL(name string) string {
	if a := apis[name]; a != nil {
		return a.url
	}
	return ""
}

// Names lists the providers that there can be.
func Names() []string { return []string{"anthropic", "gemini", "openai"} }

// provider is a Provider that is served.
type provider struct {
	*api
	name    string
	base    string // without a slash at the end
	key     string
	prices  map[string]Price
	secrets *redact.Secrets // the key
}

// Check tells what is wrong with the options.
func (p *Proxy) Check() error {
	var errs []error
	for name, c := range p.Providers {
		if _, err := newProvider(name, c); err != nil {
			errs = append(errs, err)
		}
	}
	if p.Budget.Tokens < 0 || p.Budget.CostMicros < 0 || p.Budget.Calls < 0 {
		errs = append(errs, errors.New("cannot use the budget for models: it is negative"))
	}
	return errors.Join(errs...)
}

func newProvider(name string, c Provider) (*provider, error) {
	a := apis[name]
	if a == nil {
		return nil, fmt.Errorf("cannot serve the model provider %q: want one of %s", name, strings.Join(Names(), ", "))
	}
	base := c.BaseURL
	if base == "" {
		base = a.url
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("cannot serve the model provider %s: its URL must be like %s", name, a.url)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("cannot serve the model provider %s: its URL must have no user, query or fragment", name)
	}
	if strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, fmt.Errorf("cannot serve the model provider %s: its key has characters that no header can carry", name)
	}
	for model, price := range c.Prices {
		for _, n := range []int64{price.Input, price.Output, price.CacheRead, price.CacheWrite} {
			if n < 0 || n > maxPrice {
				return nil, fmt.Errorf("cannot serve the model provider %s: the price of %s is not between 0 and %d", name, model, maxPrice/1_000_000)
			}
		}
	}
	secrets, _ := redact.New(map[string]string{"model key": c.Key})
	return &provider{api: a, name: name, base: strings.TrimSuffix(strings.TrimRight(base, "/"), a.version),
		key: c.Key, prices: c.Prices, secrets: secrets}, nil
}

// start reads the options once.
func (p *Proxy) start() {
	p.providers = make(map[string]*provider)
	for name, c := range p.Providers {
		v, err := newProvider(name, c)
		if err != nil {
			p.log().Error("a model provider is not served", "err", err)
			continue
		}
		if c.Key != "" {
			p.providers[name] = v
		}
	}
}

// Handler is what a container finds at /model/ of its door.
func (p *Proxy) Handler(v executor.Visitor) http.Handler {
	return p.handler(func(r *http.Request) (guest, bool) {
		g, ok := v.Enter(r.Context())
		return g, ok
	})
}

// handler serves those whom enter lets in.
func (p *Proxy) handler(enter func(*http.Request) (guest, bool)) http.Handler {
	p.open.Do(p.start)
	return &visit{p: p, enter: enter}
}

func (p *Proxy) now() time.Time {
	if p.Now == nil {
		return time.Now()
	}
	return p.Now()
}

func (p *Proxy) log() *slog.Logger {
	if p.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.Log
}

func (p *Proxy) transport() http.RoundTripper {
	if p.HTTP == nil || p.HTTP.Transport == nil {
		return http.DefaultTransport
	}
	return p.HTTP.Transport
}

func (p *Proxy) timeout() time.Duration {
	if p.Timeout <= 0 {
		return 30 * time.Minute
	}
	return p.Timeout
}

// price finds what a model costs; the name that the provider gave it counts
// before the one it was asked for by.
func (v *provider) price(names ...string) (Price, bool) {
	for _, name := range names {
		if price, ok := v.prices[name]; ok {
			return price, true
		}
		best := ""
		for pattern := range v.prices {
			if prefix, isPrefix := strings.CutSuffix(pattern, "*"); isPrefix && strings.HasPrefix(name, prefix) && len(pattern) > len(best) {
				best = pattern
			}
		}
		if best != "" {
			return v.prices[best], true
		}
	}
	return Price{}, false
}

// cost of tokens in millionths, rounded up: a budget shall not be got round by small calls.
func (p Price) cost(t tokens) int64 {
	read, write := p.CacheRead, p.CacheWrite
	if read == 0 {
		read = p.Input
	}
	if write == 0 {
		write = p.Input
	}
	plain := max(0, t.input-t.cacheRead-t.cacheWrite)
	var micros int64
	for _, part := range [][2]int64{{plain, p.Input}, {t.cacheRead, read}, {t.cacheWrite, write}, {t.output, p.Output}} {
		micros += (part[0]*part[1] + 999_999) / 1_000_000
	}
	return micros
}

// known lists the providers that are served, for people.
func (p *Proxy) known() []string {
	var names []string
	for name := range p.providers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
