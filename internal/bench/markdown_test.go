package main

import (
	"testing"

	"github.com/ramus-dev/ramus/internal/golden"
)

func TestMarkdown(t *testing.T) {
	r := report{Rows: []row{
		{Scenario: "cold", What: "437 files", Unit: "ms", Ramus: stat{Median: 12.34, N: 3}, Other: "docker run",
			Against: stat{Median: 200, N: 3},
			Ratio:   0.0617, Target: "≤ 0.1×", State: stateMet},
		{Scenario: "cold", What: "without a target", Unit: "ms", Ramus: stat{Median: 1, N: 3}},
		{Scenario: "commit", What: "a|b", Unit: "ms", Ramus: stat{Median: 1, N: 3}, Other: "git",
			Against: stat{Median: 2, N: 3}, Ratio: 0.5,
			Target: "≤ 0.1×", State: stateMissed, Noisy: true},
		{Scenario: "push", What: "8 pushes at once", State: stateUnable},
	}}
	golden.CompareFile(t, "testdata/table.md", r.markdown())
}
