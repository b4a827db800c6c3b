package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
)

// Invitation lets one machine ask the cluster for the certificate of a node.
type Invitation struct {
	// Server is the address of the API server, and CA has the certificates of its authority, in PEM.
	Server string `json:"server"`
	CA     []byte `json:"ca"`
	// Token is a bootstrap token of the cluster, "ID.SECRET", until Ends.
	Token string    `json:"token"`
	Ends  time.Time `json:"ends"`
}

// ID returns the part of the token that is no secret.
func (i Invitation) ID() string {
	id, _, _ := strings.Cut(i.Token, ".")
	return id
}

// Groups are those of a bootstrap token. The first one is for bindings that docs/nodes.md has. The others are bound by
// kubeadm and k3s.
var groups = []string{"system:bootstrappers:ramus", "system:bootstrappers:kubeadm:default-node-token",
	"system:bootstrappers:k3s:default-node-token"}

const (
	secretsPath = "/api/v1/namespaces/kube-system/secrets"
	secretName  = "bootstrap-token-"
	// labelNode is the label of a token with the node that it is for.
	labelNode = "ramus.dev/node"
)

// Invite makes a bootstrap token for the machine of a node. The cluster removes it at the time until.
func (c *Cluster) Invite(ctx context.Context, name string, until time.Time) (Invitation, error) {
	word := strings.ToLower(rand.Text()) // letters and digits, as a token has
	id, secret := word[:6], word[6:22]
	body := map[string]any{
		"metadata": meta{Name: secretName + id, Labels: map[string]string{labelNode: name}},
		"type":     "bootstrap.kubernetes.io/token",
		"stringData": map[string]string{"token-id": id, "token-secret": secret, "expiration": until.UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
			"auth-extra-groups": strings.Join(groups, ","), "description": "ramus " + name},
	}
	if err := c.API.Do(ctx, http.MethodPost, secretsPath, nil, body, nil); err != nil {
		return Invitation{}, fmt.Errorf("cannot make a bootstrap token of the cluster: %w", err)
	}
	server := c.Server
	if server == "" {
		server = c.API.Server()
	}
	return Invitation{Server: server, CA: c.CA, Token: id + "." + secret, Ends: until.UTC()}, nil
}

// Revoke removes a bootstrap token by its id. It is no error if the cluster has removed it.
func (c *Cluster) Revoke(ctx context.Context, id string) error {
	err := c.API.Do(ctx, http.MethodDelete, secretsPath+"/"+secretName+id, nil, nil, nil)
	if err != nil && !kube.IsCode(err, http.StatusNotFound) {
		return fmt.Errorf("cannot remove a bootstrap token of the cluster: %w", err)
	}
	return nil
}
