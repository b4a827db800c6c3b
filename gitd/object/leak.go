package object

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// MaxLeaks bounds the leaks that are reported of one push or one work tree.
const MaxLeaks = 100

// Leak is the value of a secret in objects that were refused for it.
type Leak struct {
	Secret string // the name of the secret
	Kind   string // blob, tree (a file name), commit or tag (a message or a person), ref (its name)
	Object Hash   // empty for a ref
	Path   string // of a blob or a tree if it is known, without values of secrets
}

func (l Leak) String() string { return l.Secret + " in " + l.Where() }

// Where returns the place of the value, for people.
func (l Leak) Where() string {
	switch {
	case l.Kind == "ref":
		return "the name of a ref"
	case l.Kind == "tree" && l.Path == "":
		return "the name of a file"
	case l.Kind == "tree":
		return fmt.Sprintf("the name of a file in %q", l.Path)
	case l.Path != "":
		return fmt.Sprintf("%q", l.Path)
	case l.Object == "":
		return "a " + l.Kind
	}
	return l.Kind + " " + string(l.Object)[:min(12, len(l.Object))]
}

// LeakText returns the reason why a push was refused, in one line.
func LeakText(leaks []Leak) string {
	var texts []string
	for _, l := range leaks {
		if text := l.String(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	more := ""
	if n := len(texts) - 5; n > 0 {
		texts, more = texts[:5], fmt.Sprintf(" and %d more", n)
	}
	return "refused: the push holds the value of a secret: " + strings.Join(texts, ", ") + more +
		"; take it out of every commit that is pushed, then push again"
}

// CleanPath returns path as it may be in a message, shortened and without control characters and without
// values of secrets.
func CleanPath(secrets *redact.Secrets, path string) string {
	path = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(secrets.Name(path), "?"))
	return text.Clip(path, 300)
}
