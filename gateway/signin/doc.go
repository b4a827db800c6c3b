// Package signin gives people and programs tokens.
//
// # Nouns
//
// An administrator makes a token with [NewToken]. [GitHub] gives a token to people for their account at GitHub. There
// are no sessions and nothing is stored: a token holds a grant that ends by itself.
//
// # What is hostile
//
// Every request of a sign-in. An attempt is bound to the browser that began it by a cookie, and lets nobody in. Only
// logins and organizations of the configuration get a token.
package signin
