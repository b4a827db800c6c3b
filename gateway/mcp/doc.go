// Package mcp serves the Model Context Protocol to people's programs over HTTP, and to agents at the door of their
// container.
//
// # Nouns
//
// An [API] serves people's programs. A session belongs to the bearer that began it. A [Door] serves the agent in one
// container. Its tools are the list of package catalog that the journal of the run holds. Its requests have no
// sessions, so that a removed container leaves nothing. A toolset is a server of tools for one bearer or one
// container. A replica is one of several servers that answer as one. It has the sessions that it began, and passes calls
// of tools on to the replica that has their work.
//
// # Invariants
//
// A bearer sees only tools that its grant lets it use. Arguments are checked against the strict schema of their tool.
// An error is a result, because a model can correct its arguments only if it gets the error.
//
// # Untrusted input
//
// Arguments are hostile. So are pages of other sites in the browser of somebody with a token. A request whose host is
// not a name of the server, or whose origin is not listed, is refused.
package mcp
