// Package containers gives every caller a disposable computer of its own.
//
// # Nouns
//
// An [Engine] starts, finds and removes containers and hands over a byte
// stream to the runner inside; nothing else. The runner (`ramus runner`, the
// same static binary, mounted read-only) is process 1: an SSH server. A [Host]
// is the executor's SSH connection to one runner; through it go commands,
// their output, files, terminals and forwarded ports. A [Fleet] keeps one Host
// per caller: made at the first command, reused while warm, removed when idle,
// built anew at the next command.
//
// A [Sidecar] is a program that runs beside a container, in its network and in
// nothing else of it: a browser that looks at an app must reach it at 127.0.0.1,
// and neither may be in reach of the other otherwise. It lives as long as one
// call ([Fleet.Beside]), and never longer than its container or ramus.
//
// # Invariants
//
// A container has no network but the door, a reverse forward at
// 127.0.0.1:7070 that the host answers, and no secret. A container holds
// nothing that cannot be lost: what counts was committed and pushed through
// the door.
//
// What a container may take on disk ([Limits].Disk) is bounded by the [Fleet]: from
// outside, by looking at what lies there when the disk has given away as much as it may
// still take. The folder of a container that is gone is moved out of the way at once and
// deleted when nobody waits for it.
//
// # What survives
//
// The runner keeps each command's exit code and output until the executor has
// taken them ([Host.Forget]); a restart of ramus, or of the container engine,
// in the middle of a command loses neither.
package containers
