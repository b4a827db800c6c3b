package ownership

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
)

// lease is an object of the kind Lease in coordination.k8s.io/v1, with the fields that are used.
type lease struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   metadata  `json:"metadata"`
	Spec       leaseSpec `json:"spec"`
}

type metadata struct {
	Name            string            `json:"name"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	UID             string            `json:"uid,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

type leaseSpec struct {
	Holder      string `json:"holderIdentity,omitempty"`
	Seconds     int    `json:"leaseDurationSeconds,omitempty"`
	Acquired    string `json:"acquireTime,omitempty"`
	Renewed     string `json:"renewTime,omitempty"`
	Transitions uint64 `json:"leaseTransitions,omitempty"`
}

type leaseList struct {
	Metadata metadata `json:"metadata"`
	Items    []lease  `json:"items"`
}

// Labels and annotations of leases.
const (
	labelGroup = "ramus.dev/group"
	labelKind  = "ramus.dev/lease"
	kindOf     = "replica"
	kindRepo   = "repository"

	noteName    = "ramus.dev/name"    // of the replica or the repository
	noteURL     = "ramus.dev/url"     // of the replica
	noteProcess = "ramus.dev/process" // see [Cluster.Process]
	noteCopy    = "ramus.dev/copy"    // of the repository, see [Cluster.Copy]
)

// microTime is the format of times in leases.
const microTime = "2006-01-02T15:04:05.000000Z"

func stamp(t time.Time) string { return t.UTC().Format(microTime) }

// leases has the leases of one group.
type leases struct {
	client           *kube.Client
	namespace, group string
}

func (l leases) path(name string) string {
	path := "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(l.namespace) + "/leases"
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// selector selects the leases of the group.
func (l leases) selector() url.Values {
	return url.Values{"labelSelector": {labelGroup + "=" + l.group}}
}

// replicaName returns the name of the object of a replica's lease.
func (l leases) replicaName(replica string) string { return l.group + "-replica-" + replica }

// repoName returns the name of the object of a repository's lease. Names of repositories have characters that names of
// objects may not have.
func (l leases) repoName(repo string) string {
	sum := sha256.Sum256([]byte(repo))
	return l.group + "-repository-" + hex.EncodeToString(sum[:10])
}

func (l leases) get(ctx context.Context, name string) (is lease, found bool, err error) {
	err = l.client.Do(ctx, http.MethodGet, l.path(name), nil, nil, &is)
	if kube.IsCode(err, http.StatusNotFound) {
		return is, false, nil
	}
	return is, err == nil, err
}

// create makes a lease. It is not found again by a name that another group uses.
func (l leases) create(ctx context.Context, kind string, is lease) (made lease, err error) {
	is.APIVersion, is.Kind = "coordination.k8s.io/v1", "Lease"
	is.Metadata.Labels = map[string]string{labelGroup: l.group, labelKind: kind}
	err = l.client.Do(ctx, http.MethodPost, l.path(""), nil, is, &made)
	return made, err
}

// replace replaces a lease, if it has not changed since it was read. Otherwise the error has the code 409.
func (l leases) replace(ctx context.Context, is lease) (made lease, err error) {
	is.APIVersion, is.Kind = "coordination.k8s.io/v1", "Lease"
	err = l.client.Do(ctx, http.MethodPut, l.path(is.Metadata.Name), nil, is, &made)
	return made, err
}

// remove removes a lease, if it has not changed since it was read.
func (l leases) remove(ctx context.Context, is lease) error {
	body := map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": map[string]string{
		"uid": is.Metadata.UID, "resourceVersion": is.Metadata.ResourceVersion}}
	err := l.client.Do(ctx, http.MethodDelete, l.path(is.Metadata.Name), nil, body, nil)
	if kube.IsCode(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// check returns an error for a lease of another group that has the same name.
func (l leases) check(is lease, kind, name string) error {
	if is.Metadata.Labels[labelGroup] != l.group || is.Metadata.Labels[labelKind] != kind || is.Metadata.Annotations[noteName] != name {
		return fmt.Errorf("the Lease %s in %s is not that of %s", is.Metadata.Name, l.namespace, name)
	}
	return nil
}
