package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/internal/text"
)

// Cluster is a Kubernetes cluster. Its fields must not change after the first call. Methods are safe for concurrent use.
type Cluster struct {
	// API sends the requests. Required.
	API *kube.Client
	// Namespace has the containers that count as work of a member.
	Namespace string
	// Server is the address of the API server for machines. Empty means that of API.
	Server string
	// CA has the certificates that machines verify Server by, in PEM.
	CA []byte
}

// Member is a node of the cluster.
type Member struct {
	Name string `json:"name"`
	// Ready is the status of the condition of that name: True, False, or Unknown if the kubelet is silent. Why is the
	// cluster's reason if it is not True.
	Ready string `json:"ready"`
	Why   string `json:"why,omitempty"`
	// Beat is the time at which the kubelet renewed its Lease, or reported its condition if that is later, as in its first
	// seconds. Zero means never.
	Beat time.Time `json:"beat,omitzero"`
	// Closed means that the scheduler places no new pods here.
	Closed   bool      `json:"closed"`
	Joined   time.Time `json:"joined"`
	Address  string    `json:"address,omitempty"`
	Version  string    `json:"version,omitempty"`  // of the kubelet
	Platform string    `json:"platform,omitempty"` // "linux amd64"
	CPUs     string    `json:"cpus,omitempty"`     // that pods may have, as Kubernetes writes it
	Memory   string    `json:"memory,omitempty"`   // the same in bytes
	// Containers is the number of containers of callers.
	Containers int `json:"containers"`
}

// Bounds of lists and texts.
const (
	page     = 500
	maxPages = 20
	maxWhy   = 300 // bytes of a reason
	maxFact  = 100 // bytes of a version, a platform, an address or a quantity
)

const (
	nodesPath  = "/api/v1/nodes"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
)

// Labels and annotations of the pods of ramus, as package kubernetes writes them. The key of a container that waits in
// the pool begins with pooled.
const (
	labelContainer = "ramus.dev/container"
	annotationKey  = "ramus.dev/key"
	pooled         = "pool:"
)

type meta struct {
	Name        string            `json:"name,omitempty"`
	Created     time.Time         `json:"creationTimestamp,omitzero"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type node struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Allocatable map[string]string `json:"allocatable"`
		Conditions  []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
			// Beat is the time of the last report of the kubelet.
			Beat time.Time `json:"lastHeartbeatTime"`
		} `json:"conditions"`
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
		NodeInfo struct {
			Kubelet      string `json:"kubeletVersion"`
			OS           string `json:"operatingSystem"`
			Architecture string `json:"architecture"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

type lease struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Renewed time.Time `json:"renewTime"`
	} `json:"spec"`
}

type pod struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Node string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// list returns all objects of a path, up to a bound.
func list[T any](ctx context.Context, c *Cluster, path, selector string) ([]T, error) {
	var all []T
	next := ""
	for range maxPages {
		var l struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		q := url.Values{"limit": {fmt.Sprint(page)}}
		if selector != "" {
			q.Set("labelSelector", selector)
		}
		if next != "" {
			q.Set("continue", next)
		}
		if err := c.API.Do(ctx, http.MethodGet, path, q, nil, &l); err != nil {
			return nil, err
		}
		all = append(all, l.Items...)
		if next = l.Metadata.Continue; next == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("the list has more than %d objects", maxPages*page)
}

// Members returns the nodes of the cluster, by name.
func (c *Cluster) Members(ctx context.Context) ([]Member, error) {
	wrap := func(err error) ([]Member, error) {
		return nil, fmt.Errorf("cannot list the nodes of the cluster: %w", err)
	}
	nodes, err := list[node](ctx, c, nodesPath, "")
	if err != nil {
		return wrap(err)
	}
	leases, err := list[lease](ctx, c, leasesPath, "")
	if err != nil {
		return wrap(err)
	}
	pods, err := list[pod](ctx, c, "/api/v1/namespaces/"+c.Namespace+"/pods", labelContainer)
	if err != nil {
		return wrap(err)
	}
	beats := make(map[string]time.Time, len(leases))
	for _, l := range leases {
		beats[l.Metadata.Name] = l.Spec.Renewed
	}
	work := make(map[string]int)
	for _, p := range pods {
		if p.used() {
			work[p.Spec.Node]++
		}
	}
	members := make([]Member, len(nodes))
	for i, n := range nodes {
		members[i] = n.member()
		members[i].Containers = work[n.Metadata.Name]
		if lease := beats[n.Metadata.Name]; lease.After(members[i].Beat) {
			members[i].Beat = lease
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return members, nil
}

// used reports whether a pod is the container of a caller that has not ended.
func (p pod) used() bool {
	return p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed" &&
		!strings.HasPrefix(p.Metadata.Annotations[annotationKey], pooled)
}

func (n node) member() Member {
	m := Member{Name: n.Metadata.Name, Joined: n.Metadata.Created, Closed: n.Spec.Unschedulable,
		Version:  text.Clip(n.Status.NodeInfo.Kubelet, maxFact),
		Platform: text.Clip(strings.TrimSpace(n.Status.NodeInfo.OS+" "+n.Status.NodeInfo.Architecture), maxFact),
		CPUs:     text.Clip(n.Status.Allocatable["cpu"], maxFact), Memory: text.Clip(n.Status.Allocatable["memory"], maxFact), Ready: "Unknown",
		Why: "it has not reported yet"}
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			m.Ready, m.Why, m.Beat = text.Clip(c.Status, maxFact), "", c.Beat
			if c.Status != "True" {
				m.Why = text.Clip(c.Reason+": "+c.Message, maxWhy)
			}
		}
	}
	for _, want := range []string{"InternalIP", "ExternalIP"} { // the last one counts
		for _, a := range n.Status.Addresses {
			if a.Type == want {
				m.Address = text.Clip(a.Address, maxFact)
			}
		}
	}
	return m
}

// Close has the scheduler place no new pods on a member, or opens it again.
func (c *Cluster) Close(ctx context.Context, name string, closed bool) error {
	body := map[string]any{"spec": map[string]any{"unschedulable": closed}}
	if err := c.API.Do(ctx, http.MethodPatch, nodesPath+"/"+name, nil, body, nil); err != nil {
		return fmt.Errorf("cannot close node %s of the cluster: %w", name, err)
	}
	return nil
}

// Forget removes a member from the cluster. Its machine is left alone. It is no error if there is no such member.
func (c *Cluster) Forget(ctx context.Context, name string) error {
	err := c.API.Do(ctx, http.MethodDelete, nodesPath+"/"+name, nil, nil, nil)
	if err != nil && !kube.IsCode(err, http.StatusNotFound) {
		return fmt.Errorf("cannot remove node %s from the cluster: %w", name, err)
	}
	return nil
}
