package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
)

// storiesNamespace has the pods of stories.
const storiesNamespace = "ramus-stories"

// onCluster reports whether all tests that start servers use pods of the cluster. They then run in its network.
func onCluster() bool { return os.Getenv("RAMUS_TEST_ENGINE") == "kubernetes" }

// clusterConfig returns the configuration of a ramus whose containers are pods of the cluster.
func clusterConfig() []string {
	return []string{"RAMUS_ENGINE=kubernetes", "RAMUS_IMAGE=ramus/task:latest", "RAMUS_KUBERNETES_NAMESPACE=" + storiesNamespace,
		"RAMUS_KUBERNETES_KUBECONFIG=" + clusterKubeconfig(), "RAMUS_KUBERNETES_IMAGE=localhost/ramus/runner:dev"}
}

func clusterKubeconfig() string { return filepath.Join(clusterDir(), "pki", "admin.kubeconfig") }

// insideEnv is set in the process that runs in the network of the cluster.
const insideEnv = "RAMUS_CLUSTER_INSIDE"

func TestMain(m *testing.M) {
	if onCluster() {
		if err := enterCluster(); err != nil {
			fmt.Fprintln(os.Stderr, "cannot run on Kubernetes:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// enterCluster moves this process into the network of the cluster, and makes the namespace of stories.
func enterCluster() error {
	if os.Getenv(insideEnv) == "" {
		namespace := clusterNetwork()
		if namespace == "" {
			return errors.New("no cluster is up (make cluster), or this is not root")
		}
		enter, err := exec.LookPath("nsenter")
		if err != nil {
			return err
		}
		args := append([]string{enter, "--net=" + namespace, "--", os.Args[0]}, os.Args[1:]...)
		return syscall.Exec(enter, args, append(os.Environ(), insideEnv+"=1"))
	}
	config, err := kube.Load(clusterKubeconfig(), "")
	if err != nil {
		return err
	}
	client, err := kube.New(*config)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = client.Do(ctx, http.MethodPost, "/api/v1/namespaces", nil, map[string]any{"metadata": map[string]any{"name": storiesNamespace,
		"labels": map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}}, nil)
	if kube.IsCode(err, http.StatusConflict) {
		return nil
	}
	return err
}

// clusterDir returns the folder of the cluster of scripts/cluster.sh.
func clusterDir() string {
	if dir := os.Getenv("CLUSTER"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "ramus", "cluster")
}

// clusterNetwork returns the network namespace of the cluster. Returns "" if no cluster is up, or if this user may not
// enter it.
func clusterNetwork() string {
	init, err := os.ReadFile(filepath.Join(clusterDir(), "run", "init"))
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

// writeClusterIn writes the program cluster-in of stories, which runs a command in the network of the cluster. So the
// address of a cluster that has ended is never looked for on the machine's own network.
func writeClusterIn(dir string) error {
	namespace := clusterNetwork()
	if namespace == "" {
		return nil
	}
	script := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=%s -- \"$@\"\n", namespace)
	return os.WriteFile(filepath.Join(dir, "cluster-in"), []byte(script), 0o755)
}
