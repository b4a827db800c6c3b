// Package web serves the pages for people: the dashboard, workspaces, runs, tasks, repositories and machines.
//
// # Nouns
//
// A [Page] is the content of a path for one person now. It has a title, a template and its data. A builder makes the page of a request, and is a
// function of the state of the server. A part has the pages and forms of one subject, such as those of repositories, and the few fields that
// they use. It registers their routes in the table. The elements of a page that change are its fragments ([Page.Live]); package live sends
// them to open tabs. The shell is the frame of every page. A [Pane] is a region of the page of a workspace, such as its terminal. An island is
// a script that adds comfort to a page, and never content.
//
// # Invariants
//
// A page is complete and every form works without scripts. No page has an inline script, an inline style or a data URL, and [Policy] forbids
// them. A form that is refused keeps all its text, and shows the reason next to the field. Every change answers with 303 to the page that shows it.
//
// # Untrusted input
//
// All text of containers, repositories, models and people. html/template escapes it, and render.Clean makes visible what would deceive the eye.
package web
