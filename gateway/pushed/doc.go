// Package pushed starts work for pushes with options, and shows it to the person who pushes.
//
// # Nouns
//
// The options of a push, `git push -o`, are an [Ask]: a workflow, an agent with a prompt, or a task of the library. A
// [Starter] starts the work on the branch that was pushed, at the commit that was pushed, and shows its progress as
// lines that git prints with "remote:". The push ends with the result of the run.
//
// A workflow of the base with events is started by pushes without options, too. A push that may start work has a notice, a
// file that is there from before the push until the runs are claimed.
//
// # Invariants
//
// A push that changed its refs starts its work once, also if the server is killed in between. The run of an event is claimed by
// the person, the file, the branch, the commit and the text. The run that a push asks for is claimed by the key of its notice.
//
// The push is done before the work begins, and does not fail if the work does. The work is claimed before the client learns that
// the push is done. It has the rights of the person who pushed. A person who leaves stops watching; the run goes on.
//
// Options that mean nothing here are shown and ignored, because clients may send some to every server.
package pushed
