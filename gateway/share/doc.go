// Package share makes links that show one thing to people who do not sign in.
//
// # Nouns
//
// A link shows a run, a moment of a timeline, or a conversation. It is read-only, ends at a time, and can be revoked. A [Record] says who
// made it, and of what. The token of a link is a signature over its id and its end, so that nobody can guess one, and a token alone opens
// nothing: the record is asked each time.
//
// # Invariants
//
// A record is on disk before its link is given away, and its revocation before that is acknowledged. Only a person who may change a
// workspace makes links to it, and only its owner if it is private. A link to a workspace that has become private since opens only if its
// owner made it. Tokens are in no log and in no list.
package share
