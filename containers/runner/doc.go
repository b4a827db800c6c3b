// Package runner is process 1 of every container: an SSH server that starts
// commands, remembers what they printed and how they ended, and outlives them.
//
// # Nouns
//
// A command is a process group with a name, its [Request.ID]. Its stdout and
// stderr are drained into spools, unlinked files that nobody else can open, so
// a command never waits for a reader and a reader may come late, twice, or
// from another process of the host. Whatever the runner knows of a command it
// keeps until it is told to forget it.
//
// # Protocol
//
// The transport is SSH (RFC 4251-4254). One public key is let in; the host key
// is made when the runner starts and lives in its memory only.
//
// Everything about commands is an "exec" request on a "session" channel, its
// command string a [Request] in JSON. The answer comes on the same channel:
//
//   - on failure the channel request "error@ramus.dev", a [Failure] in JSON;
//   - "start" and "attach": the channel request "started@ramus.dev", then the
//     command's output as the channel's data and extended data, then
//     "exit@ramus.dev", an [Exit] in JSON, and RFC 4254's "exit-status". The
//     channel's input is the command's stdin; "eof@ramus.dev" before the
//     channel's EOF tells an end that was meant from a connection that broke:
//     input that broke off has no end, so that nobody takes half for whole,
//     and "list" tells of it. "window-change" and "signal" are RFC 4254's;
//   - "list" and "ports": JSON as the channel's data, then "exit-status" 0;
//   - "kill" and "forget": "exit-status" 0.
//
// A lost connection or a closed channel ends an attachment, never a command.
//
// The subsystem "sftp" is served by a child process of the commands' user.
// "direct-tcpip" reaches ports of 127.0.0.1. "tcpip-forward" is accepted for
// the door (127.0.0.1:7070) alone; the runner listens there from its start and
// until its end, so that no command can take the place; the connection that
// asked last is the one that gets the door's connections, and those that come
// while there is none wait for it a while.
//
// # What hostile commands cannot do
//
// Commands may be anything. They run as another user or, where the container
// has but one, as the same user with the runner made undumpable: its memory,
// descriptors and spools are out of reach either way. They have no
// capabilities and cannot gain any. No signal ends the runner: the kernel
// spares process 1 those it has no handler for, and all others are caught and
// dropped. When a foreground command ends, everything dies that does not
// belong to a command that is still running, whatever its session or parent;
// when none is running, everything.
package runner
