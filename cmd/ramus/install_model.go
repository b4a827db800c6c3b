package main

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/ramus-dev/ramus/gateway/model"
	"github.com/ramus-dev/ramus/gateway/web"
)

// newModels returns the handler of /model/ at the door of containers. Without any key its answers explain the
// configuration.
func newModels(c ModelsConfig, secret *secrets, log *slog.Logger) (*model.Proxy, error) {
	p := &model.Proxy{
		Providers: make(map[string]model.Provider),
		Budget:    newBudget(c.Budget),
		Timeout:   time.Duration(c.Timeout), Calls: c.Parallel, Log: log,
	}
	prices := newPrices(c)
	for name, m := range map[string]ModelConfig{"anthropic": c.Anthropic, "openai": c.OpenAI, "gemini": c.Gemini} {
		key, err := secret.value("models."+name+".api_key", m.APIKeyEnv, m.APIKeyFile)
		if err != nil {
			return nil, err
		}
		p.Providers[name] = model.Provider{BaseURL: m.BaseURL, Key: key, Prices: prices[name]}
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("cannot serve models: %w", err)
	}
	return p, nil
}

// micros converts units to millionths. Values that are too large become the largest.
func micros(units float64) int64 {
	return int64(min(math.Round(units*1e6), math.MaxInt64/2))
}

// budget returns the bounds of one run, for pages.
func (i *installation) budget() web.Budget {
	b := i.models.PresentBudget()
	return web.Budget{CostMicros: b.CostMicros, Tokens: b.Tokens}
}
