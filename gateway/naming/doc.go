// Package naming keeps the names that people give to sessions with agents.
//
// # Nouns
//
// A session is the conversation of a caller with one agent under one label. The label is a part of the runs, so it
// never changes. People read a [Name] in its place. A [Record] has the names of one caller. A [Store] keeps records in
// git, one ref each, in the repository of people.
//
// # Invariants
//
// A name counts when its commit is on disk. Programs never use it. It belongs to the session that there was when it was
// given, and not to a later one of the same caller and label. A caller without names has no record, and [Store.Sweep]
// removes those of callers without runs. Earlier names are not kept.
package naming
