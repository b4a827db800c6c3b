// Package model connects containers with model APIs. It serves /model/PROVIDER/… at the door, adds the real key on the
// host's side, counts tokens and cost into the run's journal, and stops at a budget.
//
// # Requests and answers
//
// A client in the container uses http://127.0.0.1:7070/model/anthropic (…/openai, …/gemini) as the provider's address,
// with any key. Only the following is forwarded: a closed list of endpoints, a closed list of headers and of query
// parameters, and a body that is a JSON object. The address of the request comes from the configuration and the
// endpoint's own pattern. Answers are restricted in the same way, without cookies, redirects and organisation. Streams
// (text/event-stream) are forwarded event by event, all other answers as a whole. Errors of the provider keep their
// status. Retries are left to the client.
//
// # Counting
//
// Every call of a model is journalled in the run that works ([record.EventUsage], [record.ModelCall]), with the tokens
// that the provider reports. If an answer ends before the report, because the client closed or the connection broke,
// the tokens are estimated from the bytes in both directions, and marked as estimated.
//
// # The budget
//
// A call is refused if the use of the run has reached the budget. The use is the sum in the journal and the known use
// of the calls in progress. A stream that reaches the budget is ended. The sum comes from the journal, so a restart of
// the server changes nothing. Calls that are answered as a whole can exceed the budget by their own cost. At most
// [Proxy.Calls] are in progress at once.
//
// # Untrusted input
//
// The container is hostile. The provider is trusted with the data that it gets, but its answers are bounded, and
// searched for the key.
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
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Prefix is the path of the model APIs at the door.
const Prefix = "/model/"

// Proxy serves the model APIs. Its exported fields are its options and may be changed until the first Handler. It is
// safe for concurrent use.
type Proxy struct {
	// Providers are by name: "anthropic", "openai", "gemini".
	Providers map[string]Provider
	Budget    Budget
	// Keys has further keys, which come before those of Providers. Nil means none.
	Keys Keys
	// HTTP has the transport of the requests. If it is nil, http.DefaultTransport is used. Redirects are never
	// followed.
	HTTP *http.Client
	// Timeout bounds one call. The default is 30 min, for long answers.
	Timeout time.Duration
	// Calls is the number of calls that one run may have in progress at once. The default is 16. Further calls are told
	// to retry.
	Calls int
	// Now is the clock that measures durations. If it is nil, it is time.Now.
	Now func() time.Time
	// Log gets problems on the host's side. If it is nil, they are discarded.
	Log *slog.Logger

	open      sync.Once
	changed   atomic.Pointer[Budget] // of the last Apply, nil before
	providers map[string]*served
	ledger    ledger
}

// Provider is one model API.
type Provider struct {
	// BaseURL is the address of the API. If it is empty, it is that of [DefaultURL].
	BaseURL string
	// Key is the key of requests for which Keys has none. Without any key a request is refused.
	Key string
	// Prices are by model name, or by a prefix of it that ends in "*". The longest match counts.
	Prices map[string]Price
}

// Price is the price of a million tokens, in millionths of a currency unit. Tokens read from or written to the
// provider's cache cost as much as others if their price is 0.
type Price struct{ Input, Output, CacheRead, CacheWrite int64 }

// Budget bounds one run. Fields that are zero do not bound it. With CostMicros, models without a known price are
// refused.
type Budget struct {
	Tokens     int64 // input and output, including tokens read from a cache
	CostMicros int64
	Calls      int64 // default 10,000, because each is a line in the run's journal
}

func (b Budget) calls() int64 {
	if b.Calls == 0 {
		return 10_000
	}
	return b.Calls
}

// maxPrice keeps the cost of the largest number of tokens within 63 bits.
const maxPrice = 1 << 30

// DefaultURL returns a provider's own address, or "" for an unknown name.
func DefaultURL(name string) string {
	if a := apis[name]; a != nil {
		return a.url
	}
	return ""
}

// Names returns the names of all possible providers.
func Names() []string { return []string{"anthropic", "gemini", "openai"} }

// served is a Provider that is served.
type served struct {
	*api
	name    string
	base    string // without a slash at the end
	key     string
	prices  map[string]Price
	changed atomic.Pointer[map[string]Price] // the prices of the last Apply, nil before
	secrets *redact.Secrets                  // the key
}

// Check returns an error if an option is wrong.
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

func newProvider(name string, c Provider) (*served, error) {
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
				return nil, fmt.Errorf("cannot serve the model provider %s: the price of %s is not between 0 and %d",
					name, model, maxPrice/1_000_000)
			}
		}
	}
	secrets, _ := redact.New(map[string]string{"model key": c.Key})
	return &served{api: a, name: name, base: strings.TrimSuffix(strings.TrimRight(base, "/"), a.version),
		key: c.Key, prices: c.Prices, secrets: secrets}, nil
}

// start reads the options once.
func (p *Proxy) start() {
	p.providers = make(map[string]*served)
	for name, c := range p.Providers {
		v, err := newProvider(name, c)
		if err != nil {
			p.log().Error("a model provider is not served", "err", err)
			continue
		}
		if c.Key != "" || p.Keys != nil {
			p.providers[name] = v
		}
	}
}

// Handler returns the handler of /model/ at the door of a container.
func (p *Proxy) Handler(v executor.Visitor) http.Handler {
	return p.handler(func(r *http.Request) (guest, bool) {
		g, ok := v.Enter(r.Context())
		return g, ok
	})
}

// handler serves the requests that enter accepts.
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

// Apply changes the prices of providers, by their names, and the budget. Calls that begin later are counted by them.
// The error is that of [Proxy.Check].
func (p *Proxy) Apply(prices map[string]map[string]Price, b Budget) error {
	next := Proxy{Budget: b, Providers: make(map[string]Provider)}
	for name, list := range prices {
		next.Providers[name] = Provider{Prices: list}
	}
	if err := next.Check(); err != nil {
		return err
	}
	p.open.Do(p.start)
	p.changed.Store(&b)
	for name, list := range prices {
		if v := p.providers[name]; v != nil {
			v.changed.Store(&list)
		}
	}
	return nil
}

// PresentBudget returns the budget of runs, as the last [Proxy.Apply] set it.
func (p *Proxy) PresentBudget() Budget {
	if b := p.changed.Load(); b != nil {
		return *b
	}
	return p.Budget
}

// price returns the price of a model. The name that the provider reported comes before the requested one.
func (v *served) price(names ...string) (Price, bool) {
	prices := v.prices
	if changed := v.changed.Load(); changed != nil {
		prices = *changed
	}
	for _, name := range names {
		if price, ok := prices[name]; ok {
			return price, true
		}
		best := ""
		for pattern := range prices {
			if prefix, isPrefix := strings.CutSuffix(pattern, "*"); isPrefix && strings.HasPrefix(name, prefix) &&
				len(pattern) > len(best) {
				best = pattern
			}
		}
		if best != "" {
			return prices[best], true
		}
	}
	return Price{}, false
}

// cost returns the cost of tokens in millionths, rounded up so that many small calls cannot evade a budget.
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

// known returns the names of the served providers, for people.
func (p *Proxy) known() []string {
	var names []string
	for name := range p.providers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
