// Package openstack makes machines at clouds of OpenStack.
//
// Names of servers are not unique there, and a request has no key of its own. So a machine is looked for by its label
// before it is made, and after an answer that was lost.
package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// The metadata of machines.
const (
	labelServer = "ramus-server" // the name of the server that ordered the machine
	labelNode   = "ramus-node"
)

// Options configures a Provider.
type Options struct {
	// Endpoint is the URL of Keystone, such as https://cloud.example.org/identity/v3. Required.
	Endpoint string
	// Credential is an application credential, "ID:SECRET". Required.
	Credential string
	// Region is the region of the catalog. Empty means the only one.
	Region string
	// Network is the UUID of the network of machines. Required.
	Network string
	// Name distinguishes the machines of several servers in one project. Required.
	Name string
	// Image is the name of the image of machines, or its UUID. Required.
	Image string
	// Sizes has the flavor of each size. Required.
	Sizes map[string]string
	// Locations are the availability zones that may be ordered. Required.
	Locations []string
	// Wait is the pause before the first of three further attempts, if a request was limited. The default is a second.
	Wait time.Duration
}

// Provider is a [nodes.Provider]. Methods are safe for concurrent use.
type Provider struct {
	o        Options
	id       string
	password string

	mu      sync.Mutex // guards compute, and lets one goroutine sign in
	compute *gophercloud.ServiceClient
}

// New returns a Provider. It opens no connection.
func New(o Options) (*Provider, error) {
	id, password, ok := strings.Cut(o.Credential, ":")
	u, err := url.Parse(o.Endpoint)
	switch {
	case !ok || id == "" || password == "":
		return nil, errors.New("cannot use OpenStack: the token is not an application credential, ID:SECRET")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("cannot use OpenStack: nodes.endpoint must be the URL of Keystone")
	case o.Network == "" || o.Image == "" || o.Name == "":
		return nil, errors.New("cannot use OpenStack: nodes.network, nodes.image and nodes.name are needed")
	case len(o.Sizes) == 0 || len(o.Locations) == 0:
		return nil, errors.New("cannot use OpenStack: nodes.sizes and nodes.locations are needed, with flavors and " +
			"availability zones")
	}
	if o.Wait == 0 {
		o.Wait = time.Second
	}
	return &Provider{o: o, id: id, password: password}, nil
}

// Check returns an error that names the choices if there is no such size or location.
func (p *Provider) Check(size, location string) error {
	return nodes.CheckChoice(p.o.Sizes, p.o.Locations, size, location)
}

// nova returns the client of Nova. The first call signs in.
func (p *Provider) nova(ctx context.Context) (*gophercloud.ServiceClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.compute != nil {
		return p.compute, nil
	}
	client, err := openstack.NewClient(p.o.Endpoint)
	if err != nil {
		return nil, err
	}
	client.HTTPClient = http.Client{Timeout: 30 * time.Second}
	client.UserAgent.Prepend("ramus")
	client.MaxBackoffRetries, client.RetryBackoffFunc = 3, p.wait
	err = openstack.Authenticate(ctx, client, gophercloud.AuthOptions{IdentityEndpoint: p.o.Endpoint,
		ApplicationCredentialID: p.id, ApplicationCredentialSecret: p.password, AllowReauth: true})
	if err != nil {
		return nil, err
	}
	p.compute, err = openstack.NewComputeV2(client, gophercloud.EndpointOpts{Region: p.o.Region})
	return p.compute, err
}

// maxWait bounds the pause that a cloud may ask for.
const maxWait = 30 * time.Second

// wait waits before a further attempt of a request that was limited.
func (p *Provider) wait(ctx context.Context, r *gophercloud.ErrUnexpectedResponseCode, err error, retry uint) error {
	pause := p.o.Wait << retry
	if n, bad := strconv.Atoi(r.ResponseHeader.Get("Retry-After")); bad == nil && n > 0 {
		pause = min(time.Duration(n)*time.Second, pause*4)
	}
	timer := time.NewTimer(min(pause, maxWait))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return err
	}
}

// Create makes the machine of an order. Returns the present one if the node has one.
func (p *Provider) Create(ctx context.Context, o nodes.Order) (nodes.Machine, error) {
	wrap := func(err error) (nodes.Machine, error) {
		return nodes.Machine{}, fmt.Errorf("cannot make a machine at OpenStack: %w", err)
	}
	compute, err := p.nova(ctx)
	if err != nil {
		return wrap(err)
	}
	if m, found, err := p.find(ctx, o.Node); err != nil || found {
		return m, err
	}
	flavor, err := flavorID(ctx, compute, p.o.Sizes[o.Size])
	if err != nil {
		return wrap(err)
	}
	source, err := p.imageID(ctx, compute.ProviderClient)
	if err != nil {
		return wrap(err)
	}
	made, err := servers.Create(ctx, compute, servers.CreateOpts{Name: p.o.Name + "-" + o.Node, FlavorRef: flavor,
		ImageRef: source, AvailabilityZone: o.Location, UserData: []byte(o.UserData),
		Networks: []servers.Network{{UUID: p.o.Network}},
		Metadata: map[string]string{labelServer: p.o.Name, labelNode: o.Node}}, nil).Extract()
	if err == nil {
		return nodes.Machine{ID: made.ID, Node: o.Node, Name: p.o.Name + "-" + o.Node}, nil
	}
	// The cloud may have made the machine although its answer was lost.
	var refused gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &refused) && refused.Actual/100 == 4 {
		return wrap(err)
	}
	if m, found, again := p.find(ctx, o.Node); again == nil && found {
		return m, nil
	}
	return wrap(err)
}

