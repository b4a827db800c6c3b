package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gateway/domain"
)

// settleDomain gives url the value that follows from the domain. The host of programs is accepted, too, because
// other commands than serve have it in RAMUS_URL. [newDomain] refuses all others.
func (c *Config) settleDomain() error {
	if c.Domain == "" {
		return nil
	}
	d, err := domain.Parse(c.Domain)
	if err != nil {
		return err
	}
	own := strings.TrimSuffix(c.URL, "/")
	if own == "" || strings.EqualFold(own, d.API()) || strings.EqualFold(own, d.Pages()) {
		c.URL = d.Pages()
	}
	return nil
}

// newDomain returns the domain of a configuration. Returns nil if it has none.
func newDomain(c Config) (*domain.Domain, error) {
	if c.Domain == "" {
		return nil, nil
	}
	d, err := domain.Parse(c.Domain)
	if err != nil {
		return nil, err
	}
	if c.URL != "" && c.URL != d.Pages() {
		return nil, fmt.Errorf("domain and url do not match: with domain, the pages are at %s, and not at %.300s; "+
			"leave url and RAMUS_URL empty", d.Pages(), c.URL)
	}
	if len(c.ACME.Hosts) > 0 {
		if err := d.CheckACME(c.ACME.Hosts); err != nil {
			return nil, err
		}
		d.NoWorkspaces = true
	}
	if c.RedirectListen != "" && !d.Secure() {
		return nil, errors.New("redirect_listen leads to TLS, and domain is reached by http")
	}
	return d, checkOtherHosts(c, d)
}

// checkOtherHosts returns an error if another key uses a host of the domain.
func checkOtherHosts(c Config, d *domain.Domain) error {
	u, err := url.Parse(c.Web.ContentURL)
	if err != nil || c.Web.ContentURL == "" {
		return nil // its own error says more
	}
	if p := d.Find(u.Hostname()); p.Part != domain.Nothing && p.Part != domain.Content {
		return fmt.Errorf("cannot use web.content_url: %s is a host of domain; leave it empty, which means %s",
			u.Hostname(), d.Content())
	}
	return nil
}

// parsedDomain returns the domain of a configuration without the checks of [newDomain]. Returns nil if there is none,
// or if [Config.settleDomain] refuses it.
func parsedDomain(c Config) *domain.Domain {
	if c.Domain == "" {
		return nil
	}
	d, err := domain.Parse(c.Domain)
	if err != nil {
		return nil
	}
	return d
}

// programsURL returns the URL where programs and git reach the server of a configuration.
func programsURL(c Config) string {
	if d := parsedDomain(c); d != nil {
		return d.API()
	}
	return c.URL
}

// domainNames returns the names that have to lead to the server, for a certificate and for DNS.
func domainNames(d *domain.Domain) []string {
	names := d.Fixed()
	if !d.NoWorkspaces {
		names = append(names, d.Example())
	}
	return slices.Clip(names)
}
