// Package signin lets people in, with a browser, and gives tokens to programs.
//
// # Nouns
//
// [People] has the accounts, their sessions and the log of their actions. An identity is proved by
// [GitHub], by a provider of OpenID Connect ([OIDC]), or by the owner's link, which the unix socket
// gives. Each ends in a session, whose cookie opens pages and nothing else. An administrator makes a token with
// [NewToken]. GitHub can also end in a token, for programs. It is stored nowhere, and ends by itself.
//
// # Invariants
//
// An attempt to sign in is bound to the browser that began it by a cookie, and lets nobody in. The owner's link works
// once. A browser is sent back only to paths of this server. A session begins with a new id, and the session that the
// browser had before ends. A change of people, sessions or tokens is in the log of actions before it is answered.
//
// # Untrusted input
//
// Every request, the way back in it, and the names that a provider sends.
package signin
