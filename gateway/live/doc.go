// Package live keeps open pages up to date, by one WebSocket for each tab.
//
// # Nouns
//
// A [Fragment] is an element of a page that has a key, and a [View] is all fragments of a page as one person sees it now. A topic names the
// changes that wake a view: "me" (everything that the person may see), "caller/SLUG", "run/CALLER/RUN", "repo/NAME" and "node". An [Op]
// changes one element of the page in a browser. The [Hub] wakes the views of a topic.
//
// # The protocol
//
// The subprotocol is ramus.live.1, and messages are JSON texts. The client sends {"sub": PATH, "title": TITLE, "have": {KEY: HASH}} for a view,
// with the title and the fragments that it shows, in their order, and {"un": PATH} to leave it. The server sends {"at": PATH, "t": TOPIC, "n": N, "ops": […]}, {"at": PATH, "gap":
// true} if the client has to load the page again, and {"at": PATH, "problem": {…}} if the view has ended.
//
// # Invariants
//
// A view is a function of the state of the server, so a page with the ops after it equals the page that is loaded now. The server keeps only
// the hashes of the fragments that a client has. A client that reads slowly gets fewer messages and no wrong ones. A view is rendered with the
// rights that its person has at that time, and the person is looked up again every minute.
package live
