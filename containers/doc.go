// Package containers gives each caller a disposable computer.
//
// # Nouns
//
// An [Engine] starts, finds and removes containers, and opens a byte stream to the runner inside. The packages sandbox,
// docker and kubernetes implement it. Optional abilities of an engine are interfaces of their own: [Sidecars],
// [Processes], [TaskUser], [Assigner], [Volumes], [Usages], [Images] and [Names].
//
// The runner (`ramus runner`, the same static binary, mounted read-only) is process 1 of a container. It is an SSH
// server. A [Host] is the SSH connection to one runner. It carries commands, their output, files, terminals and
// forwarded ports.
//
// A [Fleet] has one Host for each caller. It makes a container for the first command, keeps it while it is used, and
// removes it after some time without use. Each container takes one of the fleet's slots. A caller that finds no free
// slot waits in the queue. A [Lease] is the use of a Host, and keeps its container awake. A pool has started containers
// that wait for callers.
//
// A [Sidecar] is a program in a container of its own that shares the network of another container and nothing else. For
// example, a browser that checks an application has to reach it at 127.0.0.1, and neither may reach the other in
// another way. A sidecar runs during one call of [Fleet.RunSidecar]. It ends with its container, and with ramus.
//
// Containers may work next to another one ([Fleet.AcquireCompanions]), as services do. They are ordinary containers without a door. They end
// with the other one.
//
// # Invariants
//
// A container has no network apart from the door, a reverse forward at 127.0.0.1:7070 that the host answers. A
// container has no secret. Nothing is lost with a container, because work that counts was committed and pushed through
// the door.
//
// The [Fleet] limits the disk space of a container ([Limits].Disk). It measures a container from outside, once the disk
// has given away as much as the container may still take. The folder of a removed container is renamed at once, and
// deleted when no caller waits for the machine.
//
// # Durability
//
// The runner keeps the exit code and the output of each command until the host has fetched them ([Host.Forget]). A
// restart of ramus or of the container engine in the middle of a command loses neither.
//
// # Untrusted input
//
// Commands in a container are hostile. So is everything that the runner, the labels and the folders of a container
// report. A [Pin] fixes the key of a runner, so that no other process answers in its place.
package containers
