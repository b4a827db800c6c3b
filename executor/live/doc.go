// Package live has the runs that work or wait in line, as they are now.
//
// # Nouns
//
// A [Folder] is DATA/live, with the journals and the outputs of these runs. A [Run] is one of them. It has the record and
// the journal of the run, and sends each event to those who read it. A [Follower] is one reader, of a run or of all runs of
// a folder. [Outputs] are the two streams of a step while it prints. A [Beginning] is a step as the journal has it. An
// [Attendance] is a request that waits for the end of a run.
//
// # Invariants
//
// An event is in the journal before anybody reads it, and secrets are removed before that. Live output is in a file and in
// memory, not in the journal, and a reader that is too slow loses parts of it.
//
// # Durability
//
// The journal survives, and the outputs as far as they were saved. A run that is opened again has its record from the last seal, and
// everything later from its journal, see [Run.Recall] and [Run.HadEnded].
package live
