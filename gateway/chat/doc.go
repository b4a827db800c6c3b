// Package chat turns mentions in Slack into runs, and runs into replies.
//
// # Nouns
//
// A [Session] is a conversation, which is all of one thread; its caller and branch follow from its key. A mention is
// claimed durably before Slack gets an answer. From then on one goroutine, the worker of the session, decides on the
// mentions of its thread one after another. [Words] are what a mention asks for. A report follows a run: it keeps one
// progress message up to date, and posts how the run ended.
//
// # What survives
//
// The server may be killed at any moment after the claim. The next [Chat.Open] takes up each run that its thread does
// not know the end of, and goes on where the run's journal and the thread are. Every message carries the run, a key
// and its part, and is searched for before it is posted again, so that nothing is posted twice.
//
// # What is hostile
//
// Everything in a thread, and every event whose signature is not that of the app's signing secret. Package gate
// decides who may do what, and package render makes the texts of strangers harmless.
package chat
