// Package evidence shows people the evidence of runs: pages, files, bundles and traces.
//
// # Nouns
//
// The page of a run shows its state, commands, changes and checks, from its journal while it goes on and from its
// manifest after its end. A file is one of the manifest. A bundle is a tar of all of them. The trace viewer is
// Playwright's, with a guard that runs before its service worker.
//
// # Invariants
//
// A link is signed for one run by its whole name, and never for a run with a similar one. A file is served only if it
// has its hash. A page is complete without scripts or content from elsewhere.
//
// # What is hostile
//
// Everything that a container made: names, texts, pictures, traces. Texts are escaped and cleaned, files are sent as
// attachments or shown in a sandboxed page, and snapshots in a trace run no script.
package evidence
