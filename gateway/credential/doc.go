// Package credential serves the sealed credentials of people, of repositories and of the server.
//
// # Nouns
//
// A credential is a [secret.Secret] with its value. [API] has the routes: a person lists, stores, tries and removes the
// own ones, an administrator those of everybody.
//
// # Invariants
//
// No answer has a value. A person who may not change a credential cannot find out that it exists.
package credential
