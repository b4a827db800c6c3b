package record

import (
	"errors"
	"fmt"
)

// The kinds of errors of the executor, in addition to those of gitd and containers.
var (
	// ErrNotFound means that a caller, run, step or workflow does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInvalid means that a request can never be carried out. The text has the reason.
	ErrInvalid = errors.New("invalid")
	// ErrConflict means that the object is in the wrong state, such as already ended.
	ErrConflict = errors.New("conflict")
	// ErrFull means that a journal has reached its bound. It is an ErrConflict.
	ErrFull = fmt.Errorf("%w: its journal is full", ErrConflict)
	// ErrAmbiguous means that a part of an id fits several ids.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrDamaged means that a file of a run's evidence is missing or does not have its SHA-256.
	ErrDamaged = errors.New("damaged")
	// ErrStoreAway means that the artifact store does not answer.
	ErrStoreAway = errors.New("the artifact store does not answer")
	// ErrClosed means that the executor is shutting down.
	ErrClosed = errors.New("shutting down")
)
