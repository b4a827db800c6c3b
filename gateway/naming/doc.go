// Package naming keeps the names that people give to sessions with agents.
//
// # Nouns
//
// A session is the conversation of a caller with one agent under one label. The label is a part of the runs, so it never changes. A [Name] is
// what people read in its place. A [Record] has the names of one caller. A [Store] keeps records in git, one ref each, in the repository of
// people.
//
// # Invariants
//
// A name counts when its commit is on disk. It is for people alone. No program finds a session by it. A record outlives the branch of its
// caller, because the runs do, too.
package naming
