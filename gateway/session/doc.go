// Package session keeps the sessions of people who signed in with a browser.
//
// # Nouns
//
// A [Session] is one browser of one account. A [Store] keeps all sessions in a bbolt file, and in memory. The cookie
// of a session is a family, which is the same for the whole session, and an id, which changes every half hour. The
// file has the SHA-256 of both.
//
// # Invariants
//
// A session that was begun or ended is on disk before the browser gets the answer. The loss of the file ends all sessions
// and nothing else. A new id counts from its first use, so that a browser that never received it keeps the old one.
// From then on the old one is valid for [Overlap] more, for tabs that load at the same time. A later request with an
// old id ends the whole session, because one of the two users of the id has stolen it.
//
// A note is a secret of the session, such as the token with which a provider answers later questions. It is encrypted
// with a key that follows from the id in the cookie, so that nobody can read it with the file alone.
//
// # Untrusted input
//
// Every cookie, and the name that a browser gives itself.
package session
