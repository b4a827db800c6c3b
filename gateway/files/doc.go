// Package files has people put files into workspaces and take files out of them.
//
// An upload is a form with files. It becomes one commit of the person, or nothing is changed. A download is a file,
// or an archive of a folder, of the branch or of the container as it is now.
//
// # Invariants
//
// Nothing that a workspace has is shown on the origin of this server. Every file is an attachment. Names come from
// strangers, and package executor/transfer checks them. Whoever may not see a workspace does not find it, and whoever
// may not change it cannot wake its container. Size, count and time of everything are bounded.
package files
