// Package terminal serves the terminals of callers, over REST and over WebSockets.
//
// # The protocol ramus.term.1
//
// A socket is one viewer of one terminal (see executor/terminal). Messages are binary. The first byte is the type of the
// frame. Numbers are big-endian.
//
//	client → server                                          server → client
//	01 hello   JSON, [Hello]; the first frame                11 state    JSON, [State]
//	02 input   bytes                                         12 output   u64 offset, bytes
//	03 size    u16 columns, u16 rows                         13 reset    u64 offset, reason, NUL, bytes
//	04 ack     u64 offset up to which output was shown       14 mark     JSON, [Done]: a command was committed
//	05 take    the viewer becomes the owner                  15 pong     the bytes of the ping
//	06 ping    at most 64 bytes                              1F problem  JSON, [Problem]
//
// Offsets count the bytes of output since the start of the terminal. A viewer that connects again sends the offset that it wants,
// and gets all bytes from there, none twice. After a reset the client clears its screen, writes the frame's own bytes, which
// belong to no offset, and goes on with the output at the offset. A client acknowledges the output that it has shown. The server
// sends 128 KiB without an acknowledgement, and goes on when no more than 64 KiB are left.
//
// Input that was not sent when a socket ends is lost. A client must not keep it for later.
package terminal
