// Package record has the records of work, the types that the executor writes to git and to disk and that all other
// rooms read. It does no work of its own.
//
// # Nouns
//
//   - A [Caller] is the party that commands run for. A [Request] asks for a [Run] of it.
//   - An [Event] is one line of a run's [Journal]. Its type is one of the Event constants.
//   - A [Reason] is the reason for which a run failed, from a closed list.
//   - A [Manifest] is the evidence of a run that has ended. [NewManifest] derives it from the run and its events.
//   - A [Verdict] reports whether the run's last commit was checked. It counts the last result of each check, and
//     only on the tree that the check ran on.
//
// # Invariants
//
// The JSON of a Run, an Event and a Manifest stays in git, so fields are added and never change their meaning. The
// package imports gitd for the names of objects, and tasks for the results of checks.
//
// # Untrusted input
//
// Events hold text from containers, models and people. [Journal.Append] removes the values of secrets and bounds a
// line. Readers escape the text for their own medium.
package record
