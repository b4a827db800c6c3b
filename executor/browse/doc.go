// Package browse looks at pages with a browser, for checks of a run, and keeps evidence of them.
//
// # Nouns
//
//   - A check ([browser.Check]) is one look at the page of a [Step]'s work tree. It has, for each viewport, a picture
//     and the page's messages and requests, and a verdict.
//   - An [Inspector] does checks. The browser runs in a sidecar of the step's container, and reaches the page by the
//     container's loopback.
//   - A baseline is a look at a commit of the base, which checks are compared with. It is kept in git.
//   - A [Run] has the checks of one run. They are files below its artifacts, and events of its journal.
//   - A [Site] is a container in which pages are served.
//   - An [Interactive] browser is one that an agent drives. Its pictures are not evidence.
//
// # Invariants
//
// A check is of a commit. The work tree is committed first, and the check names the commit and its tree. A check that
// finds no reason for pass or fail is UNVERIFIED, never PASS.
//
// # Untrusted input
//
// A browser's output is hostile, because a page may have taken the browser over. It is unpacked into a folder of its
// own, read with bounds, and only files that the layout of a check knows are copied from there, without secrets. Its
// verdict counts only if its words, its views and its exit code agree.
package browse
