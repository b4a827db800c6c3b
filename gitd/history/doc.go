// Package history walks the commits and folders of a repository in process, where a git would take longer to
// start than to work.
//
// # Nouns
//
// A [Range] is the commits that some commits reach and others do not. A [Change] is one path whose entry
// differs between two trees. A [Section] is a run of whole objects as a pack has them between its header
// and its checksum. A [Collector] puts the objects of a range into a section.
//
// # Invariants
//
// Every walk is bounded. It returns [ErrLarge] where git is the better choice. A Range is exact only in
// a history that is complete, which [IsComplete] reports. A Section never lacks an object that the receiver
// needs, but it may have one that the receiver has already.
//
// # Untrusted input
//
// Every commit and every tree. Times of commits may be wrong, trees unsorted, and folders nested without
// end.
package history
