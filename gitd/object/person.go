package object

import (
	"fmt"
	"strings"
	"time"
)

// Person is an author or committer.
type Person struct {
	Name  string `json:"name"`
	Email string `json:"email"`
	// ID names the person for good, such as "github:583231", also if the name or the address changes. Commits do not
	// have it. Empty means that it is not known.
	ID string `json:"id,omitempty"`
}

// Or returns p, with the email of otherwise if it has none. Without a name it is otherwise.
func (p Person) Or(otherwise Person) Person {
	if p.Name == "" {
		return otherwise
	}
	if p.Email == "" {
		p.Email = otherwise.Email
	}
	return p
}

// Signature returns p and a time as a commit object has them. Times before 1970 become 1970.
func (p Person) Signature(when time.Time) string {
	return fmt.Sprintf("%s %d %s", p.Ident(), max(when.Unix(), 0), when.Format("-0700"))
}

// Ident returns p as a commit object has it. Ident removes the characters that would end a
// name, an address or a line, as git does. An empty name becomes "unknown".
func (p Person) Ident() string {
	clean := func(s string) string {
		s = strings.Map(func(c rune) rune {
			if c == '<' || c == '>' || c < ' ' || c == 0x7f {
				return -1
			}
			return c
		}, strings.ToValidUTF8(s, ""))
		return strings.Trim(s, " .,:;\"'\\")
	}
	name, email := clean(p.Name), clean(p.Email)
	if name == "" {
		name = "unknown"
	}
	return name + " <" + email + ">"
}
