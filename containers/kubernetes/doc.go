// Package kubernetes runs containers as pods of a Kubernetes cluster.
//
// # Parts of a container
//
// A container is one bare pod. Its containers share the network and the volumes of the pod, and neither processes nor
// users.
//
// The first one is the way (package way), in the image of ramus. Before the second one starts, it deletes every network
// interface but the loopback, copies the runner into a volume, and closes the folders of the runner. A pod has no
// network from then on, with any network policy or none. The second one is the task. Its image is any image with a
// shell, and its process 1 is the runner, which does not serve while there is another interface. The recipe of the task
// is that of package docker. Further containers wait for sidecars, and have the limits of sidecars, because the limits
// of a container are fixed when its pod starts.
//
// A pod has no token of a service account, no link to a service, no host name server, and a file system that is
// read-only apart from its volumes. /tmp and the folder of the socket are memory. With [Engine].UserNamespaces root in
// a pod is nobody on its node.
//
// # Connections
//
// A connection to a runner is a session of the first container, which connects it with the runner's socket. An exec of
// the API server carries the session. It breaks when the API server, the kubelet or the node's runtime is restarted.
// The session stays, and another exec carries it on, within five minutes. So a command runs once and its output is
// whole if these programs are killed.
//
// One watch follows all pods of the namespace. A pod that ends, or that is being deleted, closes its connections at
// once, and the next call returns [containers.ErrGone] with the reason of the cluster. So the work of a node that is
// drained begins again elsewhere without a timeout.
//
// # Durability
//
// Labels and annotations name the owner and the caller of a pod. Nothing else is kept. So a container outlives ramus,
// and any ramus with the same owner finds it again. A pod to which nobody was connected for a day ends by itself.
// Kubernetes starts no pod again, because a container has nothing that counts.
//
// # Which clusters
//
// Kubernetes 1.30 and later works, with any runtime and network. The namespace must admit CAP_NET_ADMIN, which the
// first container needs to seal the network. [Engine.Check] names all problems, and [Engine.Walls] which further
// walls the cluster gives.
package kubernetes
