package domain

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The first labels of the hosts that are no workspaces.
const (
	pagesLabel   = "app"
	apiLabel     = "api"
	contentLabel = "content"
)

// Bounds of names in DNS, in bytes.
const (
	maxLabel = 63
	maxName  = 253
	maxOwn   = maxName - maxLabel - 1 // of a domain, so that each label has room below it
)

// Domain is a name whose subdomains are the parts of a server. Its exported field is its option, which may be changed
// until several goroutines use it. All methods are safe for concurrent use.
type Domain struct {
	// NoWorkspaces means that workspaces and their ports have no hosts, because there is no certificate for them. Their
	// pages and previews are below paths of the pages' host.
	NoWorkspaces bool

	scheme string // "https", or "http" on the loopback
	name   string // in lower case
	port   string // "443"
}

// Parse reads the domain of a configuration. It is a name, which is reached by https, or an origin such as
// https://example.org:8443. With http only names of this machine are accepted: localhost, and those below it.
func Parse(text string) (*Domain, error) {
	bad := func(why string) (*Domain, error) {
		return nil, fmt.Errorf("cannot use the domain %.300q: %s; want a name such as ramus.example.org", text, why)
	}
	full := text
	if !strings.Contains(text, "://") {
		full = "https://" + text
	}
	u, err := url.Parse(full)
	switch {
	case err != nil || u.Host == "":
		return bad("it is no name")
	case u.Scheme != "https" && u.Scheme != "http":
		return bad("its scheme is neither https nor http")
	case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return bad("it has more than a scheme, a name and a port")
	case strings.Contains(u.Hostname(), "*"):
		return bad(`it has a wildcard; leave out "*."`)
	case net.ParseIP(u.Hostname()) != nil:
		return bad("an address has no subdomains")
	}
	d := &Domain{scheme: u.Scheme, name: lower(u.Hostname()), port: u.Port()}
	if why := badName(d.name); why != "" {
		return bad(why)
	}
	if d.scheme == "http" && !d.Local() {
		return bad("browsers keep sessions apart by https alone, except on localhost")
	}
	if !d.Local() && !strings.Contains(d.name, ".") {
		return bad("it has no dot")
	}
	if d.port == "" {
		d.port = map[string]string{"https": "443", "http": "80"}[d.scheme]
	}
	if n, err := strconv.ParseUint(d.port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != d.port {
		return bad("its port is none of 1 to 65535")
	}
	return d, nil
}

// badName returns why a name cannot be one of DNS. Returns "" if it can.
func badName(name string) string {
	if len(name) > maxOwn {
		return fmt.Sprintf("it has more than %d bytes", maxOwn)
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "" || len(label) > maxLabel:
			return "each part has 1 to 63 bytes"
		case strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			return "it has characters other than letters, digits, hyphens and dots (other scripts have a " +
				"form with xn--)"
		case strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-"):
			return "a part begins or ends with a hyphen"
		}
	}
	return ""
}

// lower returns a name of ASCII in lower case. It does not map other characters, because the lower case of some, such
// as U+212A, is ASCII.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// String returns the name.
func (d *Domain) String() string { return d.name }

// Secure reports whether browsers reach the domain by https.
func (d *Domain) Secure() bool { return d.scheme == "https" }

// Local reports whether the name is localhost or below it, which always means the machine of the browser.
func (d *Domain) Local() bool {
	return d.name == "localhost" || strings.HasSuffix(d.name, ".localhost")
}

// Port returns the port of all hosts, such as "443".
func (d *Domain) Port() string { return d.port }

// host returns the host of a label as browsers write it, without the usual port of the scheme.
func (d *Domain) host(label string) string {
	host := label + "." + d.name
	if d.scheme == "https" && d.port == "443" || d.scheme == "http" && d.port == "80" {
		return host
	}
	return host + ":" + d.port
}

func (d *Domain) url(label string) string { return d.scheme + "://" + d.host(label) }

// Pages returns the URL of the pages, without a slash at its end.
func (d *Domain) Pages() string { return d.url(pagesLabel) }

// API returns the URL of the routes for programs, and of the repositories.
func (d *Domain) API() string { return d.url(apiLabel) }

// Content returns the URL of the trace viewer.
func (d *Domain) Content() string { return d.url(contentLabel) }

// Fixed returns the names that do not depend on workspaces.
func (d *Domain) Fixed() []string {
	return []string{pagesLabel + "." + d.name, apiLabel + "." + d.name, contentLabel + "." + d.name}
}

// Wildcard returns the name of a certificate and of a record in DNS for all hosts of the domain.
func (d *Domain) Wildcard() string { return "*." + d.name }

// Example returns the name of a host of a workspace, for a look at a certificate or at DNS.
func (d *Domain) Example() string { return workspacePrefix + "run-example." + d.name }

// CheckACME returns an error if the names of which ACME gets certificates do not include all of [Domain.Fixed].
func (d *Domain) CheckACME(hosts []string) error {
	var known []string
	for _, h := range hosts {
		known = append(known, lower(h))
	}
	for _, name := range d.Fixed() {
		if !slices.Contains(known, name) {
			return fmt.Errorf("cannot serve the domain %s: acme.hosts does not have %s; it needs %s", d.name, name,
				strings.Join(d.Fixed(), ", "))
		}
	}
	return nil
}
