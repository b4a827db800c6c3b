// Package upstream keeps the bases of repositories equal to the repositories that these come from.
//
// # Nouns
//
//   - A base is the branch of a repository that callers' branches begin at. A [Source] is where the repository comes
//     from.
//   - A [Deploy] reports that a commit of a repository was deployed. The base follows it.
//   - A [Landing] brings a caller's branch into a base, and a policy decides what that means for its upstream. A [Host]
//     takes pull requests.
//   - [Bases] fetches bases, and keeps a manifest ([gitd.Base]) of each state that one had.
//
// # Durability
//
// A deploy that was accepted is in a file until it is done. The next process continues it. A base follows its
// upstream at once. The dependencies of the base are fetched afterwards, and nothing that waits for the base waits
// for them.
//
// # Untrusted input
//
// A Deploy comes from outside. [Deploy.Check] bounds it before it becomes part of a manifest. A deploy that holds
// the value of a secret is refused.
package upstream
