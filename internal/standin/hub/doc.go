// Package hub has the state of a stand-in of a forge, apart from the API of one. GitLab's, Gitea's and Bitbucket's
// stand-ins serve it in the form of these forges.
//
// # Nouns
//
// A [Hub] has users with tokens and repositories. A [Repo] is a bare repository that git itself serves over HTTP, with
// pull requests, comments, verdicts and statuses. The methods of Repo are the actions of people. An [Event] is a change.
// It becomes a webhook in the form of the forge.
//
// # Refusals
//
// A [Call] is a request to the API. Its token must be known, its body must have no unknown members, and its user must
// see the repository. A mistake that only a program can make is a complaint ([Hub.Complaints]), such as an unknown
// route or member, or a token in an address.
package hub
