// Package slacktest stands in for Slack: an HTTP server with users, channels,
// threads and one app, which speaks the Web API, the Events API and Socket Mode
// as Slack does, over a real connection and with real signatures.
//
// # Nouns
//
// A [Server] is a workspace with one app installed. What people do in it are
// methods: [Server.Say], [Server.Press], [Server.Command]. What the app does
// arrives at the Web API, and is seen with [Server.Messages], [Server.Requests] and
// [Server.On].
//
// # What it refuses
//
// What Slack refuses: a wrong token, a channel that the app is no member of, a
// method that is not there, text and blocks beyond the limits of Block Kit, metadata in another form. A
// refusal that only a mistake in the app can earn is kept as a complaint, and [New]
// fails the test for it.
//
// # How it fails
//
// With a [Fault] a method is slow, rate-limited, broken, or does what it was asked and loses the
// answer; with [Server.Down] nobody listens. [Server.Limit] counts requests by the minute as Slack does.
package slacktest
