// Package announce sends pushes to other systems, by webhooks of repositories.
//
// # Nouns
//
// A [Target] is the receiver of the webhooks of one repository. A [Push] is the change of one branch or tag, and the body of a
// webhook.
//
// # Invariants
//
// Each target has a file with the tips that it received. Their difference to the present tips is not sent yet. So a change is sent
// at least once, also after a kill. Several changes of a branch may be sent as one. A tip is in the file only after the target has
// answered with a success. A push to ramus never waits for a target. Branches of callers are not sent.
//
// # Untrusted input
//
// Names of branches, which are only data in JSON, and the answers of targets, of which only the status counts.
package announce
