// Package nodes keeps the machines on which containers run, apart from the server's own.
//
// # Nouns
//
// A node is a machine that this server ordered at a cloud, that a person brought, or that joined the cluster by itself.
// The book is the folder with one file for each node. A machine is a server as the cloud lists it. A member is a node as
// the cluster has it. A leaked machine has the label of this server and belongs to no node that is in use.
//
// # Invariants
//
// A node is in the book before the cloud is asked for its machine, and stays there until the cloud has none. So a crash
// at any moment leaves no machine without a node, except one that [Nodes.Leaked] names.
//
// The description of a new machine has one token, which is good for one redemption within five minutes. The book has
// hashes of tokens, and no token.
//
// With a cluster, health is not kept. It follows from the Node and the Lease of the cluster; only its changes are events.
//
// # Untrusted input
//
// Machines are hostile: their reports and boot logs are bounded, and a token is for one node. Names of members become names
// of files only if they are plain.
package nodes
