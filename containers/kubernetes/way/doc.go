// Package way is the part of ramus that runs in the first container of a pod, which has the name of the package, and in
// the containers of sidecars. `ramus-runner way` is its program.
//
// # Commands
//
//	hold                keeps a container, and reaps its processes, until the program is removed
//	serve               is hold in the first container, and serves sessions, which are connections to the runner
//	prepare DIR         seals the network of the pod, copies this program to DIR, and closes the folders of the runner
//	connect JSON        carries a session on stdin and stdout; see [Opening]
//	names               replaces the names in the file [Hosts] by those of stdin
//	usage MOST DIR...   prints the space that folders take, as JSON
//	sidecar JSON        runs a program until it or the stream of its input ends; see [Sidecar]
//	release OWNER ID    kills a sidecar of an installation that another process of it started
//	end OWNER ID        kills a sidecar that this process of an installation started
//
// # Untrusted input
//
// The processes of the pod's other containers are hostile. They share the network with this container, and the folders
// in which this program measures and connects. They share no process with it and no user that could trace it. A pod
// with an interface of hardware is never sealed, because its network may be the machine's.
package way
