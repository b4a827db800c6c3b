// Package gitcmd starts native git. No other package of gitd does.
//
// # Nouns
//
// A [Command] describes one run of git. A [Runner] starts the commands of one server, each as a
// [Process] in a process group of its own. A [Group] counts work in progress so that its owner can
// end it and wait for its end. A Runner has one, and other parts of a server use their own. A failed
// command is an [Error].
//
// # Invariants
//
// A child runs without a shell, with a scrubbed environment, without system or user configuration
// and without hooks. Its output is on disk before it reports success, because git runs with
// core.fsync=all. It ends with its context, and [Runner.Close] returns when no child is left.
//
// # Untrusted input
//
// Repositories, and arguments that come from clients. They follow --end-of-options or "--".
// CPU, memory and file sizes can be bounded for each child. Collected output always is. Stderr may
// contain text of a client. [Tail] keeps only its end, as one line without control characters.
package gitcmd
