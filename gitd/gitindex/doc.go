// Package gitindex rewrites the index file of a work tree without git.
//
// # Nouns
//
// An index is the file .git/index, version 2 (gitformat-index). An [Entry] is one path that differs,
// and its [Stat] the metadata by which git sees that a file did not change. [Rewrite] applies
// entries to an index. [Check] reports whether it could.
//
// # Invariants
//
// Git finds in a rewritten index the files, the trees and the changes that it would find had it written
// the index itself. Caches of an index are kept only as far as they are still valid.
//
// # Untrusted input
//
// The index to be rewritten may come from a container. It is at most [MaxSize] bytes, and
// every length in it is checked. An index that means more than paths and their content is refused and
// left to git.
package gitindex
