// Package radar finds the live branches of a repository that do not merge with each other.
//
// # Nouns
//
// A branch is live if it has commits that the base lacks, shares a commit with it, and has changed in the last 30
// days. A [Conflict] is a pair of live branches, or of the base and a live branch, with the files that git cannot
// merge.
//
// # Invariants
//
// git itself merges each pair, so the answer is the one that a merge would give. No result of a merge is kept, and no
// ref changes. A pair is merged again only after one of its branches has moved. The reader of a report sees only the
// branches that it may see.
package radar
