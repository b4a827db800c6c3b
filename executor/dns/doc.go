// Package dns keeps names in DNS for the parts of a server that come and go, such as workspaces and nodes.
//
// A source returns the names that it has now, with their addresses. [Names] compares them with the names that it has
// set, sets those that are missing or have changed, and removes the others. The names that were set are in a file. A
// name is in the file before it is in DNS, and stays there until it is removed, so a crash leaves no name that nobody
// removes.
package dns
