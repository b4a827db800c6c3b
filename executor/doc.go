// Package executor runs commands, tasks and workflows for callers, commits
// after every command, and keeps the record of it.
//
// # Nouns
//
// A [record.Caller] is on whose behalf commands run: a workflow run ("run:ID") or a
// conversation ("conv:ID"). From it follow, stored nowhere: its branch
// ramus/run-ID, its container's name, its grant. A [record.Run] is one piece of work
// of a caller: a workflow, or a single command; a caller may have many, one
// after another. A [record.Journal] is what happened in a run, one [record.Event] a line.
//
// An [Agent] is a program that does what it is told, in turns: what is said to
// it while it works ([Executor.Say]) is its next turn.
//
// # Where it lives
//
// While a run works: DATA/live/CALLER/RUN.jsonl, appended, and the run's ref
// refs/ramus/runs/CALLER/RUN, made first, against zero: whoever makes it owns
// the run. When it has ended or waits for a person: one commit at that ref
// with run.json, journal.jsonl, output/ and evidence/manifest.json. What an
// agent remembers between turns: refs/ramus/state/CALLER.
//
// # What survives
//
// Anything may be killed at any moment. A command was either journalled as
// ended, with its commit on the branch, or it did not happen; at the next
// start each run goes on from there or ends with a reason of a closed list.
package executor
