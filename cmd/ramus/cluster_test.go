package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

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
