// Package runner is process 1 of every container. It is an SSH server that starts commands, and remembers their output
// and their exit codes after they have ended.
//
// # Nouns
//
// A command is a process group with a name, its [Request.ID]. Its stdout and stderr are copied to spools, unlinked
// files that no other process can open. So a command never waits for a reader, and a reader may come late, twice, or
// from another process of the host. The runner remembers a command until it is told to forget it.
//
// # Protocol
//
// The transport is SSH (RFC 4251-4254). One public key is accepted. The host key is made when the runner starts and
// exists only in its memory.
//
// A request about commands is an "exec" request on a "session" channel. Its command string is a [Request] in JSON. The
// answer comes on the same channel:
//
//   - A refusal is the channel request "error@ramus.dev", a [Failure] in JSON.
//   - "start" and "attach" are answered by the channel request "started@ramus.dev", then the command's output as the
//     channel's data and extended data, then "exit@ramus.dev", an [Exit] in JSON, and RFC 4254's "exit-status". The
//     channel's input is the command's stdin. "eof@ramus.dev" before the channel's EOF marks an intended end of the
//     input. Input of a broken connection has no such mark. The command then gets no end of input, so that it does not
//     take a part for the whole, and "list" reports it. "window-change" and "signal" are those of RFC 4254.
//   - "list" and "ports" are answered by JSON as the channel's data, then "exit-status" 0.
//   - "kill" and "forget" are answered by "exit-status" 0.
//
// A lost connection or a closed channel ends an attachment, never a command.
//
// A child process of the commands' user serves the subsystem "sftp". "direct-tcpip" reaches ports of 127.0.0.1.
// "tcpip-forward" is accepted for the door (127.0.0.1:7070). The runner listens there from its start to its end, so that no command
// can take the address. The connection that asked last gets the connections to the door. Connections that arrive while there is
// none wait for one, up to a limit. "tcpip-forward" is also accepted for other addresses of the loopback than 127.0.0.1, such as
// 127.0.1.1:5432 of a service. The runner listens there until "cancel-tcpip-forward".
//
// # Untrusted input
//
// Commands are hostile. They run as another user. If the container has only one, they run as the same user as the
// runner, which is then undumpable. In both cases its memory, descriptors and spools are out of reach. Commands have no
// capabilities and cannot gain any. No signal ends the runner. The kernel withholds from process 1 the signals without
// a handler, and all others are caught and dropped. When a foreground command ends, all processes that do not belong to
// a running command are killed, with any session or parent. If no command is running, these are all processes.
package runner
