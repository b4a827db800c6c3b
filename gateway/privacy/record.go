package privacy

import (
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Record is the privacy of a caller.
type Record struct {
	Caller record.Caller `json:"caller"`
	Repo   string        `json:"repo"`
	// Private callers exist for their owner and for administrators only.
	Private bool `json:"private"`
	// Owner is the person whose caller it is. The ID decides.
	Owner gitd.Person `json:"owner"`
	Since time.Time   `json:"since"`
}

// ref returns the ref of the record.
func (r Record) ref() string { return refs + "/" + r.Caller.Slug() }

// check returns an error for a record that cannot be one, such as a damaged one.
func (r Record) check(ref string) error {
	if r.Caller.IsZero() || r.Repo == "" || r.Owner.ID == "" || r.ref() != ref {
		return fmt.Errorf("%s has no record of a caller's privacy", ref)
	}
	return nil
}
