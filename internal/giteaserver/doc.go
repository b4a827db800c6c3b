// Package giteaserver starts a real Gitea for tests and demos. It is not part of the product.
//
// Gitea is built from its source at the Go proxy by scripts/gitea.sh, into bin/gitea of the checkout. That takes
// minutes, so no test does it. [Find] finds the program, and a [Server] runs it in a folder of its own, on loopback,
// with SQLite.
package giteaserver
