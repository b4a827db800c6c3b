// Package shell runs the programs of terminals in the containers of callers, and commits the work that people do there.
//
// # Nouns
//
// A [Shell] is a run of [record.KindTerminal] with its program. The program is a background command of the container, so
// it outlives the server's process, and its run has no turn. The runs of the caller work in the container meanwhile.
//
// [Shells] are those of all callers.
//
// # Commits
//
// Each command that a person types is a step, and is committed like one, with its output. The marks that the shell prints
// say where commands begin and end, see [terminal.Mark]. They prove nothing. A program that prints false ones makes more
// commits of the same person. Changes of a program without marks are committed when it has been quiet for some time, and
// when it ends.
//
// # Restarts
//
// The journal has each command that began, with the offset of its output, so a next process of the server connects to the
// program again and goes on at the first mark that is not in the journal. No command is committed twice. If the container
// is gone, the terminal ends with [record.ReasonContainerLost].
package shell
