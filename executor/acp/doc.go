// Package acp is the client's side of the Agent Client Protocol
// (https://agentclientprotocol.com), version 1: JSON-RPC 2.0, one message a line,
// over the standard input and output of an agent.
//
// A [Conn] is one agent process. [Connect] takes both ends of its pipes and
// introduces the two sides; [Conn.Open] begins a session or goes on with an old
// one; [Conn.Prompt] says something in it and returns why the agent stopped.
// Meanwhile the agent tells what it does and asks for things: all of that goes to
// the [Client].
//
// # What an agent may send
//
// Anything: it runs among code that nobody has read. A line has at most
// [MaxLine] bytes. A line that is no message goes to [Options].Stray. Messages are read only
// as fast as the client takes them: at most [maxRequests] requests and
// [maxNotes] notifications wait, then the pipe does. What the agent knows and
// this package does not (a newer version's updates, fields, kinds) is passed
// along as it came or answered with "method not found", never an end of the session.
package acp
