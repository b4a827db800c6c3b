// Package github speaks to GitHub, or to a GitHub Enterprise Server: as an App
// that is installed in accounts, or with a token that somebody made.
//
// An [App]'s private key signs short-lived assertions (RS256 JWTs), each good for
// asking for tokens alone; a token is asked for one repository and one [Access],
// whatever more the installation may do. [Token] is a token of somebody's.
//
// The [Client] reads and writes pull requests. It asks until GitHub answers, and
// what it posts carries a mark that nobody sees, so that an answer that got lost
// does not make a second post.
//
// [ParseDelivery] reads what a webhook says. A delivery may come twice, late, out
// of order or never: it says that something happened, and the Client how things stand.
package github
