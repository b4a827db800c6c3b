// Package agent speaks to coding agents that run in containers.
//
// # Nouns
//
//   - An [Agent] is the configuration of a coding agent: its command, its memory, and its protocol.
//   - A [Process] is a running agent of the Agent Client Protocol, with one session. It outlives turns, and
//     [Process.Say] sends the prompt of a turn.
//   - A [Turn] is the step of a run that records the agent. The agent's updates become events, and its messages
//     become output.
//   - A [Memory] is the files that an agent keeps between turns. They are in git, below [MemoryPrefix].
//
// An agent's requests for files and terminals are done in its own container, as its own user. Its questions for
// permission are answered by policy, or by a person, while the [Clock] of the turn is stopped.
//
// # Untrusted input
//
// Everything that an agent sends is untrusted: updates, requests, file names, its memory. Updates are bounded in size
// and number before they are journalled. A request gets nothing that the agent could not take by itself. Secrets are
// taken out of its memory before git has it.
package agent
