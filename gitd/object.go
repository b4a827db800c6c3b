package gitd

import (
	"github.com/ramus-dev/ramus/gitd/history"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// Hash is a Git object name, 40 hexadecimal digits (64 for SHA-256). The empty Hash means "none".
type Hash = object.Hash

// Person is an author or committer.
type Person = object.Person

// Pack is a pack and its index.
type Pack = pack.Pack

// TreeChange is a path whose entry differs between two trees.
type TreeChange = history.Change

// Leak is the value of a secret in a push that was refused for it.
type Leak = object.Leak

// CheckHash returns [ErrInvalid] if h does not look like an object name.
func CheckHash(h Hash) error { return object.CheckHash(h) }

// CheckRef returns [ErrInvalid] if name is not a full ref name below refs/ that git accepts.
func CheckRef(name string) error { return object.CheckRef(name) }

// CheckName returns [ErrInvalid] if name cannot be the name of a repository. The error says which names
// can.
func CheckName(name string) error { return object.CheckName(name) }

// The kinds of error of this package. Every error that it returns wraps at most one of them.
// Callers map them to HTTP statuses and exit codes with [errors.Is].
var (
	// ErrNotFound means that a repository, ref, commit or file does not exist.
	ErrNotFound = object.ErrNotFound
	// ErrNoRepository is [ErrNotFound] of a repository.
	ErrNoRepository = object.ErrNoRepository
	// ErrExists means that the repository exists already.
	ErrExists = object.ErrExists
	// ErrInvalid means that git or ramus cannot accept a name, ref or argument.
	ErrInvalid = object.ErrInvalid
	// ErrConflict means that a ref was not at the expected value. Nothing was changed.
	ErrConflict = object.ErrConflict
	// ErrDiverged is [ErrConflict] of a base that has commits which upstream lacks, while upstream has others.
	ErrDiverged = object.ErrDiverged
	// ErrDenied means that the grant does not allow the request.
	ErrDenied = object.ErrDenied
	// ErrUpstream means that the upstream of a repository does not answer or denies access.
	ErrUpstream = object.ErrUpstream
	// ErrFenced means that another server took the place of this one, which changes nothing any more.
	ErrFenced = object.ErrFenced
	// ErrUnconfirmed means that no stand-by has confirmed a change, or that none could.
	ErrUnconfirmed = object.ErrUnconfirmed
	// ErrElsewhere means that this server does not own a repository, which another replica does, or that it cannot be sure to.
	ErrElsewhere = object.ErrElsewhere
	// ErrUpstreamRefused means that the rules of upstream, such as a protected branch or a
	// hook, reject a push. Trying again does not help.
	ErrUpstreamRefused = object.ErrUpstreamRefused
	// ErrTooLarge means that a limit on size, count or time was reached.
	ErrTooLarge = object.ErrTooLarge
)
