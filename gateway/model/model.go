// Package model is the way from a container to model APIs: it serves
// /model/PROVIDER/… at the door, adds the real key on the host's side, counts
// tokens and cost into the run's journal, and cuts off at a budget.
package model

import (
	"net/http"

	"github.com/ramus-dev/ramus/executor"
)

// Proxy serves the model APIs. Its exported fields are its options.
type Proxy struct {
	// Providers by name: "anthropic", "openai", "gemini".
	Providers map[string]Provider
	Budget    Budget
	HTTP      *http.Client
}

// Provider is one model API.
type Provider struct {
	BaseURL string
	Key     string
	// Prices by model name, or by a prefix of it that ends in "*".
	Prices map[string]Price
}

// Price of a million tokens, in millionths of a currency unit.
type Price struct{ Input, Output, CacheRead, CacheWrite int64 }

// Budget bounds one run; zero fields do not.
type Budget struct {
	Tokens     int64 // in and out together
	CostMicros int64
}

// Handler is what a container finds at /model/ of its door.
func (p *Proxy) Handler(v executor.Visitor) http.Handler { panic("not built") }
