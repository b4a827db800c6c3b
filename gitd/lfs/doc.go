// Package lfs speaks the protocol of Git LFS. It reads and writes pointers, parses the requests of clients, checks
// contents, and asks other servers for objects.
//
// # Nouns
//
// An [Object] is a content, named by its SHA-256 and its size. A pointer is the small file that git has in its
// place. A [Batch] is a request for a number of objects, and a [Reply] its answer. A [Remote] is the Git LFS server
// of another repository.
//
// # Untrusted input
//
// The requests of clients, the contents that they send, and the answers of other servers. Requests are bounded in
// bytes and objects. A content counts only if it has its size and its SHA-256. An answer of another server may
// name any address, but [Remote] connects only to public ones, and to those that the operator has named.
package lfs
