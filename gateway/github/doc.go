// Package github uses GitHub or a GitHub Enterprise Server, as an App that is installed in accounts, or with a token
// that a person made. Its [Client] is a forge.Forge.
//
// # Nouns
//
// An [App] has a private key. It signs short-lived assertions (RS256 JWTs), which only serve to request tokens. A token
// is requested for one repository and one [Access], even if the installation may do more. [Token] is a token that a
// person made.
//
// The [Client] reads and writes pull requests. It retries until GitHub answers. Its posts have an invisible mark, so
// that a lost answer does not cause a second post.
//
// [ParseDelivery] reads a webhook. A delivery may arrive twice, late, out of order or never. It reports that an event
// happened, and the Client reads the current state.
package github
