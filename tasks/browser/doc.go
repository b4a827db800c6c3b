// Package browser describes checks of web pages in a real browser: what is to
// be done ([Spec]), what came of it ([Check]), and how two of them differ
// ([Compare]). It drives no browser itself: the program ramus-browser does, in a
// container of its own beside the one where the page is served. A [Job] goes
// to that program's standard input, a tar of evidence with an index.json, which is
// a [Check], comes from its standard output.
//
// Who writes a spec decides what is looked at and what is allowed; it is part
// of the repository, like its tests. Whatever comes from the browser is hostile:
// the page may have taken it over.
package browser
