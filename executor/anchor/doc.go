// Package anchor binds a remark to lines of a file, and finds these lines in later commits.
//
// # Nouns
//
// An [Anchor] names a commit, a file on one side of a comparison, its blob, some of its lines, and a hash of them with the [Around] lines
// before and after. A [Place] is the position of the anchor in another commit. [Carry] finds it in a text, and a [Follower] in a repository.
//
// # Invariants
//
// An anchor is never attached to other lines silently. Its place is [Same] or [Moved] only if the lines and those around them are the same
// by the hash, if no other lines of the old and the new file could be meant, and if a comparison of the files agrees. Otherwise the place is
// [Changed], which names the commit that changed the lines, or [Gone].
//
// [Carry] is a pure function, and its work is bounded. To find lines that are there once, it counts at most 20 times as many lines as both
// texts have. It compares a part without such lines only if those of one text times those of the other are at most 2^18. Lines beyond these
// bounds are not matched.
//
// # Untrusted input
//
// Paths and lines come from commits. The package compares them, and passes them on as they are.
package anchor
