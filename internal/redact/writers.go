package redact

import "io"

// Writers wraps the writers of a command's two outputs in ones that take secrets out. Either may be nil, and then its wrapper is nil. flush
// writes the end that they hold back, and must be called when the command has ended.
func (s *Secrets) Writers(stdout, stderr io.Writer) (cleanOut, cleanErr io.Writer, flush func()) {
	wrap := func(w io.Writer) (io.Writer, func()) {
		if w == nil {
			return nil, func() {}
		}
		clean := s.Writer(w)
		return clean, func() { _ = clean.Flush() }
	}
	cleanOut, flushOut := wrap(stdout)
	cleanErr, flushErr := wrap(stderr)
	return cleanOut, cleanErr, func() { flushOut(); flushErr() }
}
