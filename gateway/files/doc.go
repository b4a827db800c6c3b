// Package files serves uploads to workspaces and downloads from them.
//
// An upload is a form with files. It becomes one commit of the person, or nothing is changed. A download is a file,
// or an archive of a folder, of the branch or of the container as it is now.
//
// # Invariants
//
// Nothing that a workspace has is shown on the origin of this server. Every file is an attachment. Names come from
// strangers, and package executor/transfer checks them. To a caller that may not see a workspace, it does not exist.
// Only callers that may change it start its container, and no page of another origin does with a person's cookie. Size,
// count and time of everything are bounded.
package files
