// Package gateway serves one HTTP interface to the executor and the Git server, for the command line, for programs and
// for stock git clients.
//
// # Nouns
//
// A [Server] is one http.Handler. Its table of routes joins the routes of several APIs, which are small structs with a
// method Routes. The APIs of repositories, runs, callers, commands, deploys and administration are in this package.
// Packages chat, engineer, evidence, preview, signin and mcp have their own. Package route serves the table. The
// OpenAPI document is generated from it.
//
// # Names in paths
//
// A name is one segment of a path. Slashes inside it are written %2F, as in /api/repos/team%2Fapp/log and
// /api/runs/run:fancy-mallard%2F01k9/events. Runs and callers may be named by any part that is unique.
//
// # Untrusted input
//
// Every request is hostile. See package route.
package gateway
