package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/cert"
	"github.com/ramus-dev/ramus/gateway/domain"
)

// lookUpWithin bounds the DNS lookups of the names of a domain.
const lookUpWithin = 5 * time.Second

// diagnoseDomain describes the hosts of the domain: whether DNS has their names, and the certificate is for them.
// Without a domain it returns "" and no error. lookUp is that of net.Resolver.
func diagnoseDomain(ctx context.Context, c Config,
	lookUp func(context.Context, string) ([]string, error)) (string, error) {
	d, err := newDomain(c)
	if err != nil || d == nil {
		return "", err
	}
	says := fmt.Sprintf("pages at %s, programs and git at %s", d.Pages(), d.API())
	if d.NoWorkspaces {
		says += fmt.Sprintf("; workspaces are below paths of the pages, because ACME gets no certificate of %s "+
			"without DNS-01 (tls_cert with such a certificate gives them hosts)", d.Wildcard())
	} else {
		says += ", workspaces at " + strings.Replace(d.Example(), "run-example", "ID", 1)
	}
	names := domainNames(d)
	if c.TLSCert != "" {
		if err := checkCertificate(c, d, names); err != nil {
			return "", err
		}
	}
	if d.Local() {
		return says + "; browsers know the way to names below localhost, and other programs may need " +
			"`curl --resolve`", nil
	}
	return says, checkNames(ctx, d, names, lookUp)
}

// checkCertificate returns an error if the certificate of a configuration is not for all names.
func checkCertificate(c Config, d *domain.Domain, names []string) error {
	chain, err := folder(c.TLSCert)
	if err != nil {
		return err
	}
	key, err := folder(c.TLSKey)
	if err != nil {
		return err
	}
	missing, err := cert.Lacks(chain, key, names)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%s is not for %s; a certificate of %s is for all hosts of the domain", c.TLSCert,
			strings.Join(missing, ", "), d.Wildcard())
	}
	return err
}

// checkNames returns an error if DNS does not have a name.
func checkNames(ctx context.Context, d *domain.Domain, names []string,
	lookUp func(context.Context, string) ([]string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, lookUpWithin)
	defer cancel()
	var missing []string
	for _, name := range names {
		if found, err := lookUp(ctx, name); err != nil || len(found) == 0 {
			missing = append(missing, name)
		}
		if ctx.Err() != nil {
			return errors.New("DNS does not answer about the names of the domain")
		}
	}
	switch {
	case len(missing) == 0:
		return nil
	case slices.Contains(missing, d.Example()):
		return fmt.Errorf("DNS has no %s; a record of %s that leads to this machine has all names",
			strings.Join(missing, ", "), d.Wildcard())
	}
	return fmt.Errorf("DNS has no %s; each needs a record that leads to this machine", strings.Join(missing, ", "))
}
