// Package gateway is the way in: one HTTP interface over the executor and the Git server, for the command line, for
// programs and for stock git clients.
//
// # Nouns
//
// A [Server] is one http.Handler. Its table of routes is that of several APIs, small structs with a method Routes:
// those of repositories, runs, callers, commands, deploys and administration are here; packages chat, engineer,
// evidence, preview, signin and mcp have their own. Package route serves the table. The OpenAPI document is made from
// it.
//
// # Names in paths
//
// A name is one segment of a path; slashes inside it are written %2F: /api/repos/team%2Fapp/log,
// /api/runs/run:fancy-mallard%2F01k9/events. Runs and callers may be named by any part that is unique.
//
// # What is hostile
//
// Every request. See package route.
package gateway
