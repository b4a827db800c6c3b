// Package seal keeps the seals of runs in a signed chain, and checks it.
//
// # Nouns
//
// A seal is the commit with the record of a run, at the ref of the run. A [Link] is a small signed commit without files.
// It names seals, with the SHA-256 of their manifests, and its parent is the link before it. [Ref] points to the last one.
// A [Chain] has the chains of all repositories. [Check] compares a chain with the runs that are there and returns a
// [Report], which names each [Fault].
//
// # Invariants
//
// A seal names the link before its own in the trailer [TrailerAfter], so a chain cannot be begun again without notice. A
// link names seals as text, so a seal that is pruned does not stay in the repository. A link names a pruned seal
// before it is removed.
//
// The chain and the ref of a run move in one transaction, the chain first. [Chain.Finish] moves the ref of a run
// if a kill came between.
//
// A signer of its own signs seals and links. Nothing that a container asks for is signed with this key.
package seal
