package record

import (
	"encoding/json"
	"math"
)

// Usage counts the use of models by a run's agent. The zero value is no use.
type Usage struct {
	Calls        int64 `json:"calls"`
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CostMicros   int64 `json:"cost_micros"` // in millionths of the prices' currency unit; 0 if no price is known
	// Exhausted is set once a call was refused or ended because the budget was used up.
	Exhausted bool `json:"exhausted,omitempty"`
}

// ModelCall is one call of a model. It is the data of an [EventUsage].
type ModelCall struct {
	Provider string `json:"provider"`         // "anthropic", "openai", "gemini"
	Model    string `json:"model"`            // by the provider, or else of the request
	Status   int    `json:"status,omitempty"` // of HTTP; 0 for no answer
	// InputTokens include CacheRead and CacheWrite, the tokens read from and written to the provider's cache.
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"` // includes the model's reasoning
	CacheRead    int64 `json:"cache_read,omitempty"`
	CacheWrite   int64 `json:"cache_write,omitempty"`
	CostMicros   int64 `json:"cost_micros"`
	DurationMS   int64 `json:"duration_ms"`
	// Estimated is set if the answer ended before the provider reported its count.
	Estimated bool `json:"estimated,omitempty"`
	// Ended is [EndedBudget] or [EndedTime] if ramus ended or refused the call, and empty otherwise.
	Ended string `json:"ended,omitempty"`
	// Credential is the id of the sealed credential with which the provider was asked. Empty means the key of the
	// configuration.
	Credential string `json:"credential,omitempty"`
	// Refused is set if the call never reached the provider.
	Refused bool `json:"refused,omitempty"`
}

// Values of ModelCall.Ended.
const (
	EndedBudget = "budget" // the run's budget was used up
	EndedTime   = "time"   // it took too long
)

// Tokens returns the count against a budget of tokens. It is 0 for nil.
func (u *Usage) Tokens() int64 {
	if u == nil {
		return 0
	}
	return sum(u.InputTokens, u.OutputTokens)
}

// Plus returns the usage with one more call. It does not change u, which may be nil, since copies of a run share it.
func (u *Usage) Plus(c ModelCall) *Usage {
	var v Usage
	if u != nil {
		v = *u
	}
	if !c.Refused {
		v.Calls++
		v.InputTokens = sum(v.InputTokens, c.InputTokens)
		v.OutputTokens = sum(v.OutputTokens, c.OutputTokens)
		v.CostMicros = sum(v.CostMicros, c.CostMicros)
	}
	v.Exhausted = v.Exhausted || c.Ended == EndedBudget
	return &v
}

// sum adds two counts and saturates, so that an overflow cannot reset a budget. Negative counts are 0.
func sum(a, b int64) int64 {
	if a, b = max(a, 0), max(b, 0); a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// AddUsage adds the call of a model to the run's usage if e is an [EventUsage].
func (r *Run) AddUsage(e Event) {
	var c ModelCall
	if e.Type == EventUsage && json.Unmarshal(e.Data, &c) == nil {
		r.Usage = r.Usage.Plus(c)
	}
}
