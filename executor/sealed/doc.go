// Package sealed keeps small records encrypted, one file for each.
//
// # Nouns
//
// A [Box] is a folder of sealed [Record]s with the keys that open them. A [Head] is the part of a record that is
// readable without a key: the record's id, owner, kind and name. The content is encrypted by AES-256-GCM with a random
// nonce for each write. The whole head is authenticated together with the content. A [Key] has 32 bytes. Its id is a
// part of every head, so that a key can be replaced while records of the earlier key exist.
//
// # Invariants
//
// A record that [Box.Read] returns has the bytes that a holder of the key wrote under the same id, owner, kind and
// name. A file with any other byte, a shorter or longer file, and a file with the name of another record are refused
// with [ErrDamaged]. A change is on disk when the method returns. A key is removed only after all records are sealed
// with its successor, so a process that is killed at any moment loses nothing.
//
// # Limits
//
// An earlier file of the same record is authentic too. A program that may write into the folder can restore
// one, or remove a record, without notice.
package sealed
