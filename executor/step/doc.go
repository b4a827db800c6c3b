// Package step runs the steps of runs in containers, and commits and journals their outcomes.
//
// # Nouns
//
// A [Target] is the work tree of a caller, with the turn that its runs wait for and the step that works there now. A
// [Run] is a run that works at a target. [Info] describes a step before it begins, a [Work] is a step while it runs in a
// container, and an [Outcome] is the result of its commands. A [Head] is the tip of the branch as commits in the middle of the
// step move it. A [TaskShell] runs a task of the library as a step. A [Guest] is a request at the container's door for
// which a step answers. A [Runner] has everything that all of them need.
//
// # Invariants
//
// The beginning of a step is in the journal before its command starts. A step ends with a commit on the branch and after
// that with an event in the journal. Only the step that has the turn commits, or somebody who interjects between two of its
// commits.
//
// # Durability
//
// A command goes on while the server is away. [Run.TakeUp] finds it by its id and brings the step to its end, finds the
// commit that it made, or reports that nothing of it is left. Then the step begins again from the branch, if that is
// allowed.
package step
