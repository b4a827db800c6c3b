// Package timeline shows the commands of a caller one after another, each with the files that it left.
//
// # Nouns
//
// A [Tick] is one command, one task or one turn of an agent. Its id is RUN/SEQ, where SEQ is the number of the event with which it began.
// A [Line] is a part of a timeline, the oldest tick first. [Timelines] reads it.
//
// # Invariants
//
// Ticks are a pure function of the journals of the runs. Nothing is stored. A part has at most [MaxTicks] ticks, and reads only the journals of
// the runs that it shows and of the next one on each side. The files of a tick are those of its commit, also if the command failed.
//
// # Untrusted input
//
// Commands, prompts and names of pictures come from people, agents and commands. The package passes them on as they are, bounded.
package timeline
