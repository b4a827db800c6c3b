// Package environment reads .ramus/config.yaml, in which a repository describes the environment of its containers.
//
// # Nouns
//
// A [File] is such a file, checked for itself. It knows the position of each value. The server's configuration bounds
// the values elsewhere. A [Start] is a program of the repository in it.
//
// # Untrusted input
//
// Anybody who can change a base writes the file. Its bytes, lists and texts are bounded. An unknown key is a mistake,
// and so is a value that could not take effect for itself.
package environment
