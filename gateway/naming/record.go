package naming

import (
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of names.
const (
	// MaxBytes bounds a name. A longer one is cut.
	MaxBytes = 120
	// maxNames bounds the sessions of one caller that have a name.
	maxNames  = 200
	maxRecord = 128 << 10
	// maxRecords bounds the callers that have a record.
	maxRecords = 20_000
)

// Name is the name of a session.
type Name struct {
	Text  string      `json:"text"`
	By    gitd.Person `json:"by"`
	Since time.Time   `json:"since"`
}

// Record has the names of the sessions of a caller, by the ids of the sessions.
type Record struct {
	Caller   record.Caller   `json:"caller"`
	Sessions map[string]Name `json:"sessions"`
}

// ref returns the ref of the record.
func (r Record) ref() string { return refs + "/" + r.Caller.Slug() }

// check returns an error for a record that cannot be one, such as a damaged one.
func (r Record) check(ref string) error {
	if r.Caller.IsZero() || r.ref() != ref || len(r.Sessions) > maxNames {
		return fmt.Errorf("%s has no record of names", ref)
	}
	for session, n := range r.Sessions {
		if session == "" || n.Text == "" || n.Text != clean(n.Text) {
			return fmt.Errorf("%s has no record of names: that of the session %.100q is none", ref, session)
		}
	}
	return nil
}

// clean returns a name as it is kept, which is one line.
func clean(words string) string { return text.OneLine(words, MaxBytes-len(text.Ellipsis)) }
