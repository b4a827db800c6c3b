package tasks

import (
	"errors"
	"strings"
)

// ErrNUL is a value with a NUL byte, which no argument of a command can hold.
var ErrNUL = errors.New("contains a NUL byte, which no command line can hold")

// Quote makes of s one word of a POSIX shell, whatever stands in it: the shell
// passes on exactly the bytes of s as one argument, or as a part of one where
// Quote's result touches other text.
//
// It always quotes, also words that look harmless: `if`, `A=1` and `time` mean
// something to a shell when they stand bare at the start of a command.
//
// Quoting is no guard against a program's own options: a word that begins with
// "-" is still an option to most. Put "--" before it, or glue it to its option
// (`--pattern=` + Quote(s)).
//
// A NUL byte is kept, so that the command line as a whole is refused (no Shell
// may run one with NUL in it) instead of being cut short. Who wants to say
// which value is to blame asks [Quotable] first.
func Quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Quotable returns ErrNUL when s cannot be an argument of a command.
func Quotable(s string) error {
	if strings.IndexByte(s, 0) >= 0 {
		return ErrNUL
	}
	return nil
}
