// Package object holds the words that all packages of gitd share. These are names of objects, persons,
// objects in memory, entries of trees, and the kinds of error.
//
// # Nouns
//
// A [Hash] names an object. An [Object] is the content of one in memory. An [Entry] is one
// line of a tree object. A [Person] is the author or committer of a commit. A [Refusal] is an error
// whose text may be sent to a client. [ClientText] returns only such texts.
//
// # Untrusted input
//
// The content of every object and the name of every person. [ParseTree] accepts only well-formed
// trees, but it does not check the names in them. [Person.Ident] removes all that could
// end a line of a commit.
package object
