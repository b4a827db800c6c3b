package object

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The modes of entries. Git writes no others, but old trees may have them.
const (
	ModeFile       = 0o100644
	ModeExecutable = 0o100755
	ModeSymlink    = 0o120000
	ModeFolder     = 0o040000
	ModeCommit     = 0o160000 // a submodule
)

// Entry is one line of a tree object.
type Entry struct {
	Name string
	Mode uint32
	Hash Hash
}

// Kind returns the kind of the object that the entry names (tree, commit or blob).
func (e Entry) Kind() string {
	switch e.Mode {
	case ModeFolder:
		return "tree"
	case ModeCommit:
		return "commit"
	}
	return "blob"
}

// Key returns the key by which git sorts the entries of a tree.
func (e Entry) Key() string {
	if e.Mode == ModeFolder {
		return e.Name + "/"
	}
	return e.Name
}

// ParseTree parses a tree object. hashLen is the length of an object name in bytes, 20 or 32.
func ParseTree(data []byte, hashLen int) ([]Entry, error) {
	var entries []Entry
	for len(data) > 0 {
		mode, rest, ok := bytes.Cut(data, []byte(" "))
		name, rest, ok2 := bytes.Cut(rest, []byte{0})
		m, err := strconv.ParseUint(string(mode), 8, 32)
		if !ok || !ok2 || err != nil || len(name) == 0 || len(rest) < hashLen {
			return nil, errors.New("damaged tree")
		}
		entries = append(entries, Entry{Name: string(name), Mode: uint32(m), Hash: Hash(fmt.Sprintf("%x", rest[:hashLen]))})
		data = rest[hashLen:]
	}
	return entries, nil
}

// EncodeTree returns entries as a tree object. It sorts them as git does, by [Entry.Key].
// Returns an error if a hash is not hexadecimal.
func EncodeTree(entries []Entry) ([]byte, error) {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Key(), b.Key()) })
	var b bytes.Buffer
	for _, e := range entries {
		raw, err := hex.DecodeString(string(e.Hash))
		if err != nil {
			return nil, fmt.Errorf("object name of %.200q: %w", e.Name, err)
		}
		fmt.Fprintf(&b, "%o %s\x00", e.Mode, e.Name)
		b.Write(raw)
	}
	return b.Bytes(), nil
}
