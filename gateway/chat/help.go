package chat

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway/gate"
)

// HelpText returns the description of all commands and of plain words, in Slack's mrkdwn. agents are the names of the
// configured agents, with the default first. runner is the runner of the thread.
func HelpText(agents []string, runner gate.Runner) string {
	if runner != gate.RunnerContainer {
		return "This thread's requests are handed over to the fallback runner: say in plain words what is to be done."
	}
	var b strings.Builder
	switch len(agents) {
	case 0:
		b.WriteString("No coding agent is set up here, so nobody reads plain words. These commands need none:\n")
	case 1:
		fmt.Fprintf(&b, "Say in plain words what is to be done: the agent `%s` does it on this thread's branch, and its work is checked. These commands need no agent:\n", agents[0])
	default:
		fmt.Fprintf(&b, "Say in plain words what is to be done: the agent `%s` does it on this thread's branch, and its work is checked. For another, add `agent:NAME` (%s). These commands need no agent:\n",
			agents[0], strings.Join(agents[1:], ", "))
	}
	for _, line := range [][2]string{
		{"run WORKFLOW [key=value …]", "runs a workflow of the repository"},
		{"exec COMMAND", "runs the rest of the line, or a code block"},
		{"test [PATTERN]", "runs the project's tests, or some"},
		{"lint [fix]", "runs its linters; with `fix` they repair what they can"},
		{"build [TARGET]", "builds it, or a part"},
		{"diff [--stat]", "shows what changed on this thread's branch"},
		{"log [N]", "lists the latest commands and what each committed"},
		{"status", "says what runs and what ran"},
		{"why", "says why the last run failed, and what to do"},
		{"merge [into BRANCH] [squash]", "merges the branch; also `merge`, `rebase`, `ff`"},
		{"pr", "opens the pull request of the branch, or brings it up to date; after `/ramus connect` in your own name"},
		{"stop", "stops what runs; the changes so far are committed"},
		{"retry", "runs the run that failed last again"},
		{"fallback: WORDS", "hands the thread over to the fallback runner, if there is one"},
		{"help", "says this"},
	} {
		fmt.Fprintf(&b, "• `%s` %s\n", line[0], line[1])
	}
	b.WriteString("Add `repo:NAME` or `base:BRANCH` to choose where. A second mention in the thread goes on with the same branch.")
	return b.String()
}
