package anchor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
)

// Around is how many lines before and after those of an anchor are part of its hash.
const Around = 3

// Bounds of anchors.
const (
	MaxLines = 200     // of one anchor
	MaxFile  = 4 << 20 // bytes of a file whose lines are compared
)

// The sides of a comparison.
const (
	New = "new" // the file at Commit
	Old = "old" // the file at Base
)

// Anchor binds a remark to lines.
type Anchor struct {
	// Commit is the commit that was looked at, and Base the one that it was compared with.
	Commit gitd.Hash `json:"commit"`
	Base   gitd.Hash `json:"base"`
	// Side is [New] or [Old]. Path and Blob are the file on that side.
	Side string    `json:"side"`
	Path string    `json:"path"`
	Blob gitd.Hash `json:"blob"`
	// From and To are the first and the last line, from 1.
	From int `json:"from"`
	To   int `json:"to"`
	// Sum is the hash of the lines with those around them, see [Sum].
	Sum string `json:"sum"`
}

// At returns the commit that has the file.
func (a Anchor) At() gitd.Hash {
	if a.Side == Old {
		return a.Base
	}
	return a.Commit
}

// ErrLines is the error for lines that a file does not have.
var ErrLines = errors.New("the file does not have these lines")

// SplitLines splits a text into its lines, without their newlines. An empty text has none.
func SplitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// Sum returns the hash of lines with up to [Around] lines before and after. from and to are numbers from 1. Returns [ErrLines] if the file
// does not have these lines, or if they are more than [MaxLines].
func Sum(lines []string, from, to int) (string, error) {
	if from < 1 || to < from || to > len(lines) || to-from >= MaxLines {
		return "", fmt.Errorf("%w: %d to %d of %d, at most %d at once", ErrLines, from, to, len(lines), MaxLines)
	}
	h := sha256.New()
	start, end := around(len(lines), from, to)
	fmt.Fprintf(h, "%d %d\n", from-start, to-from+1)
	for _, l := range lines[start-1 : end] {
		fmt.Fprintf(h, "%d %s\n", len(l), l)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// around returns the first and the last line of the hash.
func around(lines, from, to int) (start, end int) { return max(1, from-Around), min(lines, to+Around) }

// Excerpt returns the lines of an anchor with those around them, and the number of the first one. The lines must be those of its file.
func Excerpt(lines []string, from, to int) (first int, list []string) {
	start, end := around(len(lines), from, to)
	if start > end {
		return start, nil
	}
	return start, lines[start-1 : end]
}
