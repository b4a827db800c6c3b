// Package seen keeps which changes people have looked at.
//
// # Nouns
//
// A place is a caller. The [Marks] of a person at a place are the commit up to which the person has looked, and the keys of the files that the
// person has viewed. A [Store] keeps marks.
//
// # Invariants
//
// A mark is on disk before it is acknowledged. Marks are bounded for each person and place, and those of places that a person has not marked
// for [Kept] are removed. Nobody but the person sees them, and nothing depends on them.
package seen
