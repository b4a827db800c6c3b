// Package cluster sees and changes the nodes of a Kubernetes cluster.
//
// A member is a node of the cluster, with its health as the cluster knows it: the condition Ready of the Node, and the
// time at which the kubelet last renewed its Lease. An invitation is what a machine needs to become a member: the
// address of the API server, the certificate of its authority, and a bootstrap token of the cluster, which can do
// nothing but ask for the certificate of a node. The cluster forgets the token when its time is over.
package cluster
