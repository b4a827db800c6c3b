// Package bitbuckettest is a stand-in of Bitbucket Cloud. It has the parts of the REST API (2.0), smart HTTP and the
// webhooks that ramus uses, over the state of package hub. It refuses what Bitbucket refuses, with Bitbucket's statuses.
package bitbuckettest
