// Package privacy keeps which callers are private, and whose they are.
//
// # Nouns
//
// A [Record] is the privacy of one caller. A [Store] keeps records in git, one ref each, in the repository of people. A
// veil, [gitd.Veil], hides the refs of private callers from everybody but their owners. The Git server and package route
// ask the same veil, so that pages, REST, git, live pages, sockets and evidence hide the same.
//
// # Invariants
//
// A change counts when its commit is on disk. A record outlives the branch of its caller, because the runs do, too.
// Administrators see everything, since they can read the data folder or give themselves any role.
package privacy
