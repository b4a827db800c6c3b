// Package replica has several servers answer as one. Each owns repositories, and passes requests for those of another
// replica on to it.
//
// # Nouns
//
// A [Front] passes on requests for things that its replica does not own. The inner address is the one at which other replicas reach a
// replica, with [Front.Inner]. The home is the replica with all that belongs to no repository: people, their sessions and
// tokens, credentials of the server, triggers and Slack.
//
// # Where a request goes
//
// The owner of a request follows from the repository in its path, query or body, or otherwise from the caller, the run or
// the task, the tournament or the link in its path, for which the replicas ask each other. Requests without any of these go to the home if they are
// about people, and are answered where they arrive otherwise. A [Keeper] keeps records of work apart from its repository, which
// go along when it moves.
//
// # Invariants
//
// A request is passed on at most once. The inner address answers a request or refuses it with status 421.
// Then, and if no connection can be opened, the front asks the cluster for the owner, and tries again while nothing of the
// request's body was sent, for [Front.Patience] at most. So a replica that is replaced delays requests, and fails none.
//
// A request keeps its credentials, its host and the address of its client. The owner checks them, and the log of its
// requests names the client and the replica that passed the request on.
//
// # Untrusted input
//
// Replicas prove to each other that they know the installation's secret, by TLS 1.3 with certificates for a key that is
// derived from it. All of them are equal, because each has the key that signs tokens. Headers of the inner address are
// ignored everywhere else.
package replica
