// Package store keeps the artifacts of runs that are too large for git.
//
// # Nouns
//
//   - A [Bucket] holds objects by key. A folder ([OpenFolder]) and a bucket of S3 or of a service that speaks its
//     protocol ([S3]) are its implementations. [OpenURL] opens the one that a configuration names.
//   - A [Store] holds contents by their SHA-256, over a bucket and the folder that was the store before it.
//   - A [File] is an open file of a run's evidence, from a store or from git. It compares its bytes with its SHA-256.
//
// # Invariants
//
// An object of a Store is at the key sha256/XX/SUM, which in a folder is the path of its file. It is written once and
// never changed, so runs share it. A bucket has an object whole or not at all. The object is durable when Put
// returns, because the seal that names the object is durable.
//
// The dependency cache of package executor keeps its tarballs in the same bucket, below cache/. Git LFS objects are
// below lfs/.
//
// # Untrusted input
//
// The contents come from containers and are never interpreted. A bucket may lose or damage objects, hang, or break a
// connection. A reader gets an error for damage, and waits end with their contexts.
package store
