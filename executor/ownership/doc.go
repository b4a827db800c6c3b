// Package ownership decides which of several servers may change a repository.
//
// # Nouns
//
// A replica is a server with a data folder of its own and a name, such as "ramus-0". Replicas that share a [Group] are one
// installation. Each repository is owned by one replica, which alone serves it and changes it. An [Owner] is the view of one
// replica of this. [Alone] is the owner of everything, for an installation of one server. A [Cluster] keeps the ownership
// as Lease objects of a Kubernetes cluster.
//
// A replica's lease is renewed by the process that holds it. Its epoch grows by one with each new process. A
// repository's lease is its assignment. It names the owning replica, is not renewed, and its epoch grows with each move.
//
// # Invariants
//
// A process that cannot renew its lease stops to acknowledge changes at two thirds of the lease's duration after the
// beginning of its last successful renewal. Another process takes the lease at the earliest one whole duration after it
// has read the last renewal. Both measure with their own monotonic clock, so wall clocks do not matter, and the rates of
// two clocks may differ by a third.
//
// With the default of 15 s a lease is renewed every 3 s, a process stops 10 s after a renewal, and the next one begins
// after 15 s to 16 s. A process that ends in order gives its lease back. A process on the same machine that holds the
// lock of the data folder knows that the earlier one has ended, and takes the lease at once.
//
// The epoch is in the data folder, too. A process stops as soon as a later epoch is there. So two processes that see one
// volume do not both acknowledge changes, even if the cluster lost its leases.
//
// Only the owning replica gives a repository away. Its assignment changes by compare-and-swap.
package ownership
