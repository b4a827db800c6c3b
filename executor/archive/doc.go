// Package archive writes the record of a run into one commit, at the ref of the run.
//
// # Nouns
//
// An [Archive] has the records of all runs. An [Entry] is the record of one run that works or waits for a person. Its commit
// has run.json, the journal, the outputs, the artifacts, the changes of the run as a patch, and a [record.Manifest] that
// lists them with their hashes. Large files are in the artifact store. A run shows the files of other runs as its own if
// these worked for it, such as a sub-workflow. In git they are the same blobs.
//
// # Invariants
//
// The parents of the commit are the run's earlier record and the tip of the branch, so the commits of the run stay reachable
// if the branch is deleted. The commit holds no value of a secret. It is made at the end of the run and before the files in
// [live.Folder] are removed, and it may be made again if that fails.
//
// # Durability
//
// The commit survives once the ref points to it.
package archive
