// Package giteatest is a stand-in of Gitea. It has the parts of the REST API, smart HTTP and the webhooks that ramus
// uses, over the state of package hub. It refuses what Gitea refuses, with Gitea's statuses.
//
// The conformance suite of forges runs on it and, with RAMUS_TEST=full, on a real Gitea, so that both stay alike.
package giteatest
