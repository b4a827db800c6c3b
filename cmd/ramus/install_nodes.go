package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/hetzner"
)

// newNodes opens the book of nodes.
func newNodes(c Config, secret *secrets, log *slog.Logger) (*nodes.Nodes, error) {
	n := &nodes.Nodes{Dir: filepath.Join(c.Data, "nodes"), URL: programsURL(c), Size: c.Nodes.Size,
		Location: c.Nodes.Location, Most: c.Nodes.Most, StaleAfter: time.Duration(c.Nodes.StaleAfter),
		BootWait: time.Duration(c.Nodes.BootWait), Log: log}
	for _, r := range c.Nodes.Ranges {
		prefix, err := netip.ParsePrefix(r)
		if err != nil {
			return nil, fmt.Errorf("cannot use nodes.ranges: %w", err)
		}
		n.Ranges = append(n.Ranges, prefix.Masked())
	}
	switch c.Nodes.Provider {
	case "":
	case "hetzner":
		token, err := secret.value("nodes.token", c.Nodes.TokenEnv, c.Nodes.TokenFile)
		if err != nil {
			return nil, err
		}
		if token == "" {
			return nil, fmt.Errorf("cannot use nodes.provider: hetzner needs nodes.token_env or nodes.token_file")
		}
		p := hetzner.New(hetzner.Options{Token: token, Endpoint: c.Nodes.Endpoint, Name: c.Nodes.Name,
			Image: c.Nodes.Image, Sizes: c.Nodes.Sizes})
		if err := p.Check(n.Size, n.Location); err != nil {
			return nil, fmt.Errorf("cannot use nodes: %w", err)
		}
		n.Provider = p
	default:
		return nil, fmt.Errorf("cannot use nodes.provider: it is %q; want hetzner", c.Nodes.Provider)
	}
	return n, n.Open()
}
