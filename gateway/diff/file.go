package diff

import (
	"strings"

	"github.com/ramus-dev/ramus/internal/align"
)

// File is the difference of one file.
type File struct {
	// Old and New are its paths. They are the same unless the file was renamed or copied. Both are empty if git wrote none that can be read.
	Old, New string
	// Notes are the lines of git about modes, names and similarity, as git writes them.
	Notes []string
	// Binary is set if git compared no lines.
	Binary bool
	Hunks  []Hunk
	// Lines is the number of lines of the hunks that were read, with those that a limit left out.
	Lines int
	// Cut is set if lines after those of the hunks are left out because of a limit.
	Cut bool
}

// Hunk is a part of a file with differences.
type Hunk struct {
	// Old and New are the numbers of the first line on each side, from 1. The number is that of the line before if a side has no lines.
	Old   int    `json:"old"`
	New   int    `json:"new"`
	Head  string `json:"head"` // the first line, as git writes it
	Lines []Line `json:"lines"`
}

// Section returns the line that git shows for orientation, such as the head of a function. Returns "" if there is none.
func (h Hunk) Section() string {
	_, section, _ := strings.Cut(strings.TrimPrefix(h.Head, "@@ "), " @@")
	return strings.TrimPrefix(section, " ")
}

// The signs of lines.
const (
	Same    = align.Same
	Deleted = align.Deleted
	Added   = align.Added
)

// Line is a line with its sign.
type Line struct {
	Sign string `json:"sign"`
	// Old and New are the numbers of the line on each side, from 1. Zero means that the side lacks the line.
	Old  int    `json:"old,omitempty"`
	New  int    `json:"new,omitempty"`
	Text string `json:"text"` // without the newline
	// Cut is set if the text is the beginning of a longer line.
	Cut bool `json:"cut,omitempty"`
	// Open is set if no newline follows the line in its file.
	Open bool `json:"open,omitempty"`
}
