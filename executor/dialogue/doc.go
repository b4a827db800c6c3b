// Package dialogue leads the runs of coding agents, and has people answer the questions of runs.
//
// # Nouns
//
// A [Dialogue] is the conversation of one run: with its agent, which gets prompts, and with people, who get questions.
// Runs without an agent have one too, because a rule of the base may ask a person about any command.
//
// A prompt is a text for the agent. It waits in the queue of the run until a turn hears it, and can be changed or taken
// back until then. A turn is one invocation of the agent, and a step of the run. After the last turn come the checks, each
// a step. A prompt that arrives meanwhile begins another turn, and the checks run again.
//
// A question is open until a person answers it, or the turn that asked it ends. A run has one open question at a time.
//
// # Invariants
//
// A prompt and an answer are journalled, durably, before the method that takes them returns. The lock of the run guards
// both that and the decision that there is no further turn, so no accepted prompt is lost.
//
// The state of a dialogue follows from the journal. A next process of the server goes on at the turn, the check or the
// question that was open.
//
// # Protocols
//
// An agent of [agent.ProtocolText] is a command that gets the prompt and prints words. An agent of [agent.ProtocolACP]
// speaks the Agent Client Protocol. Its process stays for the next turn if a prompt waits.
package dialogue
