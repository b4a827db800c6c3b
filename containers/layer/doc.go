// Package layer gives running containers their work trees from outside. A work tree is an overlay over an immutable
// base layer. It is moved into the container's mount namespace without the help of the container or its engine, and
// read from outside afterwards.
//
// # Nouns
//
// A base layer is a folder with the checked-out work tree of one commit, including its .git. It is never written to
// again. An upper is the folder of one caller with the differences from the base layer: files, whiteouts, opaque and
// redirected folders (of the kernel's overlayfs). A [Binding] is a base layer and an upper, mounted at one path inside
// one container. A [Keeper] does the work that needs root on the engine's machine. There are two: [Local] is for a
// ramus that is root itself, and [Helper] for one that only reaches the engine's socket.
//
// # Invariants
//
// A mounted upper is written only by its container, or through the mount. A base layer is shared by many containers. It
// is only ever replaced as a whole.
//
// # Untrusted input
//
// Uppers are written by hostile processes. Nothing in one is ever followed, run or trusted. Its files are opened below
// a descriptor of its root, without links, and only regular files are read.
package layer
