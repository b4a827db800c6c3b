// Package deps is the dependency cache. It saves containers from fetching the dependencies of the base.
//
// # Nouns
//
//   - An ecosystem is a package manager that can fetch without building, with its lock files.
//   - A [Cache] keeps the folders of package managers as tarballs, by the hash of the lock files.
//   - A warmer is a container that fetches the dependencies of a commit of the base, once.
//
// A new container finds the dependencies that fit its lock files in [Dir] before its first command, and installs from
// there. If work trees are bound from outside, a tarball is unpacked once, into a layer, which containers mount from
// then on. The content of the container's cache is the same both ways.
//
// # Untrusted input
//
// A container's output is hostile. A tarball is opened only inside containers, by the task's user. It is bounded in
// size. It is made from a base alone, never by a task that works on a branch, and it is shared only with tasks of the
// same repository. Scripts of dependencies are not run when they are fetched.
package deps
