package share

import (
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Kind is the kind of a thing that a link shows.
type Kind string

// The kinds.
const (
	KindRun          Kind = "run"
	KindMoment       Kind = "moment" // of a timeline
	KindConversation Kind = "conversation"
)

// Record names the maker of a link and its subject.
type Record struct {
	ID     string        `json:"id"`
	Kind   Kind          `json:"kind"`
	Repo   string        `json:"repo"`
	Caller record.Caller `json:"caller"`
	// Run is the id of the run, for a link to one. Moment is the id of the tick, for a link to a moment.
	Run    string `json:"run,omitempty"`
	Moment string `json:"moment,omitempty"`
	// Private is set if the workspace was private when its owner made the link.
	Private bool        `json:"private,omitempty"`
	By      gitd.Person `json:"by"`
	Made    time.Time   `json:"made"`
	Expires time.Time   `json:"expires"`
	// Revoked is the time of the revocation, by RevokedBy. Zero means that there was none.
	Revoked   time.Time    `json:"revoked,omitzero"`
	RevokedBy *gitd.Person `json:"revoked_by,omitempty"`
}

const (
	refs = "refs/ramus/shares"
	file = "share.json"
	// maxRecord bounds a record, in bytes.
	maxRecord = 16 << 10
	// maxRecords bounds the records. Those of links that have ended are removed before a new one is refused.
	maxRecords = 5000
	// maxOpen bounds the open links of one person.
	maxOpen = 200
)

// refOf returns the ref of the record of a link.
func refOf(id string) string { return refs + "/" + id }

// check returns an error for a record that cannot be one, such as a damaged one.
func (r Record) check(ref string) error {
	if r.ID == "" || strings.Contains(r.ID, "/") || refOf(r.ID) != ref || r.Caller.IsZero() || r.Expires.IsZero() {
		return fmt.Errorf("%s has no record of a link", ref)
	}
	return nil
}

// Open reports whether the link opens at a time.
func (r Record) Open(now time.Time) bool { return r.Revoked.IsZero() && now.Before(r.Expires) }

// Of returns the name of the thing that the link shows.
func (r Record) Of() string {
	if r.Kind == KindRun {
		return r.Caller.String() + "/" + r.Run
	}
	return r.Caller.String()
}
