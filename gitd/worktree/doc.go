// Package worktree commits a work tree from outside. It computes the tree that `git add -A` would make in
// the work tree, without running git and without looking at anything but an overlay.
//
// # Nouns
//
// An [Overlay] is a work tree as overlayfs keeps it. Three trees meet in it. The lower tree is that of the
// commit that was checked out. The upper entries are the changes over it. The indexed tree is that of the
// commit that git's index has. A [Snapshot] is a commit of an overlay. A [BlobCache] remembers the blobs of files
// that did not change, as git's index does.
//
// # Invariants
//
// The tree of a snapshot is a function of the files, the three trees, and the .gitignore and
// .gitattributes files among them. No configuration of the work tree's repository and no file below its .git/info
// changes it, and no filter runs but that of Git LFS, which [LargeFiles] implements. An error leaves nothing in the repository. Wherever only git itself can make the
// commit, the error is [ErrNeedsGit].
//
// # Untrusted input
//
// Every upper entry and all that Open returns. The walk bounds files, bytes, depth, and the cost of patterns.
package worktree
