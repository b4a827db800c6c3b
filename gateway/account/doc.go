// Package account keeps the people who may sign in, with their roles.
//
// # Nouns
//
// An [Identity] is a person as a provider describes them. A [Person] is the account of one, which the [Store] keeps in
// git. A [Rule] of the configuration names people by login, id, organization or claim. [Rules] give roles by them.
//
// # Invariants
//
// An account belongs to a provider's own id of a person, which never changes, and not to the login, which may. A login
// that belongs to an account admits nobody with another id. Each change of an account is a signed commit at
// refs/ramus/accounts of the repository ramus-people, and is on disk before it counts. A role that an administrator
// gave counts instead of those of the rules.
//
// # Untrusted input
//
// Names, logins and claims, which people choose themselves.
package account
