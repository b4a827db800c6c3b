package object

import "errors"

// The kinds of error of gitd. Every error that its packages return wraps at most one of them.
var (
	// ErrNotFound means that a repository, ref, commit or file does not exist.
	ErrNotFound = errors.New("not found")
	// ErrNoRepository is [ErrNotFound] of a repository.
	ErrNoRepository error = noRepositoryError{}
	// ErrExists means that the repository exists already.
	ErrExists = errors.New("already exists")
	// ErrInvalid means that git or ramus cannot accept a name, ref or argument.
	ErrInvalid = errors.New("invalid")
	// ErrConflict means that a ref was not at the expected value. Nothing was changed.
	ErrConflict = errors.New("changed meanwhile")
	// ErrDiverged is [ErrConflict] of a base that has commits which upstream lacks, while upstream has others.
	ErrDiverged error = divergedError{}
	// ErrDenied means that the grant does not allow the request.
	ErrDenied = errors.New("not allowed")
	// ErrUpstream means that the upstream of a repository does not answer or denies access.
	ErrUpstream = errors.New("upstream cannot be reached")
	// ErrFenced means that another server took the place of this one, which changes nothing any more.
	ErrFenced = errors.New("another server took the place of this one")
	// ErrUnconfirmed means that no stand-by has confirmed a change, or that none could.
	ErrUnconfirmed = errors.New("not confirmed by a stand-by")
	// ErrElsewhere means that this server does not own a repository, which another replica does, or that it cannot be sure to.
	ErrElsewhere = errors.New("not owned by this replica")
	// ErrUpstreamRefused means that the rules of upstream, such as a protected branch or a
	// hook, reject a push. Trying again does not help.
	ErrUpstreamRefused = errors.New("upstream refused")
	// ErrTooLarge means that a limit on size, count or time was reached.
	ErrTooLarge = errors.New("too large")
)

// noRepositoryError is the type of [ErrNoRepository].
type noRepositoryError struct{}

func (noRepositoryError) Error() string { return ErrNotFound.Error() }
func (noRepositoryError) Unwrap() error { return ErrNotFound }

// divergedError is the type of [ErrDiverged].
type divergedError struct{}

func (divergedError) Error() string { return "diverged" }
func (divergedError) Unwrap() error { return ErrConflict }
