// Package pack reads and writes the objects of a repository, and scans packs from outside before git
// may see them.
//
// # Nouns
//
// [Files] are the packs of a repository, and a [File] is one of them. A [Reader] reads any object, from
// packs, from files of their own, or by git. A [Writer] writes new objects into one [Pack].
// [Scan] reads a pushed pack up to its end, within [Limits], and returns [Stats]. Its input is a [Tap],
// which copies to a [Spool] exactly the bytes that were consumed.
//
// # Invariants
//
// Files finds the objects of a pack that was added a moment ago, although it keeps packs open. The
// content of a pack is on disk when [Writer.Place] returns. Its name is on disk when
// [Files.SyncNames] returns, which callers await before they change a ref.
//
// # Untrusted input
//
// Pushed packs. Scan bounds their size, the number and the declared sizes of objects, and the
// growth, the depth and the work of deltas, before git allocates anything. Packs in the repository come
// from clients, too. Files bounds chains of deltas, objects in memory and open files, and leaves
// everything beyond these bounds to git.
package pack
