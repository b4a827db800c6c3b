// Package gitd hosts Git repositories: bare folders on disk, served by smart
// HTTP and SSH to stock git clients, with grants that say who may write which
// ref, merges that need no work tree, and pushes that are durable before they
// are acknowledged.
//
// # Nouns
//
// A [Server] owns a folder of bare repositories. A [Repo] is one of them; its
// objects are read in process, what the server commits is written as one pack. Refs are
// changed by git's own rules, in process where a ref is a file of its own, by native git
// otherwise. A [Grant] is a signed token (EdDSA
// JWT) that says which repository its bearer may read and which refs it may
// write, until when; nothing about it is stored.
//
// # Packages
//
// This package has servers, repositories, refs, pushes, merges and the transport. Packages below it have the parts that
// need none of these: object the words that all share, gitcmd the children of git, pack the objects and
// their packs, history walks of commits and folders, clone the cheaper answers to fetches that resemble each
// other, protocol the requests of clients, grant the tokens and keys, worktree the commits of work trees from outside, pathspec the files
// .gitignore and .gitattributes, gitindex the index file of a work tree.
//
// # What survives
//
// A ref change that was reported as done is on disk: git runs with
// core.fsync=all, and the folders that name what it wrote are synced before the
// report leaves the server. A push that was refused, or that died half way,
// leaves no object that a ref reaches: a quarantine holds them until it is judged. Repositories are packed in
// the background; objects are removed by [Repo.Prune] alone.
//
// # What is hostile
//
// Everything a client sends. Packs are scanned for their size, object count
// and declared object sizes before git indexes them; git children run without
// a shell, with a scrubbed environment, without system or user configuration,
// without hooks of repositories, and under limits of CPU, memory and time. A push that holds the value
// of one of Server.Secrets in a file, a name or a message is refused before it is in the repository.
package gitd
