package executor

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks"
)

// Caller is on whose behalf commands run. The zero value is invalid.
type Caller struct {
	kind, id string
}

var callerID = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9]|-[a-z0-9]){0,79}$`)

// RunCaller is the caller of a workflow run, ConvCaller of a conversation.
func RunCaller(id string) (Caller, error)  { return ParseCaller("run:" + id) }
func ConvCaller(id string) (Caller, error) { return ParseCaller("conv:" + id) }

// ParseCaller reads "run:ID" or "conv:ID"; an ID is lower-case letters, digits and single hyphens.
func ParseCaller(s string) (Caller, error) {
	kind, id, ok := strings.Cut(s, ":")
	if !ok || (kind != "run" && kind != "conv") || !callerID.MatchString(id) {
		return Caller{}, fmt.Errorf("%w caller %q: want run:ID or conv:ID, with lower-case letters, digits and single hyphens", ErrInvalid, s)
	}
	return Caller{kind, id}, nil
}

// String is "run:ID" or "conv:ID".
func (c Caller) String() string { return c.kind + ":" + c.id }

// ID is the part after the colon.
func (c Caller) ID() string { return c.id }

// Kind is "run" or "conv".
func (c Caller) Kind() string { return c.kind }

// Slug is "run-ID": the caller where a colon may not stand (refs, folders).
func (c Caller) Slug() string { return c.kind + "-" + c.id }

// Branch is the caller's branch, "ramus/run-ID".
func (c Caller) Branch() string { return "ramus/" + c.Slug() }

// Is tells whether a name is this caller's whole name: "run:ID", "ID", or its branch. A
// part of one is not.
func (c Caller) Is(name string) bool {
	name = strings.TrimPrefix(name, "ramus/")
	return name == c.String() || name == c.id || name == c.Slug()
}

// IsZero tells whether c is no caller at all.
func (c Caller) IsZero() bool { return c.kind == "" }

// MarshalText writes String.
func (c Caller) MarshalText() ([]byte, error) {
	if c.IsZero() {
		return nil, nil
	}
	return []byte(c.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (c *Caller) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*c = Caller{}
		return nil
	}
	*c, err = ParseCaller(string(b))
	return err
}

// orElse is p, or otherwise when p has no name.
func orElse(p, otherwise gitd.Person) gitd.Person {
	if p.Name == "" {
		return otherwise
	}
	if p.Email == "" {
		p.Email = otherwise.Email
	}
	return p
}

// quoteArgs writes an argument vector as a person would type it.
func quoteArgs(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if a == "" || strings.ContainsFunc(a, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./=:,+@%", r))
		}) {
			words[i] = tasks.Quote(a)
		}
	}
	return strings.Join(words, " ")
}
