package containers

import (
	"testing"
	"time"
)

// Sweep does at once what time would bring.
func Sweep(f *Fleet) { f.sweepOnce() }

// Owner is the id of a fleet's installation.
func Owner(f *Fleet) string { return f.owner }

// SetCleanGrace shortens the wait for an engine that hangs.
func SetCleanGrace(t *testing.T, d time.Duration) {
	old := cleanGrace
	cleanGrace = d
	t.Cleanup(func() { cleanGrace = old })
}
