// Package standby keeps a copy of a server's data folder up to date on another machine, and makes it the server.
//
// # Nouns
//
// The leader is the server that is followed, a [Leader] in its process. A [Follower] on the other machine has a data
// folder of its own. A [Round] has the changes of the leader's folder from one moment to another: refs, the small files
// of the data folder, and artifacts. The list of files is that of package backup. An [Epoch] numbers the servers that
// used the same data one after the other. It is a commit at a ref of the repository ramus-people.
//
// # Invariants
//
// The refs and files of a round are those of one moment. A follower has the state of one round, never parts of two. A
// follower that is killed while it applies a round applies it to its end before anything else, from [Applied]. So a
// promoted server continues from a state that a crash of the leader could have left.
//
// A follower confirms a round when all of it is on disk. With Sync a leader acknowledges a change only when a follower
// has confirmed it. A leader that knows of a higher epoch refuses all changes, also after a restart.
//
// # Untrusted input
//
// A follower trusts the leader's content as it trusts its own data folder, but no name leads out of the folder. A leader
// trusts nobody with an administrator's token: what followers send names rounds and files, and is bounded.
package standby
