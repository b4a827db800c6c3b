// Package workspace shows callers as workspaces, the places in which people work in a browser.
//
// # Nouns
//
// A workspace is a [record.Caller] with its branch and its container. Nothing about it is stored: its [State] follows
// from the container and from the last run. The boot of a workspace is the run that began its container.
//
// # Invariants
//
// A workspace goes from one state to another only along [State.Next]. A workspace is deleted only from the states
// stopped and error. Its runs stay, and through them its commits.
package workspace
