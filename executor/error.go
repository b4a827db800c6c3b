package executor

import (
	"errors"
	"fmt"
)

// The kinds of error of this package, beside those of gitd and containers.
var (
	// ErrNotFound: no such caller, run, step or workflow.
	ErrNotFound = errors.New("not found")
	// ErrInvalid: the request cannot be carried out as it stands; the text says why.
	ErrInvalid = errors.New("invalid")
	// ErrConflict: it is in the wrong state for that (already ended, already approved …).
	ErrConflict = errors.New("conflict")
	// ErrFull: a journal takes no more. It is an ErrConflict.
	ErrFull = fmt.Errorf("%w: its journal is full", ErrConflict)
	// ErrAmbiguous: a partial id fits several.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrDamaged: a file of a run's evidence is gone, or is not what its SHA-256 says.
	ErrDamaged = errors.New("damaged")
	// ErrStoreAway: the artifact store does not answer.
	ErrStoreAway = errors.New("the artifact store does not answer")
	// ErrClosed: the executor is shutting down.
	ErrClosed = errors.New("shutting down")
)
