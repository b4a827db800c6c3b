package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/kubernetes/clustertest"
)

// storiesNamespace has the pods of stories.
const storiesNamespace = "ramus-stories"

// onCluster reports whether all tests that start servers use pods of the cluster. They then run in its network.
func onCluster() bool { return os.Getenv("RAMUS_TEST_ENGINE") == "kubernetes" }

// clusterConfig returns the configuration of a ramus whose containers are pods of the cluster.
func clusterConfig() []string {
	return []string{"RAMUS_ENGINE=kubernetes", "RAMUS_IMAGE=" + clustertest.TaskImage, "RAMUS_KUBERNETES_NAMESPACE=" + storiesNamespace,
		"RAMUS_KUBERNETES_KUBECONFIG=" + clustertest.Kubeconfig(), "RAMUS_KUBERNETES_IMAGE=" + clustertest.RuntimeImage}
}

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
	if err := clustertest.Enter(); err != nil {
		return err
	}
	admin, _, err := clustertest.Admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = clustertest.MakeNamespace(ctx, admin, storiesNamespace)
	return err
}

// writeClusterIn writes the program cluster-in of stories, which runs a command in the network of the cluster. So the
// address of a cluster that has ended is never looked for on the machine's own network.
func writeClusterIn(dir string) error {
	namespace := clustertest.Network()
	if namespace == "" {
		return nil
	}
	script := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=%s -- \"$@\"\n", namespace)
	return os.WriteFile(filepath.Join(dir, "cluster-in"), []byte(script), 0o755)
}
