package engineer

import (
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// DescribeEvent returns a description of the work that an event of a run is about. bad is set if that work failed.
func DescribeEvent(e record.Event) (text string, bad bool) {
	what := firstOf(e.Command)
	switch {
	case e.Kind == string(record.KindAgent):
		agent, _, _ := strings.Cut(what, ":")
		what = agent
	case e.Task != "":
		what = "running " + strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(e.Task, "lib_"), "run_"), "_", " ")
	}
	switch e.Type {
	case record.EventStepStarted:
		if e.Kind == string(record.KindAgent) {
			what += " is at work"
		}
		return what, false
	case record.EventAgent:
		if e.Kind == "tool_call" {
			return firstOf(e.Message), false
		}
	case record.EventStepFinished:
		if e.OK != nil && !*e.OK {
			return what + " failed", true
		}
	}
	return "", false
}

// firstOf returns the first line of s, cut for messages.
func firstOf(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return text.Clip(line, 200)
}
