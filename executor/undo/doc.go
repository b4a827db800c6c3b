// Package undo finds the commits of a run in a branch, so that they can be taken out again, and those of single steps,
// so that they alone can be brought there.
//
// # Nouns
//
// [Work] is the work of a run in a branch. [Merged] finds it, in the ways in which work gets there: its own commits
// after a merge or a fast-forward, copies after a rebase. A squash, also by a forge, has no commits of the run, so the
// run's own ones are taken, whose changes are taken out of the files as they are now. [Steps] finds the commits of
// steps. A [Blocker] is a later commit that changed a file in conflict, with its run.
//
// # Invariants
//
// Nothing is changed here. The trailers of commits prove nothing, because everybody who pushes a commit chooses them:
// the commits of a run are those between the beginning and the end of its branch, which its record has.
package undo
