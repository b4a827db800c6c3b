package executor

import (
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/warmup"
)

// Stats are the numbers of /metrics and /health.
type Stats struct {
	Runs     map[record.State]int `json:"runs"` // since the start, by present state; at work, waiting for a person, or ended
	Commands int64                `json:"commands"`
	Commits  int64                `json:"commits"`
	Queue    int                  `json:"queue"`
	Hosts    map[string]int       `json:"hosts"`    // by state
	Capacity int                  `json:"capacity"` // of all containers at once
	// EngineAway is set until the container engine has answered for the first time.
	EngineAway bool `json:"engine_away,omitempty"`
	// Bound are the containers that got their work tree from outside, Snapshots the commits made from outside, of which Hashed
	// files were read. Portable counts by reason the work that was left to git in containers. Layers were made since start.
	// Mounted and Unpacked are the dependencies that containers got from the cache, an ecosystem each. Salvaged are lost
	// containers of which something was kept.
	Bound     int64            `json:"bound"`
	Snapshots int64            `json:"snapshots"`
	Hashed    int64            `json:"hashed"`
	Portable  map[string]int64 `json:"portable,omitempty"`
	Layers    int64            `json:"layers"`
	// WarmUps are the containers that were woken while somebody typed.
	WarmUps warmup.Counts `json:"warm_ups"`
	// ChecksRun are the checks that ran, ChecksReused those whose results were known.
	ChecksRun    int64 `json:"checks_run"`
	ChecksReused int64 `json:"checks_reused"`
	// BranchLayers were made since start, of branches that differ much from their base.
	BranchLayers int64 `json:"branch_layers"`
	Mounted      int64 `json:"mounted"`
	Unpacked     int64 `json:"unpacked"`
	Salvaged     int64 `json:"salvaged"`
	// Cleared are the deleted folders of containers that are gone, Clearing those that are still to be deleted.
	Cleared  int64 `json:"cleared"`
	Clearing int64 `json:"clearing"`
}

// Stats returns the numbers of /metrics and /health.
func (x *Executor) Stats() Stats {
	trees := x.trees.Counts()
	s := Stats{
		Runs:         x.runs.counts(),
		Hosts:        make(map[string]int),
		Commands:     x.tally.commands.Load(),
		Commits:      x.tally.commits.Load(),
		Capacity:     x.Fleet.Places(),
		EngineAway:   !x.Fleet.Answered(),
		Bound:        trees.Bound,
		Snapshots:    trees.Snapshots,
		Hashed:       trees.Hashed,
		Portable:     trees.Portable,
		Layers:       trees.Layers,
		BranchLayers: trees.BranchLayers,
		Salvaged:     trees.Salvaged,
		WarmUps:      x.Warmer.Counts(),
	}
	s.Mounted, s.Unpacked = x.deps.Counts()
	s.ChecksRun, s.ChecksReused = x.tally.checksRun.Load(), x.tally.checksReused.Load()
	s.Cleared, s.Clearing = x.Fleet.Cleared()
	for _, h := range x.Fleet.List(x.life.ctx) {
		s.Hosts[h.State]++
		if h.State == "queued" {
			s.Queue++
		}
	}
	return s
}
