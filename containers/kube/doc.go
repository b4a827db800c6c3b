// Package kube is a client of the API of a Kubernetes cluster, for the few requests that ramus makes.
//
// A [Config] has the address of an API server and the credential for it. It comes from a kubeconfig ([Load]) or from
// the service account of a pod ([InCluster]). A [Client] sends requests with JSON bodies, follows changes
// ([Client.Watch]), and runs commands in containers of pods ([Client.Exec]), whose streams are an [Exec].
//
// The package knows no kinds of objects. Its callers declare the fields that they use. A [StatusError] is a refusal of
// the API server. All other errors mean that there was no answer, and so that a request may have had its effect or not.
package kube
