// Package githubread lets programs in containers read the caller's repository at GitHub. It is there for the GitHub CLI.
//
// # Nouns
//
// A [Reader] answers requests to GitHub's API that come through a container's door. It adds a token of ramus on the host,
// so no token enters a container. The runner of a container listens at a unix socket, to which the variable
// GH_CONFIG_DIR of every command leads gh. [Reader.Env] has the variables that name the site and the repository.
//
// # Invariants
//
// Only the repository of the caller is read. A request is forwarded if it is a GET below an allowed path of that repository,
// or a GraphQL query whose root is that repository and whose fields are all on a list. The list has no field that leads to
// the content of another repository, because the token of a person may read more than one. Every other request is refused
// with a message that gh shows.
//
// # Untrusted input
//
// Requests are hostile, because a container's root writes them. They are bounded in size, depth and number of fields. Redirects are not
// followed, because a token must not go to another host.
package githubread
