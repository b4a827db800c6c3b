package object

import (
	"errors"
	"fmt"
)

// Refusal is an error with a text for the client. The text describes the fault in the input
// of the client and never the server.
type Refusal struct {
	msg  string
	kind error
}

func (e *Refusal) Error() string { return e.msg }
func (e *Refusal) Unwrap() error { return e.kind }

// Refuse returns a [Refusal] that wraps kind.
func Refuse(kind error, format string, args ...any) error {
	return &Refusal{msg: fmt.Sprintf(format, args...), kind: kind}
}

// ClientText returns the text of the [Refusal] that err wraps, or otherwise if it wraps none.
func ClientText(err error, otherwise string) string {
	var r *Refusal
	if errors.As(err, &r) {
		return r.msg
	}
	return otherwise
}
