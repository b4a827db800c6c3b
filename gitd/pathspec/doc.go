// Package pathspec reads the files in which a work tree tells git how to treat paths,
// .gitignore, info/exclude and .gitattributes. It also converts line ends as these files ask.
// The package needs neither git nor a repository.
//
// # Nouns
//
// An [Ignore] is one parsed file of ignore patterns. It answers a path with a [Verdict].
// [Attributes] is one parsed .gitattributes file. [Resolve] combines the files that apply to
// a path, each of them a [Source], into a [Value] for every attribute. A [Conversion] is the effect of the
// attributes on the content of a file, of which [LineEnds] is the direction into the
// repository. [TextStats] counts the bytes by which git decides whether content is text. A
// [Tally] sums the cost of a series of matches.
//
// # Invariants
//
// The answers are those of git, not those of its manual. The tests compare them with
// "git check-ignore", "git check-attr" and "git add". Releases of git disagree about a few
// patterns. A Tally is then marked as ambiguous, and the caller must ask git itself.
//
// # Untrusted input
//
// Every file and every path. The files come from a work tree in which commands of others
// have run. Callers bound the size of a file by [MaxFile]. The cost of a match is a
// polynomial of the length of the pattern and is added to the Tally, by which callers bound
// the sum.
package pathspec
