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
// # What is hostile
//
// Every byte: bodies are checked against the signing secret before they are
// parsed, and what they say is text of strangers.
package slack
