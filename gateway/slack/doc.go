// Package slack speaks Slack's protocol: it checks and reads what Slack sends
// (Events API, Socket Mode, slash commands, interactions), and reads and writes
// threads through the Web API. It decides nothing: what a mention means is the
// gateway's business.
//
// # Nouns
//
// A [Mention] is a message that speaks to ramus; its Key is the same in every
// envelope that carries it. A [Thread] is everything said in a conversation,
// normalised. A [Message] is what ramus posts; it carries a [Mark], by which it
// is found again in the thread after a crash.
//
// # What goes wrong
//
// A call waits until Slack has done it or refuses it for good ([ErrRefused]);
// rate limits, broken connections and outages take only time. What is posted
// stands in the thread once: after an attempt whose outcome is unknown the thread
// is read back before the next. Package slacktest has all of Slack's ways to fail.
//
// # What is hostile
//
// Every byte: bodies are checked against the signing secret before they are
// parsed, and what they say is text of strangers.
package slack
