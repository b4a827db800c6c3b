// Package slack implements Slack's protocol. It checks and reads the requests of Slack (Events API, Socket Mode, slash
// commands, interactions), and reads and writes threads through the Web API. It makes no decisions. The gateway decides
// about mentions.
//
// # Nouns
//
// A [Mention] is a message to ramus. Its Key is the same in every envelope with the message. A [Thread] is a normalised
// conversation with all its messages. A [Message] is a post of ramus. It has a [Mark], by which it is found again in
// the thread after a crash.
//
// # Failures
//
// A call waits until Slack has performed it or refuses it for good ([ErrRefused]). Rate limits, broken connections and
// outages only take time. A post appears in the thread once. After an attempt with an unknown outcome the thread is
// read before the next attempt. Package slacktest simulates all failures of Slack.
//
// # Untrusted input
//
// Every byte is hostile. Bodies are checked against the signing secret before they are parsed, and contain text of
// strangers.
package slack
