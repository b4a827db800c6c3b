package main

import (
	"time"

	"github.com/ramus-dev/ramus/executor"
)

// newRetention returns the retention policy of `ramus prune`.
func newRetention(c KeepConfig) executor.Retention {
	keep := func(k KeepKind) executor.Keep { return executor.Keep{Age: time.Duration(k.Age), Count: k.Count} }
	return executor.Retention{Branches: keep(c.Branches), Runs: keep(c.Runs), Layers: keep(c.Layers),
		Artifacts: keep(c.Artifacts)}
}
