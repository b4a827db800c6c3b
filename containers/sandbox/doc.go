// Package sandbox starts containers by bubblewrap, without a daemon, without images and without root.
//
// # Nouns
//
// An [Engine] keeps its containers below one folder. A container is a set of namespaces over the host's own /usr, which
// is read-only inside. Its state is a file that names process 1 by number and start time. A box is the command line of
// one bubblewrap and the files that it inherits. A sidecar is a second container in the network of the first.
//
// # Invariants
//
// The user of a container has no privileges, inside or outside. If ramus is root, bubblewrap is started as another user
// all the same ([Engine.UID]). A command that escapes is not root then, and containers start in the same way
// everywhere.
//
// The state is written before a container starts, so that it can be found and removed after a crash at any moment.
//
// # Durability
//
// The processes of a container belong only to the kernel. They outlive ramus, and another Engine over the same folder
// finds them. Sidecars end with ramus.
//
// # Untrusted input
//
// Commands are hostile. Namespaces, a filter of system calls and control groups separate them from the host and from
// the runner, which has the same user. The Sandbox has no images (commands see the host's tools as installed), no root
// inside, and no runner of another user. A command can read the paths of its folders on the host in its list of mounts.
// [Engine.Lacks] returns the limits that a machine does not allow.
package sandbox
