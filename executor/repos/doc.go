// Package repos removes, renames and moves repositories with everything on the server that belongs to them.
//
// # Nouns
//
// A repository has branches and runs, which are in it. The index, the layers, the dependency cache, the credentials and the
// Git LFS objects are elsewhere. A repository moves from one server to another with its branches, its runs and their
// artifacts.
//
// # Invariants
//
// A repository with work that has not ended stays. Its work is ended first, or the caller gets a [record.ErrConflict] that
// names it. The repository changes before the data that follow from it, so a kill leaves only data that the next start
// makes again or that Prune removes.
package repos
