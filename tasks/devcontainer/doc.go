// Package devcontainer reads devcontainer.json, in which a repository describes the container of its developers.
//
// # Nouns
//
// A [File] has the parts that ramus uses: the image and how it is built, the environment, the commands after its creation, and the
// ports. Parts that the walls of a container refuse are listed in [File.Refused], and parts without effect in [File.Ignored].
//
// # Untrusted input
//
// Anybody who can change a base writes the file. Its bytes, nesting, values and texts are bounded. A repeated key is a mistake, and so
// is a path that leaves the repository. Variables of the machine, as ${localEnv:NAME}, have no value.
package devcontainer
