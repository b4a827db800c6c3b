// Package people keeps records about people in git, in the repository ramus-people.
//
// # Nouns
//
// A record is JSON in the only file of a commit, at a ref of its own. [Records] are all of one kind, such as accounts,
// whose refs have a prefix in common. Each change is a commit. It is signed if Records or the Git server has a signer.
// Its parent is the change before it, unless the kind keeps no history. The repository also has the log of actions,
// which has other commits.
//
// # Invariants
//
// A change counts when its ref is on disk. A change that does not follow the commit that its writer knows is refused. A
// record that is written can be read again, because both have the same bound.
package people
