// Package gitea uses Gitea, or Forgejo, with a token that a user made.
//
// The [Client] is a forge.Forge over the REST API. The token belongs to a user who is an administrator of each
// repository, because Gitea tells only an administrator who may write. It needs the scopes write:repository,
// write:issue and read:user. [ParseDelivery] reads a webhook.
//
// Gitea shows comments on the same line as one conversation, and has no answers to a comment. So an answer is a comment
// on the line.
package gitea
