// Package announce tells other systems about pushes, by webhooks of repositories.
//
// # Nouns
//
// A [Target] is the receiver of the webhooks of one repository. A [Push] is the change of one branch or tag, and the body of a
// webhook.
//
// # Invariants
//
// Each target has a file with the tips that it was told of. What it was not told of is the difference to the present tips. So a
// change is told at least once, also after a kill, in the order in which the branches were seen, and several changes of a branch
// may be told as one. A tip is in the file only after the target has answered with a success. A push to ramus never waits for a
// target. Branches of callers are not told of.
//
// # Untrusted input
//
// Names of branches, which are only data in JSON, and the answers of targets, of which only the status counts.
package announce
