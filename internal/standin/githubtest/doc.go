// Package githubtest stands in for GitHub: an HTTP server with users,
// repositories, pull requests and one App, which speaks the REST API, smart HTTP
// and webhooks as GitHub does, over real connections and with real signatures.
//
// # Nouns
//
// A [Server] is GitHub with one account. A [Repo] is a repository of it: what
// people do there are its methods ([Repo.Push], [Repo.Review], [Repo.Merge]). Behind it is a
// bare repository of Git's, served by git itself; a pull request's diff, whether it
// can be merged, and the merge are computed from it. What the App does arrives
// at the API, and is seen with [Repo.Pull], [Server.Requests] and [Server.On].
//
// # What it refuses
//
// What GitHub refuses: a wrong or expired token, a repository that the token is
// not for, a permission that it has not got, a pull request without commits or
// for a branch that has one, a comment beside the diff, a review of one's own
// pull request, a push by force to a protected branch, more requests than the
// rate limits allow. What only a mistake in the App can earn is kept as a complaint, and [New] fails
// the test for it: tokens for more than is needed or in a URL, fields that are
// not there, asking again before the time that was told.
//
// # Webhooks
//
// Every change makes a [Delivery], as the App is subscribed to all events. GitHub
// delivers each once and does not repeat one that failed; so does the stand-in. They may be held
// ([Server.Hold]), and then be delivered in any order, twice, late or never.
//
// # How it fails
//
// With a [Fault] a route is slow, rate-limited, broken, or does what it was asked
// and loses the answer; with [Server.Down] nobody listens.
package githubtest
