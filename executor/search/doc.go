// Package search finds words in the runs of a server: in prompts, answers, commands, outputs, paths, subjects of commits, and names of
// people.
//
// # Nouns
//
// A [Passage] is one text of a run, such as the output of one command. A chunk is up to 64 KiB of the passages of one run. Its signature is
// a set of bits, one for each three bytes that follow each other in the chunk. A [Query] has words. A [Hit] is a line that has them all.
//
// # Invariants
//
// The [Index] is a file that can be deleted at any time. It holds nothing that journals and refs do not, and [Index.Refresh] reads them
// again. A chunk whose signature lacks three bytes of a word is not read, so that the time of a search depends on the chunks that have
// the words, and hardly on those that do not.
//
// A search returns only hits of the runs that [Query.Sees] allows. It does not read the chunks of other runs.
//
// # Untrusted input
//
// All texts come from people, agents and commands. The index keeps at most [MaxRun] bytes of one run and [MaxText] of all. Words of a
// query are taken literally.
package search
