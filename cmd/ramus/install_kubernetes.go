package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes"
)

// newKubernetes returns the engine of a configuration. It opens no connection.
func newKubernetes(c Config, log *slog.Logger) (*kubernetes.Engine, error) {
	k := c.Kubernetes
	cluster, err := newCluster(k)
	if err != nil {
		return nil, fmt.Errorf("cannot use Kubernetes: %w", err)
	}
	if k.Image == "" {
		return nil, errors.New("cannot use Kubernetes: kubernetes.image must name an image that has /ramus-runner, " +
			"as ramus's own does")
	}
	e := &kubernetes.Engine{Cluster: cluster, Namespace: k.Namespace, Runtime: k.Image, Image: c.Image,
		Template: k.Template, UserNamespaces: k.UserNamespaces, Log: log,
		Requests: kubernetes.Requests{Memory: int64(k.Requests.Memory), CPUs: k.Requests.CPUs}}
	if k.Sidecars > 0 {
		e.Side = kubernetes.Side{Image: c.Browser.Image, Limits: newBrowser(c.Browser).Limits, Count: k.Sidecars}
	}
	return e, nil
}

// newCluster returns the cluster that a kubeconfig names, or the one that this process runs in.
func newCluster(k KubernetesConfig) (*kube.Config, error) {
	if k.Kubeconfig == "" {
		cluster, err := kube.InCluster()
		if err != nil {
			err = fmt.Errorf("kubernetes.kubeconfig is empty, so ramus must run in a pod: %w", err)
		}
		return cluster, err
	}
	path, err := folder(k.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return kube.Load(path, k.Context)
}

// diagnoseKubernetes describes the cluster of a configuration, and the walls that it gives.
func diagnoseKubernetes(ctx context.Context, c Config) (engine containers.Engine, says, walls string, err error) {
	e, err := newKubernetes(c, nil)
	if err != nil {
		return nil, "", "", err
	}
	if err := e.Check(ctx); err != nil {
		return e, "", "", err
	}
	has, lacks := e.Walls(ctx)
	walls = strings.Join(has, "; ")
	if len(lacks) > 0 {
		walls += "; missing: " + strings.Join(lacks, "; ")
	}
	return e, "the cluster starts containers in namespace " + c.Kubernetes.Namespace, walls, nil
}
