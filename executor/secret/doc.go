// Package secret keeps the credentials of people, of repositories and of the server.
//
// # Nouns
//
// A [Store] is a [sealed.Box] of [Secret]s. A secret belongs to an [Owner]. Its value is in the box, or is a reference
// to another place ([Resolver]), which is read whenever the value is needed. A secret of [TypeSecret] names the hosts
// that may get its value. One of [TypeAgentKey] is a key for a model API, which the model door uses in place of the
// server's. A [User] is the run that uses a secret, with its person and repository.
//
// # Invariants
//
// A value never enters a container, a URL, a log or a journal. It leaves the server only in a header of a request for
// one of the secret's hosts, or for the model API that the key is for. It is known to [redact.Secrets] before its first
// use. [Audit] gets the first use by each run before the value is used. A change of the store is on disk when the
// method returns. No method lists values. A damaged secret is refused, and no other one is used in its place.
package secret
