// Package layer gives running containers their work trees from outside: an overlay
// over an immutable base layer, moved into the container's mount namespace without a
// word to the container or its engine, and read from outside afterwards.
//
// # Nouns
//
// A base layer is a folder with the checked-out work tree of one commit, its .git
// included, that nobody writes to any more. An upper is the folder of one caller with
// what differs from it: files, whiteouts, opaque and redirected folders (the kernel's
// overlayfs). A [Binding] is both, mounted at a place inside one container. A [Keeper]
// does what needs root beside the engine; there are two, [Local] for a ramus that is
// root itself and [Helper] for one that only reaches the engine's socket.
//
// # Invariants
//
// Uppers are written by hostile processes. Nothing of one is ever followed, run or
// trusted: it is opened below a descriptor of its root, without links, and only regular
// files are read. An upper that is mounted is written by its container, or through the
// mount; never behind it. A base layer is shared by many; it is only ever replaced.
package layer
