// Package tournament has several agents do one task side by side, and ranks their work by evidence.
//
// # Nouns
//
// A [Plan] has the task, the commit at which all entries begin, and the entries. An [Entry] is a new caller with the agent
// that works for it. A [Record] is a plan with its state. A [Result] is the evidence of an entry, and a [Place] is a
// result with its place in the ranking. An [Opinion] is the words of a model about entries that are equal.
//
// # Invariants
//
// A record is one commit at refs/ramus/tournaments/NAME of the repository, and is there before the first entry begins. An
// entry begins once, also if the server is killed. Its work is an ordinary run of an ordinary caller. The ranking is not
// kept. It follows from the evidence of the runs and from the sizes of the diffs. An opinion never goes before evidence.
package tournament
