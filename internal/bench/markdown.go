package main

import (
	"fmt"
	"strings"
	"time"
)

// markdown returns the table for readers who are interested in ramus and not in one run. It has only the rows that have
// a target or could not be measured.
func (r *report) markdown() string {
	var s strings.Builder
	m := r.Machine
	fmt.Fprintf(&s, "%s, %d cores, %d GB, git %s, Docker %s; medians:\n\n", m.Time.Format(time.DateOnly), m.Cores,
		(m.Memory+512)/1024, m.Git, m.Engine)
	s.WriteString("| | ramus | alternative | ratio | target | |\n|---|--:|--:|--:|--:|---|\n")
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	for _, x := range r.Rows {
		if x.State == "" {
			continue
		}
		ramus, against, ratio, state := "", "", "", x.State
		if x.Ramus.N > 0 {
			ramus = strings.TrimSpace(digits(x.Ramus.Median) + " " + x.Unit)
		}
		if x.Against.N > 0 {
			against = strings.TrimSpace(digits(x.Against.Median)+" "+x.Unit) + ", " + x.Other
			ratio = digits(x.Ratio) + "×"
		}
		if x.Noisy {
			state += ", noisy"
		}
		line := []string{"**" + x.Scenario + "** " + x.What, ramus, against, ratio, x.Target, state}
		for i := range line {
			line[i] = cell(line[i])
		}
		fmt.Fprintf(&s, "| %s |\n", strings.Join(line, " | "))
	}
	return s.String()
}
