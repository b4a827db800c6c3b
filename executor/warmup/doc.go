// Package warmup wakes containers while people type prompts.
//
// # Nouns
//
// A warm-up holds the container of a caller for a person who types. A caller is expected if its name is drawn for the first
// run that a person is about to begin in a repository. Then its container is bound to the tip of the base, and the run gets
// both. A [Warmer] has the warm-ups in progress.
//
// # Invariants
//
// Nobody waits because of a warm-up. There is none if it would need the last free place, and a person has at most two. A
// container that no run uses in time is removed.
//
// # Durability
//
// Nothing survives the process. The next process adopts the containers, and knows no expected callers.
package warmup
