// Package runstest has the runs at work for tests of readers of runs.
package runstest

import (
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
)

// AtWork are runs at work by name. It is a [github.com/ramus-dev/ramus/executor/runs.Live] that a test may change while nothing reads it.
type AtWork map[string]*live.Run

// AtWork returns one of the runs, or nil.
func (w AtWork) AtWork(c record.Caller, id string) *live.Run {
	return w[record.Run{Caller: c, ID: id}.Name()]
}

// AllAtWork returns all of the runs.
func (w AtWork) AllAtWork() map[string]*live.Run { return w }
