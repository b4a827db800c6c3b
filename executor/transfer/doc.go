// Package transfer moves files between people and the work trees of callers.
//
// An [Upload] has files that a person sent. A [Spool] keeps them on the host until all of them arrived, and
// [Upload.Place] writes them to a container. A [Tree] has files for people, as a commit ([Committed]) or a container
// ([Live]) has them. [Pack] makes an archive of a folder.
//
// # Invariants
//
// Names of files come from strangers. [CheckPath] accepts only names that stay below their folder and have no invisible
// characters. Archives leave out names that would be another file where they are unpacked, and repositories. An upload
// with a mistake changes nothing, and its error has all mistakes. Links of the work tree are refused when an upload
// begins. A process that makes one meanwhile gets the file where that leads, in the container. The work with a
// container is bounded in time, because a process inside makes the answers.
package transfer
