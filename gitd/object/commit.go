package object

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// EmptyTree is the name of the tree without entries.
const EmptyTree Hash = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// RawCommit is the content of a commit object, with the headers that a rebase keeps.
type RawCommit struct {
	Tree              Hash
	Parents           []Hash
	Author, Committer string // with the date
	Encoding          string // empty means UTF-8
	Message           []byte
}

// Encode returns the content of the object. It has no signature.
func (c RawCommit) Encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", c.Tree)
	for _, p := range c.Parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s\ncommitter %s\n", c.Author, c.Committer)
	if c.Encoding != "" {
		fmt.Fprintf(&b, "encoding %s\n", c.Encoding)
	}
	b.WriteByte('\n')
	b.Write(c.Message)
	return b.Bytes()
}

// ParseCommit parses a commit object. As in git, the tree comes first and the parents come before the
// author. Later headers with these names are ignored.
func ParseCommit(data []byte) (RawCommit, error) {
	var c RawCommit
	head, message, _ := bytes.Cut(data, []byte("\n\n"))
	c.Message = message

	for line := range strings.SplitSeq(string(head), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree":
			if c.Tree == "" {
				c.Tree = Hash(value)
			}
		case "parent":
			if c.Author == "" {
				c.Parents = append(c.Parents, Hash(value))
			}
		case "author":
			c.Author = value
		case "committer":
			c.Committer = value
		case "encoding":
			c.Encoding = value
		}
	}
	if CheckHash(c.Tree) != nil {
		return c, errors.New("damaged commit")
	}
	return c, nil
}

// CommitterTime returns the time of the committer in seconds since 1970, or 0 if there is none.
func (c RawCommit) CommitterTime() int64 {
	if words := strings.Fields(c.Committer); len(words) >= 2 {
		if t, err := strconv.ParseInt(words[len(words)-2], 10, 64); err == nil {
			return t
		}
	}
	return 0
}
