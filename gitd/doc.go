// Package gitd hosts Git repositories. They are bare folders on disk, served by smart HTTP and SSH to stock git
// clients. Grants limit the refs that a client may read and write. Merges need no work tree, and pushes are
// durable before they are acknowledged.
//
// # Nouns
//
// A [Server] owns a folder of bare repositories. A [Repo] is one of them. Its objects are read in process, and
// each commit that the server makes is written as one pack. Refs are changed by the rules of git, in process if a
// ref is a file of its own, and by native git otherwise. A view is the state of all refs in memory. A [Grant] is a
// signed token (EdDSA JWT) with the repository that its bearer may read, the refs that it may write, and its end.
// The server stores nothing about it. A quarantine holds the objects of a push until they are found to be good. A
// base is the branch that HEAD names, and a [Base] is a signed manifest of one of its states. The upstream of a
// repository is the one from which it was imported.
//
// # Packages
//
// This package has servers, repositories, refs, pushes, merges and the transport. The packages below it need none
// of these. From the bottom up, object has the words that all of them share, gitcmd runs git, pack reads and
// writes objects and packs, protocol parses the requests of clients, grant has tokens and keys, history walks
// commits and folders, clone makes fetches cheaper that resemble each other, pathspec parses .gitignore and
// .gitattributes, gitindex has git's index file, and worktree commits work trees from outside.
//
// # Durability
//
// A ref change that was reported as done is on disk. Git runs with core.fsync=all, and the folders with the names
// of written files are synced before the report leaves the server. A push that was refused, or that stopped half
// way, leaves no object that a ref reaches. Repositories are packed in the background. Only [Repo.Prune] removes
// objects.
//
// # Untrusted input
//
// Everything that a client sends. Packs are scanned for their size, the number of objects and the declared sizes
// of objects before git indexes them. Children of git run without a shell, with a scrubbed environment, without
// system and user configuration, without hooks of repositories, and under limits of CPU, memory and time. A push
// that has the value of one of [Server.Secrets] in a file, a name or a message is refused before it is in the
// repository.
package gitd