// flavorID returns the id of a flavor.
func flavorID(ctx context.Context, compute *gophercloud.ServiceClient, name string) (string, error) {
	id := ""
	err := flavors.ListDetail(compute, flavors.ListOpts{}).EachPage(ctx, func(_ context.Context, p pagination.Page) (bool, error) {
		some, err := flavors.ExtractFlavors(p)
		for _, f := range some {
			if f.Name == name || f.ID == name {
				id = f.ID
			}
		}
		return id == "", err
	})
	if err == nil && id == "" {
		err = fmt.Errorf("there is no flavor %q", name)
	}
	return id, err
}

var uuid = pattern.New(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// imageID returns the id of the image, the newest one if there are several of the name.
func (p *Provider) imageID(ctx context.Context, client *gophercloud.ProviderClient) (string, error) {
	name := p.o.Image
	if uuid.MatchString(name) {
		return name, nil
	}
	image, err := openstack.NewImageV2(client, gophercloud.EndpointOpts{Region: p.o.Region})
	if err != nil {
		return "", err
	}
	page, err := images.List(image, images.ListOpts{Name: name, Status: images.ImageStatusActive, Sort: "created_at:desc",
		Limit: 1}).AllPages(ctx)
	if err != nil {
		return "", err
	}
	some, err := images.ExtractImages(page)
	if err == nil && len(some) == 0 {
		err = fmt.Errorf("there is no image %q", name)
	}
	if err != nil {
		return "", err
	}
	return some[0].ID, nil
}

// Delete removes all machines of a node. It is no error if there is none.
func (p *Provider) Delete(ctx context.Context, node string) error {
	compute, err := p.nova(ctx)
	if err != nil {
		return fmt.Errorf("cannot remove the machine at OpenStack: %w", err)
	}
	of, err := p.named(ctx, "^"+p.o.Name+"-"+node+"$")
	if err != nil {
		return fmt.Errorf("cannot find the machine at OpenStack: %w", err)
	}
	for _, m := range of {
		err := servers.Delete(ctx, compute, m.ID).ExtractErr()
		if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			return fmt.Errorf("cannot remove the machine at OpenStack: %w", err)
		}
	}
	return nil
}

// List returns the machines of this server, up to a thousand.
func (p *Provider) List(ctx context.Context) ([]nodes.Machine, error) {
	all, err := p.named(ctx, "^"+p.o.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("cannot list the machines at OpenStack: %w", err)
	}
	return all, nil
}

// find returns the machine of a node.
func (p *Provider) find(ctx context.Context, node string) (nodes.Machine, bool, error) {
	of, err := p.named(ctx, "^"+p.o.Name+"-"+node+"$")
	if err != nil {
		return nodes.Machine{}, false, fmt.Errorf("cannot look for the machine at OpenStack: %w", err)
	}
	if len(of) == 0 {
		return nodes.Machine{}, false, nil
	}
	return of[0], true, nil
}

// named returns the machines of this server whose names match a regular expression.
func (p *Provider) named(ctx context.Context, name string) ([]nodes.Machine, error) {
	const perPage, most = 100, 1000
	compute, err := p.nova(ctx)
	if err != nil {
		return nil, err
	}
	all := []nodes.Machine{}
	err = servers.List(compute, servers.ListOpts{Name: name, Limit: perPage}).EachPage(ctx,
		func(_ context.Context, page pagination.Page) (bool, error) {
			some, err := servers.ExtractServers(page)
			for _, s := range some {
				if s.Metadata[labelServer] == p.o.Name {
					all = append(all, machine(s))
				}
			}
			return len(all) < most, err
		})
	return all, err
}

// machine returns a server as a machine.
func machine(s servers.Server) nodes.Machine {
	m := nodes.Machine{ID: s.ID, Node: s.Metadata[labelNode], Name: s.Name, Created: s.Created.UTC(), Address: address(s)}
	if s.Status == "ERROR" {
		m.Problem = "the cloud could not start it: " + s.Fault.Message
	}
	return m
}

// address returns the address of a server, a floating one if it has one.
func address(s servers.Server) string {
	found := ""
	for _, network := range s.Addresses {
		list, _ := network.([]any)
		for _, x := range list {
			a, _ := x.(map[string]any)
			addr, _ := a["addr"].(string)
			if kind, _ := a["OS-EXT-IPS:type"].(string); found == "" || kind == "floating" {
				found = addr
			}
		}
	}
	return found
}
