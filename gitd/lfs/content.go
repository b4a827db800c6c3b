package lfs

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
)

// Content reads the content of an object and compares it with its name. At the end of a content that is another
// one it returns an error in place of [io.EOF], so that a copy of it fails as a whole.
type Content struct {
	object Object
	from   io.Reader
	hash   hash.Hash
	read   int64
	err    error // of the comparison, set at the end
}

// NewContent returns the content of o that from has.
func NewContent(o Object, from io.Reader) *Content {
	return &Content{object: o, from: from, hash: sha256.New()}
}

// Read reads the next bytes. The error of another content is [object.ErrInvalid].
func (c *Content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.from.Read(p)
	c.read += int64(n)
	if c.read > c.object.Size {
		c.err = refuseObject("the content is longer than the %d bytes of its object", c.object.Size)
		return 0, c.err
	}
	c.hash.Write(p[:n])
	if err == io.EOF {
		c.err = c.compare()
		return n, c.err
	}
	return n, err
}

// compare returns io.EOF for the right content.
func (c *Content) compare() error {
	if c.read < c.object.Size {
		return refuseObject("the content has %d bytes, its object %d", c.read, c.object.Size)
	}
	if sum := hex.EncodeToString(c.hash.Sum(nil)); sum != c.object.OID {
		return refuseObject("the content has the SHA-256 %s, its object %s", sum, c.object.OID)
	}
	return io.EOF
}
