// Package provenance finds out why a line of a file is as it is.
//
// # Nouns
//
// A [Question] is about lines of a file at a commit. An [Answer] has the lines, and the causes of them. A [Cause] is
// the commit that a line comes from, with the step of a run that made it: its command and output, the prompt and the
// agent, the person, the place where the work was asked for, and the checks after it. A [Reader] answers questions.
//
// # Squashes
//
// A squash commit has the changes of a branch, and not its commits. The Reader has git look through it, as if it were a
// merge of the branch. It finds the branch by the trailer of a squash that ramus made. For a squash of a forge it
// compares the files: the squash has the same tree as the last commit of a run, or changes the same files to the same
// contents.
//
// # Invariants
//
// Nothing is stored. Answers follow from commits and journals, also after the index was rebuilt. A run that the asker
// does not see is not part of an answer, and git does not look through a squash of its work.
//
// # Untrusted input
//
// Everybody who pushes a commit chooses its trailers. A commit belongs to a step only if the step's journal names the
// commit, or a commit with the same author and message of which it is a copy, as a rebase makes them. Otherwise the
// answer has the commit alone, and [Cause.Claimed] has the run that the commit names.
package provenance
