// Package comment lets people and agents comment on lines of a workspace.
//
// # Nouns
//
// [Comments] has the threads of workspaces. A [Draft] is a comment that only its author sees. Drafts that are sent together become a batch of
// package review, and one prompt to an agent. A [Thread] is one of the review, with its place in the present work and its state. [Drafts]
// keeps drafts.
//
// # Invariants
//
// A batch is in the review before its prompt is said, and the key of the prompt is the id of the batch. A batch that was sent twice is there
// once, and is said once, also if the server is killed in between. A draft is removed after the review has its comment, and one that both
// have is not shown. A suggestion becomes a commit by a person only if the lines that it replaces are still the same.
//
// # Untrusted input
//
// Texts come from people, agents and forges, and lines come from commits. The values of secrets are removed before a text is kept. Prompts
// have texts and lines in fences.
package comment
