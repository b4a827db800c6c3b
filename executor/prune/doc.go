// Package prune removes work that nobody can still need.
//
// Work is kept until somebody prunes, because it is a record. A [Pruner] removes everything that its [Retention] does
// not keep: branches of callers that have ended, sealed runs without a branch, looks of browsers, layers without a
// container, artifacts and Git LFS objects that nothing names. The kinds are removed in that order, and a thing that
// was removed does not keep later ones. git removes objects two weeks after the last ref that reached them.
//
// A Pruner decides by refs and manifests. It removes a ref only if the ref still points to the commit that the Pruner
// read.
package prune
