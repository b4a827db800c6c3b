// Package sealed keeps small records encrypted, one file for each.
//
// # Nouns
//
// A [Box] is a folder of sealed [Record]s with the keys that open them. A [Head] is the part of a record that is
// readable without a key: the record's id, owner, kind and name. The content is encrypted by AES-256-GCM with a random
// nonce for each write. The whole head is authenticated together with the content. A [Key] has 32 bytes. Its id is a
// part of every head, so that a key can be replaced while records of the earlier key exist.
//
// The ledger has the serial number of the last write of each record. It is sealed with the same key, and is in another
// folder: DATA/ledger/sealed for the box DATA/sealed.
//
// # Invariants
//
// A record that [Box.Read] returns has the bytes that a holder of the key wrote last under the same id, owner, kind and
// name. A file with any other byte, a shorter or longer file, a file with the name of another record, an earlier file
// of the same record and a file of a removed record are refused with [ErrDamaged]. If the ledger is damaged or missing,
// all records are refused until they are stored again. A change is on disk when the method returns. The record is
// written first, then the ledger. Open enters records that are newer than the ledger. A removal changes the ledger
// first. A key is removed only after all records are sealed with its successor, so a process that is killed at any
// moment loses nothing.
//
// # Limits
//
// A program that may write into the folder can remove a record without notice. One that may write into both folders
// can restore the records together with their ledger, as the restoration of a backup does. The Open after a restoration
// accepts files that are newer than the backup. A new ledger refuses the files of a lost one if the clock has not been
// set back since they were written. A record that was damaged when its box got its first ledger has no number until it
// is stored again or its file is restored.
package sealed
