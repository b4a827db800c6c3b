// Package nodes keeps the machines that a server has at a cloud.
//
// # Nouns
//
// A node is a machine that this server ordered. The book is the folder with one file for each node. A machine is a
// server as the cloud lists it. A leaked machine has the label of this server and belongs to no node that is in use.
//
// # Invariants
//
// A node is in the book before the cloud is asked for its machine, and stays there until the cloud has none. So a crash
// at any moment leaves no machine without a node, except one that [Nodes.Leaked] names.
//
// The description of a new machine has one token, which is good for one redemption within five minutes. The book has
// hashes of tokens, and no token.
package nodes
