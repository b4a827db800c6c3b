// Package bisect finds the first bad commit among many, several commits at once.
//
// # Nouns
//
// A [Search] has the steps among which the first bad one is. A [Step] is a commit with its tree. [Search.Next] chooses
// the cut points of a round, which are tried at once. A [Result] is good, bad or skip. A result belongs to a tree, so
// no tree is tried twice.
//
// # Invariants
//
// The package is pure. It starts nothing, and equal results lead to equal answers.
//
// The steps that are left are the history of one bad step, without the history of the good ones. So the answer is a
// step at which good becomes bad: it is bad, and all its parents are good. That is also true if the results are not
// monotone, because there are several faults, or one was repaired and came back. In a line of n steps, k cut points
// leave at most ⌈n/(k+1)⌉ steps.
//
// A step that was skipped is left as long as nothing excludes it. If nothing else can be tried, the answer is a list of
// steps.
//
// The work of [Search.Next] is bounded. It chooses cut points at most 22 times among 10,000 steps, even if most of them
// have one tree.
package bisect
