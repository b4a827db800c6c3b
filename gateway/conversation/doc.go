// Package conversation shows the messages and actions of people, agents and commands of one caller in one story.
//
// # Nouns
//
//   - A [Transcript] is a window of the conversation of a caller. It has [Turn]s, the oldest first.
//   - A Turn is one turn of an agent with the prompts that it heard, or another run of the caller. It has entries.
//   - An [Entry] is a prompt, a message of the agent, a call of a tool, a question, a commit, a check … Its id is RUN/SEQ, where SEQ is
//     the number of the event in the journal of the run. Words of an agent have RUN/SEQ.BYTE, where SEQ is that of the turn's beginning.
//   - A [Fold] makes the turns of one run from its journal, event by event.
//
// # Invariants
//
// A transcript is a pure function of the journals and of the agents' words. Nothing is stored. The fold of a journal that is read at
// once and the one of a journal that is followed are equal. An entry that is folded away belongs to the capsule of a turn that has
// ended. Failures, questions, answers, secrets that were found, checks that were skipped and verdicts are never folded away.
//
// # Untrusted input
//
// Texts come from agents, models, commands and people. The package passes them on as they are, bounded. Package markup and templates
// escape them.
package conversation
