// Package acp is a client of version 1 of the Agent Client Protocol
// (https://agentclientprotocol.com). The protocol is JSON-RPC 2.0, with one message
// a line, over the standard input and output of an agent.
//
// A [Conn] is a connection to one agent process. [Connect] takes both ends of the
// process's pipes and initializes the protocol. [Conn.Open] begins a session or
// continues one. [Conn.Prompt] sends a prompt and returns the reason for which the
// agent stopped. Meanwhile the agent sends updates and requests, which go to the
// [Client].
//
// # Untrusted input
//
// An agent may send anything, because it runs with code that nobody has reviewed. A
// line has at most [MaxLine] bytes. A line that is not a message goes to
// [Options].Stray. Messages are read only as fast as the client handles them. At
// most [maxRequests] requests and [maxNotes] notifications wait, and then nothing is
// read from the pipe. A newer agent may send updates, fields and kinds that this
// package does not know. They are passed on unchanged or answered with "method not
// found", and never end the session.
package acp
