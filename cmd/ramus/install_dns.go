package main

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/executor/dns"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/record"
)

// openNames makes the names in DNS. Without a provider there are none.
func (o *opening) openNames() error {
	c := o.config
	if c.DNS.Provider == "" {
		return nil
	}
	zone, err := newZone(c.DNS, o.secret)
	if err != nil {
		return fmt.Errorf("cannot use dns: %w", err)
	}
	n := &dns.Names{Zone: zone, Name: c.DNS.Zone, File: filepath.Join(c.Data, "dns.json"), TTL: time.Duration(c.DNS.TTL),
		Log: o.log, Sources: map[string]dns.Source{"nodes": o.nodeNames}}
	var addrs []netip.Addr
	for _, text := range c.DNS.Workspaces {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("cannot use dns.workspaces: %w", err)
		}
		addrs = append(addrs, a)
	}
	if len(addrs) > 0 {
		if o.domain == nil || o.domain.NoWorkspaces || !n.Below("x."+o.domain.String()) {
			return fmt.Errorf("cannot use dns.workspaces: there is no `domain` with workspaces in the zone %s", c.DNS.Zone)
		}
		n.Sources["workspaces"] = func(context.Context) (map[string][]netip.Addr, error) {
			return o.workspaceNames(addrs), nil
		}
	}
	o.hostNames = n
	return nil
}

// newZone returns the zone of a configuration.
func newZone(c DNSConfig, secret *secrets) (dns.Zone, error) {
	token, err := secret.value("dns.token", c.TokenEnv, c.TokenFile)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Zone == "":
		return nil, fmt.Errorf("dns.zone is needed")
	case token == "":
		return nil, fmt.Errorf("%s needs dns.token_env or dns.token_file", c.Provider)
	case c.Provider == "rfc2136" && c.Endpoint == "":
		return nil, fmt.Errorf("rfc2136 needs dns.endpoint, HOST:PORT of the name server")
	case c.Provider == "rfc2136":
		return dns.Update(c.Endpoint, c.Key, token), nil
	case c.Provider != "cloudflare":
		return nil, fmt.Errorf("dns.provider is %q; want cloudflare or rfc2136", c.Provider)
	case c.Endpoint == "":
		return dns.Cloudflare(token, nil), nil
	}
	origin, err := url.Parse(c.Endpoint)
	if err != nil || origin.Host == "" {
		return nil, fmt.Errorf("dns.endpoint %q is no origin", c.Endpoint)
	}
	return dns.Cloudflare(token, origin), nil
}

// nodeNames returns the names of the nodes that run.
func (i *installation) nodeNames(context.Context) (map[string][]netip.Addr, error) {
	names := make(map[string][]netip.Addr)
	for _, n := range i.nodes.List() {
		if a, err := netip.ParseAddr(n.Address); err == nil && n.State == nodes.StateRunning && n.Source == nodes.SourceCloud {
			names[n.ID+".vm."+i.config.DNS.Zone] = []netip.Addr{a}
		}
	}
	return names, nil
}

// workspaceNames returns the names of the workspaces that have containers.
func (i *installation) workspaceNames(addrs []netip.Addr) map[string][]netip.Addr {
	names := make(map[string][]netip.Addr)
	for _, key := range i.executor.Fleet.Keys() {
		caller, err := record.ParseCaller(key)
		if err != nil {
			continue // a companion
		}
		if u, err := url.Parse(i.domain.Workspace(caller)); err == nil && u.Hostname() != "" {
			names[u.Hostname()] = addrs
		}
	}
	return names
}
