package gitd

import "errors"

// The kinds of error of this package; every error it returns wraps at most one
// of them. Callers map them to HTTP statuses and exit codes with [errors.Is].
var (
	// ErrNotFound: no such repository, ref, commit or file.
	ErrNotFound = errors.New("not found")
	// ErrNoRepository is [ErrNotFound] of a repository.
	ErrNoRepository error = noRepositoryError{}
	// ErrExists: the repository is there already.
	ErrExists = errors.New("already exists")
	// ErrInvalid: a name, ref or argument that git or ramus cannot accept.
	ErrInvalid = errors.New("invalid")
	// ErrConflict: a ref was not at the expected value; nothing was changed.
	ErrConflict = errors.New("changed meanwhile")
	// ErrDenied: the grant does not allow it.
	ErrDenied = errors.New("not allowed")
	// ErrUpstream: where a repository comes from does not answer, or does not let us in.
	ErrUpstream = errors.New("upstream cannot be reached")
	// ErrUpstreamRefused: upstream's own rules do not allow a push: a protected branch, a
	// hook. Trying again does not help.
	ErrUpstreamRefused = errors.New("upstream refused")
	// ErrTooLarge: a limit on size, count or time was reached.
	ErrTooLarge = errors.New("too large")
)

type noRepositoryError struct{}

func (noRepositoryError) Error() string { return ErrNotFound.Error() }
func (noRepositoryError) Unwrap() error { return ErrNotFound }
