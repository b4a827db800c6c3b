package main

import (
	"time"

	"github.com/ramus-dev/ramus/executor/prune"
)

// newRetention returns the retention policy of `ramus prune`.
func newRetention(c KeepConfig) prune.Retention {
	keep := func(k KeepKind) prune.Keep { return prune.Keep{Age: time.Duration(k.Age), Count: k.Count} }
	return prune.Retention{Branches: keep(c.Branches), Runs: keep(c.Runs), Layers: keep(c.Layers),
		Artifacts: keep(c.Artifacts)}
}
