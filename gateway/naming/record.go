package naming

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of names.
const (
	// MaxRunes bounds a name, in characters of Unicode.
	MaxRunes = 120
	// maxNames bounds the sessions of one caller that have a name.
	maxNames = 200
	// maxBy bounds each field of the person who gave a name, in bytes.
	maxBy = 60
	// maxRecord bounds a record, in bytes. It is more than maxNames names need, of which each character is up to 6
	// bytes of JSON.
	maxRecord = 512 << 10
	// maxRecords bounds the callers that have a record.
	maxRecords = 20_000
)

// Name is the name of a session.
type Name struct {
	Text  string      `json:"text"`
	By    gitd.Person `json:"by"`
	Since time.Time   `json:"since"`
}

// isOf reports whether a name belongs to the session that began at a time, and not to an earlier one.
func (n Name) isOf(began time.Time) bool { return !n.Since.Before(began) }

// Record has the names of the sessions of a caller, by the ids of the sessions.
type Record struct {
	Caller   record.Caller   `json:"caller"`
	Sessions map[string]Name `json:"sessions"`
}

// refOf returns the ref of the record of a caller.
func refOf(c record.Caller) string { return refs + "/" + c.Slug() }

// callerOf returns the caller of a ref. Returns false if the ref is that of no caller.
func callerOf(ref string) (record.Caller, bool) {
	kind, id, _ := strings.Cut(strings.TrimPrefix(ref, refs+"/"), "-")
	c, err := record.ParseCaller(kind + ":" + id)
	return c, err == nil
}

// check returns an error for a record that cannot be one, such as a damaged one.
func (r Record) check(ref string) error {
	if r.Caller.IsZero() || refOf(r.Caller) != ref || len(r.Sessions) > maxNames {
		return fmt.Errorf("%s has no record of names", ref)
	}
	return nil
}

// usable returns the names of a record, as a change would keep them. It leaves out those that cannot be kept.
func (r Record) usable() map[string]Name {
	names := map[string]Name{}
	for session, n := range r.Sessions {
		words, err := clean(n.Text)
		if n.Text = words; session != "" && err == nil && words != "" {
			names[session] = n
		}
	}
	return names
}

// clean returns a name as it is kept. It returns "" if nothing of the name can be seen, and a problem if the name is
// too long.
func clean(words string) (string, error) {
	words = text.Visible(words)
	if utf8.RuneCountInString(words) > MaxRunes {
		return "", route.NewProblem(route.KindInvalid, "the name has more than %d characters", MaxRunes).
			WithHint("choose a shorter name")
	}
	return words, nil
}
