package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/cluster"
	"github.com/ramus-dev/ramus/executor/nodes/hetzner"
	"github.com/ramus-dev/ramus/executor/nodes/openstack"
	"github.com/ramus-dev/ramus/executor/nodes/programs"
)

// openNodes opens the book of nodes. With Kubernetes, machines join the cluster, and a container that has no room orders
// one. Of several replicas the home alone orders machines, because they report to it.
func (o *opening) openNodes() error {
	c := o.config
	orders, away := c.Nodes.Provider != "" && c.Nodes.OnDemand, o.replicas != nil && !o.replicas.front.IsHome()
	if c.Replicas.Name != "" { // each has a book of its own
		c.Nodes.Name += "-" + c.Replicas.Name
	}
	if away {
		c.Nodes.Provider = ""
	}
	n, err := newNodes(c, o.secret, o.log)
	if err != nil {
		return err
	}
	if o.programs, err = newPrograms(c, o.keys); err != nil {
		return err
	}
	n.Programs = o.programs
	if c.Nodes.Provider != "" {
		n.Own = func(ctx context.Context, person string) (nodes.Provider, error) {
			token, err := o.executor.SecretStore.Cloud(ctx, c.Nodes.Provider, person, "make machines")
			if err != nil {
				return nil, err
			}
			return newProvider(c.Nodes, token)
		}
	}
	if e, ok := o.engine.(*kubernetes.Engine); ok {
		if n.Cluster, err = newMembers(c, e); err != nil {
			return fmt.Errorf("cannot use nodes: %w", err)
		}
		if orders {
			e.Room, e.Wait = n.Room, kubernetes.StartWait+time.Duration(c.Nodes.BootWait)
		}
		if orders && away {
			e.Room = o.replicas.front.Room
		}
	}
	if o.replicas != nil && orders && !away {
		o.replicas.front.Order = n.Room
	}
	o.nodes = n
	return n.Open()
}

// newNodes returns the nodes of a configuration, without a cluster.
func newNodes(c Config, secret *secrets, log *slog.Logger) (*nodes.Nodes, error) {
	n := &nodes.Nodes{Dir: filepath.Join(c.Data, "nodes"), URL: programsURL(c), Size: c.Nodes.Size,
		Location: c.Nodes.Location, Most: c.Nodes.Most, StaleAfter: time.Duration(c.Nodes.StaleAfter),
		BootWait: time.Duration(c.Nodes.BootWait), IdleAfter: time.Duration(c.Nodes.IdleAfter),
		Join: nodes.Join(c.Nodes.Join), Log: log}
	for _, r := range c.Nodes.Ranges {
		prefix, err := netip.ParsePrefix(r)
		if err != nil {
			return nil, fmt.Errorf("cannot use nodes.ranges: %w", err)
		}
		n.Ranges = append(n.Ranges, prefix.Masked())
	}
	if ways := []nodes.Join{nodes.JoinKubelet, nodes.JoinK3s}; !slices.Contains(ways, n.Join) {
		return nil, fmt.Errorf("cannot use nodes.join: it is %q; want kubelet or k3s", n.Join)
	}
	if c.Nodes.Provider == "" {
		return n, nil
	}
	token, err := secret.value("nodes.token", c.Nodes.TokenEnv, c.Nodes.TokenFile)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, fmt.Errorf("cannot use nodes.provider: %s needs nodes.token_env or nodes.token_file", c.Nodes.Provider)
	}
	if n.Provider, err = newProvider(c.Nodes, token); err != nil {
		return nil, err
	}
	if err := n.Provider.Check(n.Size, n.Location); err != nil {
		return nil, fmt.Errorf("cannot use nodes: %w", err)
	}
	return n, nil
}

// newProvider returns the cloud of a configuration with a token.
func newProvider(c NodesConfig, token string) (nodes.Provider, error) {
	switch c.Provider {
	case "hetzner":
		return hetzner.New(hetzner.Options{Token: token, Endpoint: c.Endpoint, Name: c.Name, Image: c.Image, Sizes: c.Sizes,
			Locations: c.Locations}), nil
	case "openstack":
		p, err := openstack.New(openstack.Options{Credential: token, Endpoint: c.Endpoint, Region: c.Region,
			Network: c.Network, Name: c.Name, Image: c.Image, Sizes: c.Sizes, Locations: c.Locations})
		if err != nil {
			return nil, fmt.Errorf("cannot use nodes: %w", err)
		}
		return p, nil
	}
	return nil, fmt.Errorf("cannot use nodes.provider: it is %q; want hetzner or openstack", c.Provider)
}

// newMembers returns the cluster of an engine, which machines join.
func newMembers(c Config, e *kubernetes.Engine) (*cluster.Cluster, error) {
	api, err := kube.New(*e.Cluster)
	if err != nil {
		return nil, err
	}
	return &cluster.Cluster{API: api, Namespace: c.Kubernetes.Namespace, Server: c.Nodes.Server, CA: e.Cluster.CA}, nil
}

// newPrograms returns the programs that machines install, signed by a key that signs nothing else.
func newPrograms(c Config, keys string) (*programs.Programs, error) {
	s, err := ownSigner(filepath.Join(keys, "programs.pem"), "programs of nodes")
	if err != nil {
		return nil, err
	}
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program: %w", err)
	}
	dir, err := folder(c.Nodes.Programs)
	if err != nil {
		return nil, err
	}
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, errors.Join(fmt.Errorf("cannot use nodes.programs: %s is no folder", dir), err)
		}
	}
	return &programs.Programs{Dir: dir, Own: own, Version: buildVersion(), URL: programsURL(c), Key: s.PublicKey(),
		Sign: func(text []byte) ([]byte, error) { return s.SignText(programs.Space, text) }}, nil
}
