// Package gateway is the way in: one HTTP interface over the executor and the
// Git server, for the command line, for programs and for stock git clients.
//
// # Nouns
//
// A [Server] is one http.Handler made from one table of [route.Route]s; what a route
// needs of its caller stands in the table's Access column. A [route.Who] is the
// caller of a request: the bearer of a grant, whoever may open the unix socket
// (an administrator: the file system has checked them), or nobody. A [route.Problem]
// is every answer that is not a success, in one form (RFC 9457).
//
// # Names in paths
//
// A name stands in one path segment; slashes inside it are written %2F:
// /api/repos/team%2Fapp/log, /api/runs/run:fancy-mallard%2F01k9/events. Runs
// and callers may be named by any part that is unique.
//
// # What is hostile
//
// Every request. Bodies, streams and their number are bounded; a grant that is
// limited to one repository is told "not found" about everything in the
// others, so that it cannot even probe for names.
package gateway
