// Package bitbucket uses Bitbucket Cloud, with an access token or the API token of a user.
//
// The [Client] is a forge.Forge over the REST API (2.0). The name of a user is the UUID, because people may change all
// others. A repository's owner is its workspace. The token needs to read the account, to write repositories and pull
// requests, and to administer the repositories, because Bitbucket tells only an administrator who may write.
// [ParseDelivery] reads a webhook.
//
// Bitbucket has no labels, and its Markdown has no HTML. The Client replaces the folded parts of its posts.
package bitbucket
