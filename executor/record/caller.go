package record

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// Caller is the party that commands run for. Its branch, container and refs derive from its name. The zero value is invalid.
type Caller struct {
	kind, id string
}

var callerID = pattern.New(`^[a-z0-9](?:[a-z0-9]|-[a-z0-9]){0,79}$`)

// RunCaller returns the caller of a run by itself. See [ParseCaller].
func RunCaller(id string) (Caller, error) { return ParseCaller("run:" + id) }

// ConvCaller returns the caller of a conversation. See [ParseCaller].
func ConvCaller(id string) (Caller, error) { return ParseCaller("conv:" + id) }

// ParseCaller parses "run:ID" or "conv:ID". An ID has lower-case letters, digits and single hyphens. The error is an
// [ErrInvalid].
func ParseCaller(s string) (Caller, error) {
	kind, id, ok := strings.Cut(s, ":")
	if !ok || (kind != "run" && kind != "conv") || !callerID.MatchString(id) {
		return Caller{}, fmt.Errorf("%w caller %q: want run:ID or conv:ID, with lower-case letters, digits and single hyphens", ErrInvalid, s)
	}
	return Caller{kind, id}, nil
}

// String returns "run:ID" or "conv:ID".
func (c Caller) String() string { return c.kind + ":" + c.id }

// ID returns the part after the colon.
func (c Caller) ID() string { return c.id }

// Kind returns "run" or "conv".
func (c Caller) Kind() string { return c.kind }

// Slug returns "run-ID" or "conv-ID", for refs and folders, which have no colon.
func (c Caller) Slug() string { return c.kind + "-" + c.id }

// BranchPrefix begins the names of callers' branches, and of no other branches.
const BranchPrefix = "ramus/"

// Branch returns the name of the caller's branch, such as "ramus/run-ID".
func (c Caller) Branch() string { return BranchPrefix + c.Slug() }

// Is reports whether name is the whole name of the caller, as "run:ID", "ID", "run-ID" or its branch.
func (c Caller) Is(name string) bool {
	name = strings.TrimPrefix(name, "ramus/")
	return name == c.String() || name == c.id || name == c.Slug()
}

// IsZero reports whether c is the zero value.
func (c Caller) IsZero() bool { return c.kind == "" }

// MarshalText returns c.String(), and nothing for the zero value.
func (c Caller) MarshalText() ([]byte, error) {
	if c.IsZero() {
		return nil, nil
	}
	return []byte(c.String()), nil
}

// UnmarshalText parses the result of MarshalText.
func (c *Caller) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*c = Caller{}
		return nil
	}
	*c, err = ParseCaller(string(b))
	return err
}
