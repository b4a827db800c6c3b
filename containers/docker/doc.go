// Package docker runs containers on a Docker Engine of this machine.
//
// # What a container is made of
//
// Process 1 is the runner, ramus's own static binary, mounted read-only below
// /run/ramus: any image will do, also one without a shell or a libc. The
// runner is root inside, with the five capabilities it needs to start commands
// as uid 1000, to end them and to give them their folders; the commands have
// none. There is no network but the loopback, which the
// runtime makes: the engine has none for it, and /etc/hosts is a file of ours. The image is read-only; /work,
// /artifacts and /cache are volumes that are freed with the container, /tmp is
// memory. The same binary is at /ramus once more, for commands: git has its commits
// signed by it.
//
// The runner listens on a unix socket in [containers.Spec.Dir], a folder of the
// host mounted at /run/ramus/run. /run/ramus itself belongs to root alone, so
// the task's user cannot come near the socket.
//
// A sidecar is made from another image, as uid 1000 from its first process on, in
// the network of the container it stands beside. Of the host it sees the list of names
// of that container alone; its input and output go through the engine's connection.
//
// # What survives
//
// Labels say whose a container is; nothing else is kept. So a container
// outlives ramus, and any ramus with the same owner finds it again. It outlives
// a restart of the engine where the engine has live-restore switched on; where
// it has not, the engine kills its containers when it stops, and they are
// listed as dead. Sidecars have labels of their own; what a ramus that was killed
// leaves of them ends when another one starts.
//
// # Which engines
//
// Docker Engine 20.10 (API 1.41) and later, by the address in DOCKER_HOST or
// the usual socket; the API version is negotiated. The engine must share this
// machine's file system: the runner's binary and the socket go through it.
package docker
