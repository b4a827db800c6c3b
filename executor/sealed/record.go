package sealed

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Bounds of a record.
const (
	// MaxContent is the size of the largest content, in bytes.
	MaxContent = 256 << 10
	maxHead    = 2 << 10
	maxRecord  = maxHead + 1 + 12 + MaxContent + 16
)

// version is the version of the files.
const version = 1

// ErrDamaged means that a file is not the one that was written for its record, or that its key is not known.
var ErrDamaged = errors.New("damaged")

// Head is the readable part of a record. All of it is authenticated.
type Head struct {
	Version int    `json:"v"`
	Key     string `json:"key"` // id of the key
	ID      string `json:"id"`  // name of the file
	Owner   string `json:"owner"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	// Serial is the number of the write among all writes of the box. Each write has a higher one. The first one of a
	// ledger is higher than the time in nanoseconds at which the ledger began. It is 0 in files from before there were
	// ledgers.
	Serial uint64 `json:"n,omitempty"`
}

// Record is a head with its decrypted content.
type Record struct {
	Head
	Content []byte
}

// newID returns a random id of 130 bits.
func newID() string { return strings.ToLower(rand.Text()) }

// validID reports whether a name of a file can be an id.
func validID(id string) bool {
	return len(id) == 26 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// seal returns the file of a record: the head in one line of JSON, the nonce, and the encrypted content.
func seal(k Key, r Record) ([]byte, error) {
	if len(r.Content) > MaxContent {
		return nil, fmt.Errorf("cannot seal %.100s: it has more than %d bytes", r.Name, MaxContent)
	}
	return encrypt(k, r)
}

// encrypt is seal for a content of any size.
func encrypt(k Key, r Record) ([]byte, error) {
	r.Version, r.Key = version, k.ID()
	head, err := json.Marshal(r.Head)
	if err != nil {
		return nil, err
	}
	if len(head) > maxHead {
		return nil, fmt.Errorf("cannot seal %.100s: its name, owner and kind have more than %d bytes", r.Name, maxHead)
	}
	gcm := k.aead()
	nonce := make([]byte, gcm.NonceSize())
	_, _ = rand.Read(nonce) // Read never fails
	file := append(append(bytes.Clone(head), '\n'), nonce...)
	return gcm.Seal(file, nonce, r.Content, head), nil
}

// parseHead splits a file into its head, the head's bytes, and the rest. id is the name of the file.
func parseHead(id string, file []byte) (h Head, head, rest []byte, err error) {
	damaged := func(why string) (Head, []byte, []byte, error) {
		return h, nil, nil, fmt.Errorf("%w: %s", ErrDamaged, why)
	}
	head, _, ok := bytes.Cut(file[:min(len(file), maxHead+1)], []byte("\n"))
	if !ok {
		return damaged("it has no head")
	}
	rest = file[len(head)+1:]
	d := json.NewDecoder(bytes.NewReader(head))
	d.DisallowUnknownFields()
	switch err := d.Decode(&h); {
	case err != nil:
		return damaged("its head cannot be read")
	case h.Version != version:
		return damaged(fmt.Sprintf("it has the version %d, and this ramus reads %d", h.Version, version))
	case h.ID != id:
		return damaged("it is the file of another record")
	}
	return h, head, rest, nil
}

// unseal returns the record of a file. id is the name of the file.
func unseal(keys []Key, id string, file []byte) (Record, error) {
	h, head, rest, err := parseHead(id, file)
	if err != nil {
		return Record{}, err
	}
	for _, k := range keys {
		if k.ID() != h.Key {
			continue
		}
		gcm := k.aead()
		n := gcm.NonceSize()
		if len(rest) < n {
			return Record{}, fmt.Errorf("%w: it is not whole", ErrDamaged)
		}
		content, err := gcm.Open(nil, rest[:n], rest[n:], head)
		if err != nil {
			return Record{}, fmt.Errorf("%w: somebody has changed it", ErrDamaged)
		}
		return Record{h, content}, nil
	}
	return Record{}, fmt.Errorf("%w: the key %.16q, with which it was sealed, is not among those of this server",
		ErrDamaged, h.Key)
}
