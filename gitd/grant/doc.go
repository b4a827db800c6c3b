// Package grant decides the rights of the bearer of a token or of an SSH key.
//
// # Nouns
//
// A [Grant] says which repositories its bearer may read, which refs it may write, and until when. A
// [Signer] turns a grant into a token, an EdDSA JWT, and back. A [Ledger] lists the tokens that people
// have, and refuses those that were revoked. An [AuthorizedKey] is one line of an authorized_keys file,
// from which a grant follows for each repository.
//
// # Invariants
//
// A token is not stored anywhere. Its signature is all there is, and the ledger has its id alone. A
// revocation is on disk when [Ledger.Revoke] returns. A grant without scopes allows
// nothing. Refs below refs/ramus/ need a pattern of their own. The key of a server survives a restart
// if it has a file, and two servers that start at the same time make one key.
//
// # Untrusted input
//
// Tokens, before their signature is verified, and names in them also after it. A token is at most 16 KiB
// and is verified with one algorithm only, which its header cannot change. Lines of authorized_keys that are
// not fully understood are not used.
package grant
