// Package chat turns mentions in Slack into runs, and runs into replies.
//
// # Nouns
//
// A [Session] is a conversation, which is one thread. Its caller and branch follow from its key. A mention is claimed
// durably before Slack gets an answer. From then on one goroutine, the worker of the session, decides on the mentions
// of the thread one after another. [Words] are the parsed command of a mention. A report follows a run. It keeps one
// progress message up to date and posts the result of the run.
//
// # Durability
//
// The server may be killed at any moment after the claim. The next [Chat.Open] continues each run whose result is not
// in its thread. It continues from the journal of the run and the messages of the thread. Every message carries the
// run, a key and its part. A message is searched for before it is posted again, so nothing is posted twice.
//
// # Untrusted input
//
// All text in a thread is hostile, and so is every event without a valid signature of the app's signing secret.
// Package gate decides who may do what. Package render makes the texts of strangers harmless.
package chat
