// Package gitlabtest is a stand-in of GitLab. It has the parts of the REST API (v4), smart HTTP and the webhooks that
// ramus uses, over the state of package hub.
//
// It refuses what GitLab refuses, with GitLab's statuses and messages. Like GitLab, it obeys lines of a note that are
// commands ("/merge"), and makes no note of a text that has nothing else.
package gitlabtest
