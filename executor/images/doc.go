// Package images builds the images that the files of a base describe.
//
// # Nouns
//
// A [Builder] builds images on the host, with Docker or with the program of the development containers' project, `devcontainer`. A
// [Wish] names a base's commit and the file that describes the image. An image is named after the content of its files, so it is built
// once.
//
// # Invariants
//
// A builder gets a folder with the base's files and nothing else of the machine: a clean environment, no home folder, and no
// credentials of registries. The configuration that it reads is written by ramus and has only the parts that a build needs. No part of
// it starts a program on the host.
//
// # Untrusted input
//
// The files come from a base. They are bounded in number and size, no link leads out of the folder, and the build is bounded in time. Steps
// of a build run in containers of Docker's builder, which may have a network. That is why the server's configuration has to allow builds.
package images
