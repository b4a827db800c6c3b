// Package hetzner makes machines at Hetzner Cloud.
package hetzner

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/ramus-dev/ramus/executor/nodes"
)

// The labels of machines.
const (
	labelServer = "ramus-server" // the name of the server that ordered the machine
	labelNode   = "ramus-node"
)

// Locations are the places in which machines are made.
func Locations() []string { return []string{"nbg1", "fsn1", "hel1"} }

// Sizes returns the types of servers of the sizes, by default.
func Sizes() map[string]string {
	return map[string]string{"small": "cx23", "medium": "cx33", "large": "cx43"}
}

// Options configures a Provider.
type Options struct {
	// Token is a token of a project with the right to read and write.
	Token string
	// Endpoint is the URL of the API. Empty means that of Hetzner.
	Endpoint string
	// Name distinguishes the machines of several servers in one project. Required.
	Name string
	// Image is the name of the image of machines. Required.
	Image string
	// Sizes has the type of server of each size. If it is empty, they are [Sizes].
	Sizes map[string]string
	// Locations are those that may be ordered. If it is empty, they are [Locations].
	Locations []string
	// Wait is the pause before the first of three further attempts, if a request was limited. The default is a second.
	Wait time.Duration
}

// Provider is a [nodes.Provider]. Methods are safe for concurrent use.
type Provider struct {
	client *hcloud.Client
	o      Options
}

// New returns a Provider.
func New(o Options) *Provider {
	if len(o.Sizes) == 0 {
		o.Sizes = Sizes()
	}
	if len(o.Locations) == 0 {
		o.Locations = Locations()
	}
	if o.Wait == 0 {
		o.Wait = time.Second
	}
	options := []hcloud.ClientOption{hcloud.WithToken(o.Token), hcloud.WithApplication("ramus", ""),
		hcloud.WithHTTPClient(&http.Client{Timeout: 30 * time.Second}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 3,
			BackoffFunc: hcloud.ExponentialBackoffWithOpts(hcloud.ExponentialBackoffOpts{Base: o.Wait, Multiplier: 2,
				Cap: 10 * o.Wait})})}
	if o.Endpoint != "" {
		options = append(options, hcloud.WithEndpoint(strings.TrimSuffix(o.Endpoint, "/")))
	}
	return &Provider{client: hcloud.NewClient(options...), o: o}
}

// Check returns an error that names the choices if there is no such size or location.
func (p *Provider) Check(size, location string) error {
	return nodes.CheckChoice(p.o.Sizes, p.o.Locations, size, location)
}

// Create makes the machine of an order. Returns the present one if the node has one.
func (p *Provider) Create(ctx context.Context, o nodes.Order) (nodes.Machine, error) {
	result, _, err := p.client.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: p.o.Name + "-" + o.Node, ServerType: &hcloud.ServerType{Name: p.o.Sizes[o.Size]},
		Image: &hcloud.Image{Name: p.o.Image}, Location: &hcloud.Location{Name: o.Location}, UserData: o.UserData,
		Labels: map[string]string{labelServer: p.o.Name, labelNode: o.Node},
	})
	// An answer that was lost leaves a machine with this name, so that a further attempt is refused.
	if hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		of, err := p.of(ctx, o.Node)
		if err == nil && len(of) > 0 {
			return machine(of[0]), nil
		}
		return nodes.Machine{}, fmt.Errorf("cannot make a machine at Hetzner: another machine has its name: %w", err)
	}
	if err != nil {
		return nodes.Machine{}, fmt.Errorf("cannot make a machine at Hetzner: %w", err)
	}
	return machine(result.Server), nil
}

// Delete removes all machines of a node. It is no error if there is none.
func (p *Provider) Delete(ctx context.Context, node string) error {
	of, err := p.of(ctx, node)
	if err != nil {
		return fmt.Errorf("cannot find the machine at Hetzner: %w", err)
	}
	for _, s := range of {
		_, _, err := p.client.Server.DeleteWithResult(ctx, s)
		if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
			return fmt.Errorf("cannot remove the machine at Hetzner: %w", err)
		}
	}
	return nil
}

// List returns the machines of this server, up to a thousand.
func (p *Provider) List(ctx context.Context) ([]nodes.Machine, error) {
	of, err := p.labelled(ctx, labelServer+"="+p.o.Name)
	if err != nil {
		return nil, fmt.Errorf("cannot list the machines at Hetzner: %w", err)
	}
	all := make([]nodes.Machine, len(of))
	for i, s := range of {
		all[i] = machine(s)
	}
	return all, nil
}

// of returns the machines of a node.
func (p *Provider) of(ctx context.Context, node string) ([]*hcloud.Server, error) {
	return p.labelled(ctx, labelServer+"="+p.o.Name+","+labelNode+"="+node)
}

// labelled returns the machines that a selector of labels finds.
func (p *Provider) labelled(ctx context.Context, selector string) ([]*hcloud.Server, error) {
	const perPage, most = 50, 1000
	var all []*hcloud.Server
	for page := 1; len(all) < most; page++ {
		some, resp, err := p.client.Server.List(ctx, hcloud.ServerListOpts{
			ListOpts: hcloud.ListOpts{Page: page, PerPage: perPage, LabelSelector: selector}})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if resp.Meta.Pagination == nil || resp.Meta.Pagination.NextPage <= page {
			break
		}
	}
	return all, nil
}

// machine returns a server as a machine.
func machine(s *hcloud.Server) nodes.Machine {
	m := nodes.Machine{ID: strconv.FormatInt(s.ID, 10), Node: s.Labels[labelNode], Name: s.Name, Created: s.Created.UTC()}
	if ip := s.PublicNet.IPv4.IP; ip != nil {
		m.Address = ip.String()
	}
	return m
}
