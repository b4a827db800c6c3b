package step

import (
	"errors"
)

// Causes of the end of a run's context.
var (
	ErrCancelled  = errors.New("cancelled")
	ErrStepOver   = errors.New("the command at work has ended")
	ErrRunTimeout = errors.New("the run's time is up")
)
