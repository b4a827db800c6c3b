package main

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
)

// Simulated is the label and the taint of the nodes.
const simulated = "ramus.dev/simulated"

const (
	leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	// leaseTime is the time after which a node whose Lease is not renewed counts as lost, and leaseEvery that between renewals.
	// Both are a kubelet's.
	leaseTime  = 40 * time.Second
	leaseEvery = 10 * time.Second
	// stateEvery is the pause between two reports of a node's state.
	stateEvery = 5 * time.Minute
)

// register makes a node, and reports that it is ready.
func (k *kubelet) register(ctx context.Context, name string) error {
	node := map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]string{simulated: k.label,
		"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": runtime.GOARCH}},
		"spec": map[string]any{"taints": []map[string]string{{"key": simulated, "value": k.label, "effect": "NoSchedule"}}}}
	err := k.ask(ctx, http.MethodPost, "/api/v1/nodes", nil, node, nil)
	if err != nil && !kube.IsCode(err, http.StatusConflict) {
		return err
	}
	if err := k.renew(ctx, name); err != nil {
		return err
	}
	return k.reportNode(ctx, name)
}

// reportNode reports the state of a node.
func (k *kubelet) reportNode(ctx context.Context, name string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	room := map[string]any{"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": k.perNode}
	var conditions []map[string]string
	for _, c := range [][3]string{{"Ready", "True", "KubeletReady"}, {"MemoryPressure", "False", "KubeletHasSufficientMemory"},
		{"DiskPressure", "False", "KubeletHasNoDiskPressure"}, {"PIDPressure", "False", "KubeletHasSufficientPID"}} {
		conditions = append(conditions, map[string]string{"type": c[0], "status": c[1], "reason": c[2],
			"lastHeartbeatTime": now, "lastTransitionTime": now, "message": "simulated"})
	}
	return k.ask(ctx, http.MethodPatch, "/api/v1/nodes/"+name+"/status", nil, map[string]any{"status": map[string]any{
		"capacity": room, "allocatable": room, "conditions": conditions,
		"addresses":       []map[string]string{{"type": "InternalIP", "address": k.address}, {"type": "Hostname", "address": name}},
		"daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]int{"Port": k.port}},
		"nodeInfo": map[string]string{"operatingSystem": "linux", "architecture": runtime.GOARCH, "osImage": "simulated",
			"kubeletVersion": "v1.34.1", "kubeProxyVersion": "", "kernelVersion": "simulated", "containerRuntimeVersion": "simulated://1",
			"machineID": name, "systemUUID": name, "bootID": name}}}, nil)
}

// renew renews the Lease of a node, which the first call makes.
func (k *kubelet) renew(ctx context.Context, name string) error {
	spec := map[string]any{"holderIdentity": name, "leaseDurationSeconds": int(leaseTime / time.Second),
		"renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")}
	err := k.ask(ctx, http.MethodPatch, leases+"/"+name, nil, map[string]any{"spec": spec}, nil)
	if kube.IsCode(err, http.StatusNotFound) {
		err = k.ask(ctx, http.MethodPost, leases, nil, map[string]any{"metadata": map[string]string{"name": name}, "spec": spec}, nil)
	}
	return err
}

// keepNode has a node stay ready until ctx is done.
func (k *kubelet) keepNode(ctx context.Context, name string) {
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()
	reported := time.Now()
	for {
		select {
		case now := <-tick.C:
			err := k.renew(ctx, name)
			if err == nil && now.Sub(reported) > stateEvery {
				err, reported = k.reportNode(ctx, name), now
			}
			if err != nil && ctx.Err() == nil {
				k.log.Warn("a node is not kept", "node", name, "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// unregister removes a node and its Lease.
func (k *kubelet) unregister(ctx context.Context, name string) error {
	var errs []error
	for _, path := range []string{"/api/v1/nodes/" + name, leases + "/" + name} {
		if err := k.ask(ctx, http.MethodDelete, path, nil, nil, nil); err != nil && !kube.IsCode(err, http.StatusNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
