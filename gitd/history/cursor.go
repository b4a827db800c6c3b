package history

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// treeCursor reads a tree object entry by entry, without copying.
type treeCursor struct {
	rest []byte
	mode uint32
	name []byte
	hash pack.ObjectName
	held bool // the entry was read and not yet passed
	end  bool
}

// next reads an entry. It returns false at the end.
func (c *treeCursor) next() (bool, error) {
	if len(c.rest) == 0 {
		c.end = true
		return false, nil
	}
	mode, rest, ok := bytes.Cut(c.rest, []byte(" "))
	name, rest, ok2 := bytes.Cut(rest, []byte{0})
	m, err := strconv.ParseUint(string(mode), 8, 32)
	if !ok || !ok2 || err != nil || len(name) == 0 || len(rest) < len(c.hash) {
		c.end = true
		return false, errors.New("damaged tree")
	}
	c.mode, c.name = uint32(m), name
	copy(c.hash[:], rest)
	c.rest = rest[len(c.hash):]
	return true, nil
}

// seek advances to the entry with the name of to, which is a folder if and only if to is. Entries of a
// tree that is not sorted as git sorts may be missed. Then more objects than needed are collected.
func (c *treeCursor) seek(to *treeCursor) bool {
	for !c.end {
		if !c.held {
			if ok, _ := c.next(); !ok {
				return false
			}
			c.held = true
		}
		switch order := compareEntries(c, to); {
		case order > 0:
			return false
		case order == 0:
			return true
		}
		c.held = false
	}
	return false
}

// compareEntries compares two entries in the order of git, in which the name of a folder ends with a
// slash.
func compareEntries(a, b *treeCursor) int {
	n := min(len(a.name), len(b.name))
	if order := bytes.Compare(a.name[:n], b.name[:n]); order != 0 {
		return order
	}
	return int(a.sortByte(n)) - int(b.sortByte(n))
}

// sortByte returns byte n of the name as it is sorted.
func (c *treeCursor) sortByte(n int) byte {
	switch {
	case n < len(c.name):
		return c.name[n]
	case c.mode == object.ModeFolder:
		return '/'
	}
	return 0
}
