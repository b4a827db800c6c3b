// Package slacktest is a stand-in of Slack. It is an HTTP server with users, channels, threads and one app. It implements the Web
// API, the Events API and Socket Mode as Slack does, over a real connection and with real signatures.
//
// # Nouns
//
// A [Server] is a workspace with one installed app. The actions of people are methods, for example [Server.Say], [Server.Press]
// and [Server.Command]. The app's requests arrive at the Web API. [Server.Messages], [Server.Requests] and [Server.On] report
// them.
//
// # Refusals
//
// The stand-in refuses the requests that Slack refuses. Examples are a wrong token, a channel of which the app is not a member,
// an unknown method, text and blocks beyond the limits of Block Kit, and metadata in another form. A refusal that only a mistake
// in the app causes is a complaint, and [New] fails the test for it.
//
// # Failures
//
// With a [Fault] a method is slow, rate-limited or broken, or has its effect and loses the response. With [Server.Down] no program
// listens. [Server.Limit] counts requests per minute as Slack does.
package slacktest
