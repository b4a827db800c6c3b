// Package export brings the work of a caller into one file that git clone opens, and takes such a file in.
//
// # Nouns
//
// A [Parcel] is the work of one caller or of one run: its branch, its base, the records of its runs, and a [Manifest] that
// lists them. That of a caller also has the comments on its lines. The file is a git bundle without prerequisites. The manifest is in a commit that only the file has, with
// the artifacts of the artifact store and the recordings of terminals ([Cast]).
//
// # Invariants
//
// A parcel has only committed work. A run that has not ended has its commits in it, and its record as far as it was
// sealed; the manifest says so. Nothing in the repository changes by an export.
//
// All of a file that comes in is hostile. An [Importer] receives its objects in a repository of their own, and compares
// the manifest, the refs and the records before it changes anything. Imported runs have ended, verify nothing, and carry
// no right, no question, no comment and no secret. Their record is unsigned, on top of that of the other server.
package export
