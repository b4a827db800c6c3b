// Package trial tries a command at commits of a repository, several at once, each in a container of its own.
//
// # Nouns
//
// A [Trier] tries one commit: it submits a run of a new caller that begins there, waits for its end, and removes the
// caller with its branch. The run stays, as evidence. A [Try] is the result. A [Bisection] is the search for the first
// bad commit, by package bisect, with a Trier for each cut point. A [Book] keeps the results of a command by tree in
// the repository.
//
// # Invariants
//
// Nothing that exists is changed. A search that was interrupted leaves its tries, and their results are in the Book, so
// the same search goes on from there.
package trial
