// Package worktree brings the branches of callers into their containers, and commits to them the files that commands
// change there.
//
// # Nouns
//
//   - A [Tree] is the work tree of one caller. It has the caller's branch, and the files of that branch in the
//     caller's container. [Tree.Ready] brings the files to the branch's tip, [Tree.Commit] commits them.
//   - A [Store] makes Trees, and keeps the layers that they share.
//   - A [Layer] is the checked-out work tree of a commit of the base, with a repository of its own, or the
//     dependencies of a commit. It is on the host, and containers mount it. A layer of a branch is over one of the
//     base.
//   - A [Scratch] container works for no caller.
//
// # The portable way
//
// git runs inside the container, as its user, by the scripts of this package. provision.sh clones, sync.sh brings
// the files to the branch's tip, commit.sh makes a commit and pushes it through the container's door. They use a git
// directory of their own, so that the tree of a commit is a function of the files and of the .gitignore and
// .gitattributes among them.
//
// # The fast way
//
// If the fleet has a [layer.Keeper], the host binds a work tree from outside (bind.go). The work tree is an overlay
// with a layer below, and above it an upper with the difference between the layer and the branch. After a command
// the host looks at the upper alone and computes the commit that git would make (snapshot.go). Both ways make equal
// trees. Each function that goes the fast way falls back to the portable way if there is no layer, if a command
// changed .git, or if git must convert files.
//
// Layers are made by containers that nobody else uses, of the base alone. So a layer shows no more than each caller
// of that base may read. They are a cache, and nothing is lost with them.
//
// # Invariants
//
// No work is lost. A push by somebody else during a command is merged on the host. If both changed the same lines
// the branch keeps the push, and the command's work is kept at [record.ConflictRefs]. A file that no push may bring
// is left out and returned by name. The work tree of a container that was lost is kept at [record.WIPRef]. The value
// of a secret never reaches a branch, because it is removed from the file.
//
// # Untrusted input
//
// A container may have left its work tree, its upper and its repository in any state. git never runs on the host in
// them. The host reads them through the Keeper, which follows no link, and bounds what it reads. The output of
// scripts is bounded, and the host reads the branch on the server, not in a script's output.
package worktree
