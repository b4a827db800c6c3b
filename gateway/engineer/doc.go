// Package engineer brings software tasks to merged pull requests.
//
// # Nouns
//
// A task is a conversation, whose record is one standing run of it. Its history is what the journal of that run says:
// what was asked, heard, done, to be posted and posted. A job is the goroutine that works on a task: it begins work,
// publishes the branch, posts messages in two lanes (Slack and GitHub), and reads the pull request.
//
// # What survives
//
// A record changes only with its journal, in one commit. The next step of a job follows from that journal and from the
// state at GitHub when it is asked, never from the content of a delivery. Every step can be repeated: work is begun by
// key, a push that has arrived is not an error, and a message is searched for by its mark before it is posted. So a
// kill between two steps loses nothing and repeats nothing.
//
// # What is hostile
//
// Comments, reviews, names of branches and webhooks. Only what people with write access say becomes work.
package engineer
