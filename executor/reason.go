package executor

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Hint says what a person can do about a run that failed for this reason.
func (r Reason) Hint() string {
	switch r {
	case ReasonCommandFailed:
		return "read the step's output with `ramus log`, mend the cause, then `ramus retry`"
	case ReasonTimedOut:
		return "give the step a larger execution.timeout_ms (or --timeout), or make it faster; what stood was committed"
	case ReasonCancelled:
		return "what stood was committed; `ramus retry` goes on from there"
	case ReasonRejected:
		return "a person said no at a gate; `ramus retry` asks again"
	case ReasonMergeConflict:
		return "merge or rebase the branch by hand (`ramus checkout`), push it, then `ramus merge`"
	case ReasonConflict:
		return "the branch has what was pushed; fetch the ref that the error names, merge it into the branch by hand, push, then `ramus retry`"
	case ReasonNotCommitted:
		return "the files that were not committed are among the run's artifacts, below uncommitted/. Remove or ignore them, or raise the limit that is named, then `ramus retry`"
	case ReasonBranchGone:
		return "somebody deleted the branch; push it again, or begin a new caller with `--fork` from the commit that is named"
	case ReasonContainerLost:
		return "the container ended while the command ran; look for what killed it (`ramus log`, `ramus doctor`), then `ramus retry`"
	case ReasonUnavailable:
		return "no container could be had; `ramus doctor` tells what the engine lacks, then `ramus retry`"
	case ReasonDiskFull:
		return "write less, or make room on the disk, or raise limits.disk where it was the caller's own bound, then `ramus retry`; `ramus stop CALLER` removes a container with what it has not committed"
	case ReasonOutOfMemory:
		return "raise limits.memory, or use less, then `ramus retry`"
	case ReasonInterrupted:
		return "the server stopped while the command ran; `ramus retry` runs it again"
	case ReasonEnvLost:
		return "values given by --env are kept in memory alone; send the command again, with its --env"
	case ReasonBadInput:
		return "mend the request and send it again"
	case ReasonModel:
		return "look at the model endpoint's answer in the journal, then `ramus retry`"
	case ReasonBudget:
		return "ask for less at once, or raise models.budget, then `ramus retry`: a new run has a budget of its own"
	case ReasonInternal:
		return "this is a fault of ramus: look at the server's log and report it"
	}
	return ""
}

// Uncommitted tells whether a run ended although its command did, because the command's changes
// did not all reach the branch. The error names where they are kept.
func (r Reason) Uncommitted() bool {
	switch r {
	case ReasonConflict, ReasonNotCommitted, ReasonBranchGone:
		return true
	}
	return false
}

// EgressHint says how containers get at hosts that the egress proxy refused, or "" where it refused
// none. A host has its port, which a rule names where it is not 80 or 443.
func EgressHint(refused []string) string {
	const most = 3 // more in a line are not read
	var names []string
	for _, name := range refused {
		if host, port, err := net.SplitHostPort(name); err == nil && (port == "80" || port == "443") {
			name = host
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) > most:
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return "containers may not reach " + strings.Join(names, ", ") + ": list what they need under `egress` in the configuration"
}

// hintLocked is what a person can do about how the run ended. Hosts that the run was refused come first: they
// are often why. mu is held.
func (l *liveRun) hintLocked(reason Reason) string {
	hint := reason.Hint()
	if reason != ReasonCommandFailed && reason != ReasonTimedOut {
		return hint
	}
	var refused []string
	for i := range l.events {
		if e := &l.events[i]; e.Type == EventEgress && e.Reason == egressRefused {
			refused = append(refused, e.Message)
		}
	}
	if more := EgressHint(refused); more != "" {
		hint = more + "; " + hint
	}
	return hint
}

// Why a run's context ended.
var (
	errCancelled  = errors.New("cancelled")
	errStepOver   = errors.New("the command at work has ended")
	errRunTimeout = errors.New("the run's time is up")
	errDiskFull   = errors.New("disk full")
	errParked     = errors.New("waits for a person")
	errBranchGone = errors.New("the branch was deleted")
)
