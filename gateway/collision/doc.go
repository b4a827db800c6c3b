// Package collision tells people once that their branch does not merge with another one, and once that it does again.
//
// # Nouns
//
// A collision is a pair of branches of a repository that [radar.Radar] finds, from the moment at which it appears until
// it goes. A place is the thread, the task or the pull request that follows the branch of a caller.
//
// # Invariants
//
// The collisions of a repository are kept at the ref [Ref], each with an id and with the places that know of it. The
// id is durable before the first place is told, and makes the key of the message. A place posts a message of a key
// once, so a server that is killed in between repeats nothing and forgets nothing.
//
// A private caller is named to nobody else. Its own places are told of branches that are not private.
package collision
