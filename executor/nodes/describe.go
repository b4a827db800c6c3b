package nodes

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"text/template"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// Description has the values in the description of a machine for cloud-init.
type Description struct {
	Node, URL string
	// Token is good for one redemption.
	Token string
	// Ranges may connect to SSH. Nil means none.
	Ranges []netip.Prefix
}

// IPv4 returns the ranges of IPv4, for nftables.
func (d Description) IPv4() string { return list(d.Ranges, true) }

// IPv6 returns the ranges of IPv6, for nftables.
func (d Description) IPv6() string { return list(d.Ranges, false) }

func list(ranges []netip.Prefix, v4 bool) string {
	var of []string
	for _, r := range ranges {
		if r.Addr().Is4() == v4 {
			of = append(of, r.String())
		}
	}
	return strings.Join(of, ", ")
}

//go:embed cloud-init.yaml
var cloudInit string

var (
	cloudInitTemplate = template.Must(template.New("cloud-init").Parse(cloudInit))
	plainWord         = pattern.New(`^[A-Za-z0-9-]{1,100}$`)
	plainURL          = pattern.New(`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._/-]*)?$`)
)

// Describe returns the description of a machine for cloud-init. It refuses values that mean something to a shell.
func Describe(d Description) (string, error) {
	d.URL = strings.TrimSuffix(d.URL, "/")
	if _, err := url.Parse(d.URL); err != nil || !plainURL.MatchString(d.URL) {
		return "", fmt.Errorf("cannot describe a machine: the URL %q of this server has unusual characters", d.URL)
	}
	if !plainWord.MatchString(d.Node) || !plainWord.MatchString(d.Token) {
		return "", errors.New("cannot describe a machine: its name or token has unusual characters")
	}
	var b strings.Builder
	if err := cloudInitTemplate.Execute(&b, d); err != nil {
		return "", fmt.Errorf("cannot describe a machine: %w", err)
	}
	return b.String(), nil
}
