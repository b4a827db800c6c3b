// Package workflow is the workflow language. It parses, checks and expands workflow files, and never runs anything by
// itself.
//
// # Nouns
//
// A [Workflow] is a parsed and checked YAML file. Its [Node] values are the steps and the edges between them. A
// [Machine] is the state of one run of a workflow. It returns the next [Step] values and takes a [StepResult] for each.
//
// # Invariants
//
// A Machine is a pure value. A journal of results rebuilds it at any point ([Replay]). So each result survives JSON.
// Every mistake in a file has a position in the file. The time of reading a file grows with the file.
//
// # Untrusted input
//
// Workflow files and the values of a run are hostile. A value becomes exactly one word of a shell command. Sizes,
// nesting and the cost of expressions are bounded.
package workflow
