// Package review keeps the remarks of people and agents about lines of a caller's work.
//
// # Nouns
//
// A [Thread] is bound to lines by an anchor, and has [Remark]s, the oldest first. A [Batch] has the remarks that a person sent together, which
// are one prompt to an agent. The [Review] of a caller has all its threads and batches. A [Book] reads and changes reviews.
//
// # Invariants
//
// A review is at refs/ramus/review/CALLER of the repository, one commit for each change. Each thread is a file threads/ID.json, and each batch
// a file batches/ID.json. The commit has the files that its anchors are about at blobs/, and their commits as parents, so that a clone of
// the ref has all that the remarks are about. A change counts when it is on disk. A remark that was added twice, by its id, is there once.
// Remarks are never changed or removed.
//
// # Untrusted input
//
// Texts and excerpts were written by people, agents and repositories. The package bounds them, and keeps them as they are.
package review
