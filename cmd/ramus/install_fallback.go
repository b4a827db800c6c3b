package main

import (
	"time"

	"github.com/ramus-dev/ramus/gateway/fallback"
)

// newFallback returns the client of the fallback runner. Returns nil if there is none.
func newFallback(c FallbackConfig, secret *secrets) (*fallback.Client, error) {
	if c.URL == "" {
		return nil, nil
	}
	key, err := secret.value("fallback.secret", c.SecretEnv, c.SecretFile)
	if err != nil {
		return nil, err
	}
	f := &fallback.Client{URL: c.URL, Secret: key, Timeout: time.Duration(c.Timeout)}
	return f, f.Check()
}
