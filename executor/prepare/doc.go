// Package prepare makes a new container ready for its first command.
//
// # Nouns
//
// A [Job] prepares one container: it installs dependencies, runs the setup commands of the repository, and starts its
// programs. A container is prepared once. The memory of the container's runner is the record of that, so a server that
// was restarted knows it, and a new container is prepared again.
//
// # Untrusted input
//
// The commands come from the base and run in the container, as every command does. They are bounded in time and output.
package prepare
