package executor

import (
	"context"

	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/record"
)

// Reindex rebuilds the index from refs alone.
func (x *Executor) Reindex(ctx context.Context) (int, error) {
	return x.index.Rebuild(func() ([]record.Run, error) { return index.ReadRuns(ctx, x.Git) })
}

// Stats returns the numbers of /metrics and /health.
func (x *Executor) Stats() Stats {
	trees := x.trees.Counts()
	s := Stats{
		Runs:         x.runs.counts(),
		Hosts:        make(map[string]int),
		Commands:     x.commands.Load(),
		Commits:      x.commits.Load(),
		Capacity:     x.Fleet.Places(),
		EngineAway:   !x.Fleet.Answered(),
		Bound:        trees.Bound,
		Snapshots:    trees.Snapshots,
		Hashed:       trees.Hashed,
		Portable:     trees.Portable,
		Layers:       trees.Layers,
		BranchLayers: trees.BranchLayers,
		Salvaged:     trees.Salvaged,
	}
	s.Mounted, s.Unpacked = x.deps.Counts()
	s.ChecksRun, s.ChecksReused = x.checksRun.Load(), x.checksReused.Load()
	w := &x.warming
	s.WarmUps = WarmUps{Begun: w.begun.Load(), Refused: w.refused.Load(), Taken: w.taken.Load(), GivenBack: w.givenBack.Load()}
	s.Cleared, s.Clearing = x.Fleet.Cleared()
	for _, h := range x.Fleet.List(x.ctx) {
		s.Hosts[h.State]++
		if h.State == "queued" {
			s.Queue++
		}
	}
	return s
}

// countCheck counts a check that has ended.
func (x *Executor) countCheck(reused bool) {
	if reused {
		x.checksReused.Add(1)
	} else {
		x.checksRun.Add(1)
	}
}

func (x *Executor) count(committed bool) {
	x.commands.Add(1)
	if committed {
		x.commits.Add(1)
	}
}
