// Package mcp serves the Model Context Protocol: to people's programs over HTTP, and to agents at the door of their
// container.
//
// # Nouns
//
// An [API] serves people's programs. A session belongs to the bearer that began it. A [Door] serves the agent in one
// container the list of package catalog that its run's journal holds; its requests have no sessions, so that a
// container that is gone leaves nothing. A toolset is a server of tools for one bearer or one container.
//
// # Invariants
//
// A bearer sees only tools that its grant lets it use. Arguments are checked against the strict schema of their tool.
// An error is a result, because a model can correct its arguments only if it is told about them.
//
// # What is hostile
//
// Arguments, and pages of other sites in the browser of somebody with a token: requests by a name that is not the
// server's, or with an origin that is not listed, are refused.
package mcp
