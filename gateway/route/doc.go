// Package route serves tables of routes.
//
// # Nouns
//
// A [Route] is one way in: method, pattern, access, and the types of its query, body and answer. One table of routes
// makes the mux, the OpenAPI document and the test of access. A [Mux] serves a table. A [Call] is one request on its
// way through a handler, which returns an error or writes an answer. A [Who] is the caller of a request: the bearer
// of a grant, a process that can open the unix socket ([Local], an administrator, because the file system has
// checked it), or nobody. A [Problem] is every answer that is not a success, in one form (RFC 9457).
//
// # Invariants
//
// A route without an access class is not served. [AsProblem] is the only place where an error becomes an answer; an
// error that it does not know is internal, and only administrators see its text. An answer that breaks in the middle
// ends without its last chunk, so that no reader takes it for a complete one.
//
// # Untrusted input
//
// Every request. Bodies are limited in size and in the time that they take to arrive, streams in number and in the
// time that a reader may leave one write unread. A caller that is limited to one repository is told "not found" about
// everything in the others, so that it cannot find out which names exist.
package route
