// Package replay runs the commands of a run again, and compares the results.
//
// # Nouns
//
// A [Command] is a command or a task of a run, as its journal has it. A [Replayer] runs it again from the commit from
// which it began, in a container of a new caller. [Compare] compares the two outcomes: the files, the exit status, the
// outputs. A [Difference] is the first place of a file or an output at which they differ. The [Verdict] has all
// commands of the run.
//
// # Invariants
//
// Nothing that exists is changed. A command whose beginning is not completely recorded is not run again, and says why:
// variables and secrets that came with the request are not kept, and neither are the words of an agent's model and the
// state of a terminal.
//
// A verdict is kept in the repository, at refs/ramus/replays/CALLER/RUN. A replay of some commands replaces the results
// of these alone.
package replay
