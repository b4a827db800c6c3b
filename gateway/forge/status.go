package forge

import "context"

// StatusName is the name of the status of ramus.
const StatusName = "ramus"

// The states of a status.
const (
	StatusSuccess = "success"
	StatusFailure = "failure"
	StatusPending = "pending"
)

// Status is a mark next to a commit.
type Status struct {
	Commit string
	State  string
	Text   string // one line; longer ones are cut to 140 characters
	URL    string // for people; may be empty
}

// Statuser is the ability of a Forge to set the status of a commit.
type Statuser interface {
	// SetStatus sets the status called [StatusName]. Only the last one counts.
	SetStatus(ctx context.Context, repo Name, s Status) error
}

// maxStatus is the number of characters of a text that every forge takes.
const maxStatus = 140

// Line returns the text as one line.
func (s Status) Line() string { return Line(s.Text, maxStatus) }
