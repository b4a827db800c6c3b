// Package audit keeps the log of the actions of people.
//
// # Nouns
//
// An [Entry] is one action of one person. A [Log] writes entries as signed commits at refs/ramus/audit/YYYY-MM of the
// repository ramus-people, so that `git fetch` brings them and `git verify-commit` checks them. A commit has the
// entries of about a second, as lines of JSON in entries.jsonl, and as its message.
//
// # Invariants
//
// [Log.Append] returns when the entry is on disk, so an action that is answered after it is never missing.
// The commits of a month are one line of parents, and the first names the last of the month before. A commit
// that is removed or changed is therefore missed by its successor.
//
// # Untrusted input
//
// Names and objects, which are texts of strangers. They are bounded, and have no characters that deceive the eye.
package audit
