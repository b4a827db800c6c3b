package executor

import (
	"encoding/json"
	"math"
)

// ModelCall is one call of a model: the data of an [EventUsage].
type ModelCall struct {
	Provider string `json:"provider"`         // "anthropic", "openai", "gemini"
	Model    string `json:"model"`            // as the provider names it, or else as it was asked for
	Status   int    `json:"status,omitempty"` // HTTP's; 0: there was no answer
	// InputTokens are all that went in, those read from and written to the provider's
	// cache included; CacheRead and CacheWrite say how many of them those are.
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"` // what the model thought included
	CacheRead    int64 `json:"cache_read,omitempty"`
	CacheWrite   int64 `json:"cache_write,omitempty"`
	CostMicros   int64 `json:"cost_micros"`
	DurationMS   int64 `json:"duration_ms"`
	// Estimated: the answer ended before the provider said what it counted.
	Estimated bool `json:"estimated,omitempty"`
	// Ended says why ramus ended or refused the call: [EndedBudget], [EndedTime]. Empty: it did not.
	Ended string `json:"ended,omitempty"`
	// Refused: the call never reached the provider.
	Refused bool `json:"refused,omitempty"`
}

// Why ramus ended a call of a model.
const (
	EndedBudget = "budget" // the run's budget was used up
	EndedTime   = "time"   // it took too long
)

// Tokens is what counts against a budget of tokens; 0 for nil.
func (u *Usage) Tokens() int64 {
	if u == nil {
		return 0
	}
	return sum(u.InputTokens, u.OutputTokens)
}

// Plus is the usage with one more call. u, which may be nil, stays as it is:
// copies of a run share it.
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

// sum adds what is never negative and stays at the largest number: a budget
// that overflowed would be none.
func sum(a, b int64) int64 {
	if a, b = max(a, 0), max(b, 0); a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// used adds a call to what the run has used, if the event is one.
func (r *Run) used(e Event) {
	var c ModelCall
	if e.Type == EventUsage && json.Unmarshal(e.Data, &c) == nil {
		r.Usage = r.Usage.Plus(c)
	}
}
