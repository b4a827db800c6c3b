// Package engineer brings software tasks to merged pull requests.
//
// # Nouns
//
// A task is a conversation. Its record is one standing run of the conversation. The history of a task is the content
// of the journal of that run: the request, the feedback, the work, and the messages to post and already posted. A job
// is the goroutine that works on a task. It begins work, publishes the branch, posts messages in two lanes (Slack and
// the forge), and reads the pull request.
//
// # Durability
//
// A record changes only with its journal, in one commit. The next step of a job follows from that journal and from the
// current state at the forge, never from the content of a delivery. Every step can be repeated. Work is begun by key, a
// push that has arrived is not an error, and a message is searched for by its mark before it is posted. Therefore a
// kill between two steps loses nothing and repeats nothing.
//
// # Untrusted input
//
// Comments, reviews, names of branches and webhooks are hostile. Only words of people with write access become work.
package engineer
