// Package protocol parses the requests of Git clients, and writes requests to git.
//
// # Nouns
//
// A pkt-line is a piece of every conversation (gitprotocol-common). A [Reader] reads them,
// [AppendLine] and [AppendBand] write them. A [Request] is one request of protocol v2, a
// [FetchRequest] or a [RefsRequest] its arguments. A [PushRequest] is the part of a push before its
// pack, with one [Command] for each ref. [CheckUpload] checks requests of protocol v0 and v1.
//
// # Invariants
//
// A request is parsed as a whole and bounded before anything is done. Git never sees the bytes of a
// client in protocol v2, only the text that [FetchRequest.Render] writes of the parsed request. Equal requests
// are rendered to equal bytes.
//
// # Untrusted input
//
// Every byte. Lines, arguments and commands are bounded in length and number. A fault is an
// [object.Refusal], whose text the client may read.
package protocol
