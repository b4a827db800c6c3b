// Package gitlab uses GitLab, gitlab.com or a server of one's own, with a token of a user, a project or a group.
//
// The [Client] is a forge.Forge over the REST API (v4). A pull request is a merge request there, and its number is the
// iid. The token needs the scope api and the role Developer. [ParseDelivery] reads a webhook.
//
// GitLab obeys lines of a post that begin with a command ("/merge"). The Client escapes them, because parts of its
// posts were written by others.
package gitlab
