// Package backup copies a data folder while it is in use, and makes a data folder of a copy.
//
// # Nouns
//
// A backup is a folder of backups. A [Snapshot] in it is one copy of a data folder, complete in itself: bare
// repositories that any git reads, the files of runs at work, and the artifacts. Its [Manifest] names every file with its
// size and SHA-256. Files that did not change since the snapshot before are links to the same content, so a second
// snapshot costs little.
//
// # Invariants
//
// The refs of all repositories and the files of runs at work are those of one moment. So a snapshot is a state that
// a crash of the server at that moment could have left, and the next server continues from it as it continues after a
// crash. Everything that was acknowledged before [Maker.Make] was called is in the snapshot.
//
// A snapshot has its name only when all of it is on disk. A restored data folder has its files only when all of them have
// their checksums, and every repository has passed git fsck.
//
// # Untrusted input
//
// A manifest may come from elsewhere. [Restore] follows no links, and refuses names that lead out of the snapshot.
package backup
