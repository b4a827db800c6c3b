// Package githost has git for the stand-ins of forges: processes of git, its protocol over HTTP, and commits.
//
// # Nouns
//
// A [Host] has a folder of bare repositories. Its processes of git do not read the configuration of the machine. A
// [Backend] answers one request of git's protocol by git http-backend.
package githost
