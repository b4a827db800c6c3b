// Package browser describes checks of web pages in a real browser. A [Spec] has the steps of a check, a [Check] its
// result, and [Compare] finds the differences of two results. The package itself drives no browser. The program
// ramus-browser does, in a sidecar of the container that serves the page. It reads a [Job] from standard input, and
// writes a tar of evidence to standard output, with an index.json that is a [Check].
//
// # Untrusted input
//
// The author of a spec decides about the checked pages and the allowed faults. A spec is part of the repository, like
// its tests. Everything from the browser is hostile, because the page may control the browser.
package browser
