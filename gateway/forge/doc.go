// Package forge has the types of pull requests that are the same at all forges, and the interface through which ramus
// uses one.
//
// # Nouns
//
// A [Forge] is a service with repositories and pull requests, such as GitHub, GitLab, Gitea or Bitbucket. A [Repo] is a
// repository at one. A [Pull] is a pull request; GitLab calls it merge request. A [Review] is the verdict of a person,
// a [Comment] is on a line or in the conversation, and a [Check] is the result of a program for a commit.
//
// A [Delivery] is a webhook. It may arrive twice, late, out of order or never. It reports that an event happened, and
// the Forge is asked for the current state.
//
// # Invariants
//
// Each post has a mark. A second post with the same mark finds the first one, however that call ended. An error is
// final ([ErrNotFound], [ErrRefused]) unless the context ended. Package forgetest tests both for each implementation.
package forge
