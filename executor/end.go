package executor

import (
	"errors"
)

var errParked = errors.New("waits for a person")
