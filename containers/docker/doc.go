// Package docker runs containers on a Docker Engine of this machine.
//
// # Parts of a container
//
// Process 1 is the runner, ramus's own static binary, mounted read-only below /run/ramus. So any image works, including
// one without a shell or a libc. The runner is root inside, with the five capabilities that it needs to start commands
// as uid 1000, to end them and to give them their folders. The commands have no capabilities. The only network is the
// loopback, which the runtime makes. The engine has no network for the container, and /etc/hosts is a file of ramus.
// The image is read-only. /work, /artifacts and /cache are volumes that are deleted with the container. /tmp is memory.
// The same binary is at /ramus once more, for commands. git calls it to sign commits.
//
// The runner listens on a unix socket in [containers.Spec.Dir], a folder of the host mounted at /run/ramus/run.
// /run/ramus belongs to root alone, so the task's user cannot reach the socket.
//
// A sidecar is made from another image and shares the network of its container. It runs as uid 1000 from its first
// process on. Of the host it sees only the hosts file of that container. Its input and output go through the connection
// of the engine.
//
// # Durability
//
// Labels name the owner and the caller of a container. Nothing else is kept. So a container outlives ramus, and any
// ramus with the same owner finds it again. A container outlives a restart of the engine if the engine has live-restore
// enabled. Otherwise the engine kills its containers when it stops, and List shows them as dead. Sidecars have labels
// of their own. The next ramus removes the sidecars of one that was killed.
//
// # Which engines
//
// Docker Engine 20.10 (API 1.41) and later works, at the address in DOCKER_HOST or at the usual socket. The API version
// is negotiated. The engine must share the file system of this machine, because the runner's binary and the socket are
// files of it.
package docker
