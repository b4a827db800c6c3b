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
	// Firewall has the machine drop all connections but those of Ranges to SSH, and to a kubelet.
	Firewall bool
	// Ranges may connect. Nil means none.
	Ranges []netip.Prefix
	// Join is how the machine joins the cluster. Empty means that there is none.
	Join Join
	// Install is the script that installs programs. Required with Join.
	Install string
}

// Join is how machines join the cluster.
type Join string

// The ways to join a cluster.
const (
	JoinKubelet Join = "kubelet" // a kubelet and containerd, for a cluster as kubeadm makes it
	JoinK3s     Join = "k3s"     // the agent of k3s
)

// IPv4 returns the ranges of IPv4, for nftables.
func (d Description) IPv4() string { return list(d.Ranges, true) }

// IPv6 returns the ranges of IPv6, for nftables.
func (d Description) IPv6() string { return list(d.Ranges, false) }

// Ports returns the ports that Ranges may connect to. The API server connects to a kubelet. The agent of k3s connects to
// its server.
func (d Description) Ports() string {
	if d.Join == JoinKubelet {
		return "{ 22, 10250 }"
	}
	return "22"
}

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
	cloudInitTemplate = template.Must(template.New("cloud-init").Funcs(template.FuncMap{"lines": indent}).Parse(cloudInit))
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

// indent returns a text as the lines of a block of the template.
func indent(s string) string {
	return strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n      ")
}
