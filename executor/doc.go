// Package executor runs commands, tasks and workflows for callers, commits after every command, and keeps the record
// of it. It coordinates its sub-packages. worktree, deps, browse and agent work in containers, upstream keeps bases,
// record, index and store keep the records, and runs reads them.
//
// An [Executor] decides which work begins, and drives each run to its end. Everything else that can be asked of it is asked of one of
// its parts, such as [Executor.Prompts] and [Executor.Files]. A part has the fields that it uses.
//
// # Nouns
//
// A [record.Caller] is the party that commands run for, either a workflow run ("run:ID") or a conversation
// ("conv:ID"). Its branch ramus/run-ID, the name of its container and its grant follow from it and are stored
// nowhere. A [record.Run] is one piece of work of a caller, such as a workflow, a single command, a task or an
// agent's conversation. A caller may have many, one after another. A [record.Journal] is the events of a run, one
// [record.Event] a line.
//
// A run is claimed by making its ref, against zero. The process that makes the ref owns the run. A run that works has a
// goroutine of its own, which takes its steps to their ends. A step runs in the container of the caller's target, and
// ends with a commit and an event.
//
// An [agent.Agent] is a program that works in turns. A prompt that it gets while it works ([dialogue.Prompts.Say]) is its
// next turn.
//
// # Where it is kept
//
// A run that works is in DATA/live/CALLER/RUN.jsonl, which is appended to, and at the run's ref
// refs/ramus/runs/CALLER/RUN. A run that has ended, or waits for a person, is one commit at that ref with run.json,
// journal.jsonl, output/ and evidence/manifest.json. An agent's memory between turns is at refs/ramus/state/CALLER.
//
// # Durability
//
// Anything may be killed at any moment. A command was either journalled as ended, with its commit on the branch, or
// it did not happen. At the next start each run goes on from there, or ends with a reason of a closed list.
package executor
