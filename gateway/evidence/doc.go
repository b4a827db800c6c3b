// Package evidence shows people the evidence of runs as pages, files, bundles and traces.
//
// # Nouns
//
// The page of a run shows its state, commands, changes and checks. It is made from the journal until the run ends and
// from the manifest after that. A file is one of the files of the manifest. A bundle is a tar of all of them. The
// trace viewer is Playwright's, with a guard that runs before its service worker.
//
// # Invariants
//
// A link is signed for one run by its whole name, and never for a run with a similar one. A file is served only if it
// has its hash. A page is complete without scripts or content from other hosts.
//
// # Untrusted input
//
// All output of a container is hostile, such as names, texts, pictures and traces. Texts are escaped and cleaned.
// Files are sent as attachments or shown in a sandboxed page. Snapshots in a trace run no script.
package evidence
