// Package clustertest has tests run in the cluster of scripts/cluster.sh.
//
// The cluster has a network namespace of its own. A test enters it, so that the address of a cluster that has ended is
// never looked for on the machine's own network.
package clustertest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ramus-dev/ramus/containers/kube"
)

// Images that scripts/cluster.sh puts into the node. Those of the task and of the browser are Docker's, and may be
// missing.
const (
	RuntimeImage = "localhost/ramus/runner:dev"
	TaskImage    = "ramus/task:latest"
	BrowserImage = "ramus/browser:latest"
)

// insideEnv is set in the process that runs in the network of the cluster.
const insideEnv = "RAMUS_CLUSTER_INSIDE"

// errDown means that no cluster is there for this process.
var errDown = errors.New("no cluster is up (make cluster), or this is not root")

// Dir returns the folder of the cluster. Returns "" if the user has no folder for caches.
func Dir() string {
	if dir := os.Getenv("CLUSTER"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "ramus", "cluster")
}

// Kubeconfig returns the file with the credentials of the administrator.
func Kubeconfig() string { return filepath.Join(Dir(), "pki", "admin.kubeconfig") }

// Network returns the network namespace of the cluster. Returns "" if no cluster is up, or if this user may not enter
// it.
func Network() string {
	init, err := os.ReadFile(filepath.Join(Dir(), "run", "init"))
	if err != nil || os.Geteuid() != 0 {
		return ""
	}
	namespace := "/proc/" + strings.TrimSpace(string(init)) + "/ns/net"
	if _, err := os.Stat(namespace); err != nil {
		return ""
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		return ""
	}
	return namespace
}

// Inside reports whether this process has entered the network of the cluster.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Enter begins this process again in the network of the cluster. Returns nil if it is there already.
func Enter() error {
	if Inside() {
		return nil
	}
	namespace := Network()
	if namespace == "" {
		return errDown
	}
	enter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	args := append([]string{enter, "--net=" + namespace, "--", os.Args[0]}, os.Args[1:]...)
	return syscall.Exec(enter, args, append(os.Environ(), insideEnv+"=1")) // only an error returns
}

// Admin returns a client with the rights of the administrator, and its configuration. The caller closes the client.
func Admin() (*kube.Client, *kube.Config, error) {
	config, err := kube.Load(Kubeconfig(), "")
	if err != nil {
		return nil, nil, err
	}
	client, err := kube.New(*config)
	return client, config, err
}

// MakeNamespace makes a namespace for containers, and returns its name. A name that ends with a hyphen is completed. It
// is no error if the namespace exists.
func MakeNamespace(ctx context.Context, admin *kube.Client, name string) (string, error) {
	key := "name"
	if strings.HasSuffix(name, "-") {
		key = "generateName"
	}
	made := struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}{}
	err := admin.Do(ctx, http.MethodPost, "/api/v1/namespaces", nil, map[string]any{"metadata": map[string]any{
		key: name, "labels": map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}}, &made)
	if kube.IsCode(err, http.StatusConflict) && key == "name" {
		return name, nil
	}
	return made.Metadata.Name, err
}
