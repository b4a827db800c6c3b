package tasks

import (
	"errors"
	"strings"
)

// ErrNUL means that a value has a NUL byte, which no argument of a command can have.
var ErrNUL = errors.New("contains a NUL byte, which no command line can hold")

// Quote returns s as one word of a POSIX shell. The shell passes exactly the bytes of s as one argument, or as a part
// of one if Quote's result touches other text.
//
// It always quotes, including words that look harmless, because `if`, `A=1` and `time` have a meaning for a shell at
// the start of a command.
//
// Quoting does not protect against a program's own options. A word that begins with "-" is an option to most programs.
// Put "--" before it, or join it with its option (`--pattern=` + Quote(s)).
//
// A NUL byte is kept, so that the command line as a whole is refused (no Shell may run one with NUL in it) and not cut
// short. [Quotable] finds the value with a NUL byte before that.
func Quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Quotable returns ErrNUL if s cannot be an argument of a command.
func Quotable(s string) error {
	if strings.IndexByte(s, 0) >= 0 {
		return ErrNUL
	}
	return nil
}
