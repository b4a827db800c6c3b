// Package markup makes HTML of texts that agents, commands and people wrote.
//
//   - [Stream] renders Markdown block by block. Its text grows, and a block that it has closed never changes.
//   - [Terminal] renders the output of a command with its colours.
//   - [Colours.Code] highlights source code.
//   - [Visible] shows the characters of a text that nobody can see.
//
// # Untrusted input
//
// All texts are hostile. Raw HTML is shown as text. Links lead to http, https and mailto alone. A picture of another server becomes a
// link, since its address could carry away words that an agent read. Markdown passes two walls, goldmark's escaping and bluemonday's list of
// elements. Nothing has a style, an event handler or a URL of this server. Classes are of closed sets. All work has a bound.
package markup
