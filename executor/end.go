package executor

import (
	"errors"
)

// Causes of the end of a run's context.
var (
	errCancelled  = errors.New("cancelled")
	errStepOver   = errors.New("the command at work has ended")
	errRunTimeout = errors.New("the run's time is up")
	errParked     = errors.New("waits for a person")
)
