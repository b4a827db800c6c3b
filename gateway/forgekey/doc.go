// Package forgekey stores people's own tokens of forges, with which ramus opens the pull requests that they ask for.
//
// # Nouns
//
// A [Site] is a forge at which people may have tokens. An invitation is a link for one person, whose identity another
// part of ramus has checked. The page of the link takes one token. [Keys] makes invitations, and has the tokens.
//
// # Invariants
//
// An invitation ends when a token was stored, or after ten minutes. It is in memory only. A token is stored after its
// forge has accepted it, and sealed. It is used on the host to open a pull request and for nothing else. No page, log or
// container has it.
//
// # Untrusted input
//
// Every request. A page names the person whose token it takes, because somebody may send their own link to another
// person. A program that looks at links, as chat services do, changes nothing.
package forgekey
