// Package secret keeps the secrets that repositories use.
//
// # Nouns
//
// A [Store] is a file of encrypted [Secret]s. A secret belongs to one repository, to all of them, or to a person. Its value is in the
// store, or is a reference to another place ([Resolver]), which is read whenever the value is needed. A secret names the
// hosts that may get it.
//
// # Invariants
//
// A value never enters a container, a URL, a log or a journal. It leaves the server only in the header of a request for
// one of the secret's hosts, or of a forge if it is a person's. The store is on disk when a change of it returns. No method lists values.
package secret
