package main

import (
	"log/slog"

	"github.com/ramus-dev/ramus/gateway/trace"
)

// TracesConfig names the collector of traces.
type TracesConfig struct {
	URL       string `yaml:"url"`
	Header    string `yaml:"header"`
	TokenEnv  string `yaml:"token_env"`
	TokenFile string `yaml:"token_file"`
}

// newTraces returns the exporter of traces, which is open. Returns nil if no collector is configured.
func newTraces(c TracesConfig, secret *secrets, log *slog.Logger) (*trace.Exporter, error) {
	token, err := secret.value("traces.token", c.TokenEnv, c.TokenFile)
	if err != nil || c.URL == "" {
		return nil, err
	}
	e := &trace.Exporter{URL: c.URL, Header: c.Header, Token: token, Version: buildVersion(), Log: log}
	return e, e.Open()
}
