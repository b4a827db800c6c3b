// Package githubtest is a stand-in of GitHub. It is an HTTP server with users, repositories, pull requests and one App. It
// implements the REST API, smart HTTP and webhooks as GitHub does, over real connections and with real signatures.
//
// # Nouns
//
// A [Server] is GitHub with one account. A [Repo] is a repository of the account. Its methods are the actions of people
// ([Repo.Push], [Repo.Review], [Repo.Merge]). Each has a bare repository that git itself serves. The stand-in computes the diff of
// a pull request, its mergeability and its merge from it. The App's requests arrive at the API. [Repo.Pull], [Server.Requests] and
// [Server.On] report them.
//
// # Refusals
//
// The stand-in refuses the requests that GitHub refuses. Examples are a wrong or expired token, a token for another repository, a
// missing permission, a pull request without commits or for a branch that has one, a comment outside of the diff, a review of
// one's own pull request, a push by force to a protected branch, and more requests than the rate limits allow. A mistake that only
// the App can make is a complaint, and [New] fails the test for it. Examples are tokens for more than is needed or in a URL,
// unknown fields, and a retry before the required time.
//
// # Webhooks
//
// Every change makes a [Delivery], because the App is subscribed to all events. Like GitHub, the stand-in delivers each once and
// does not retry a failed one. [Server.Hold] holds deliveries. A test then delivers them in any order, twice, late or never.
//
// # Failures
//
// With a [Fault] a route is slow, rate-limited or broken, or has its effect and loses the response. With [Server.Down] no program
// listens.
package githubtest
