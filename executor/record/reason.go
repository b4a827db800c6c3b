package record

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// Reason is the reason for which a run failed. The list is closed. [Reason.Hint] returns a remedy for each.
type Reason string

// The reasons.
const (
	ReasonCommandFailed Reason = "command_failed" // a step failed and no transition handled it
	ReasonTimedOut      Reason = "timed_out"
	ReasonCancelled     Reason = "cancelled"
	ReasonRejected      Reason = "rejected" // a person answered no at a gate, or a rule of the base does not allow a command
	ReasonMergeConflict Reason = "merge_conflict"
	// ReasonNotMerged means that upstream did not take the merge, or that the policy of the repository cannot be followed.
	ReasonNotMerged Reason = "not_merged"
	// ReasonConflict means that somebody pushed to the branch while a command ran, and both changed the same lines.
	// The branch has the push. The ref below refs/ramus/conflicts has the command's files.
	ReasonConflict Reason = "conflict"
	// ReasonNotCommitted means that a part of a command's files could not be committed.
	ReasonNotCommitted Reason = "not_committed"
	// ReasonBranchGone means that the branch was deleted before the run or during it.
	ReasonBranchGone    Reason = "branch_deleted"
	ReasonContainerLost Reason = "container_lost"
	ReasonUnavailable   Reason = "engine_unavailable"
	ReasonDiskFull      Reason = "disk_full"
	ReasonOutOfMemory   Reason = "out_of_memory"
	ReasonInterrupted   Reason = "interrupted" // the server was stopped in the middle, and the run could not continue
	ReasonBadInput      Reason = "bad_input"
	ReasonModel         Reason = "model_failed"
	ReasonBudget        Reason = "over_budget"    // an agent failed after its run had used up its budget of models
	ReasonEnvLost       Reason = "env_lost"       // the server ended with the values of a command's environment before the command began
	ReasonSetupFailed   Reason = "setup_failed"   // a command that prepares a new container failed
	ReasonService       Reason = "service_failed" // a service next to the container did not become ready
	ReasonInternal      Reason = "internal"
)

// Hint returns a remedy for a run that failed for this reason, in a sentence. It returns "" for no reason.
func (r Reason) Hint() string {
	switch r {
	case ReasonCommandFailed:
		return "read the step's output with `ramus log`, fix the cause, then run `ramus retry`"
	case ReasonTimedOut:
		return "give the step a larger execution.timeout_ms (or --timeout), or make it faster; the changes made by then are committed"
	case ReasonCancelled:
		return "the changes made by then are committed; `ramus retry` continues from them"
	case ReasonRejected:
		return "a person, or a rule of the base, rejected it; `ramus retry` asks again"
	case ReasonMergeConflict:
		return "merge or rebase the branch by hand (`ramus checkout`), push it, then `ramus merge`"
	case ReasonNotMerged:
		return "nothing was merged; correct the problem that the error names, then `ramus merge`"
	case ReasonConflict:
		return "the branch has what was pushed; fetch the ref that the error names, merge it into the branch by hand, push, then `ramus retry`"
	case ReasonNotCommitted:
		return "the files that were not committed are among the run's artifacts, below uncommitted/. Remove or ignore them, or raise the limit that is named, then `ramus retry`"
	case ReasonBranchGone:
		return "somebody deleted the branch; push it again, or begin a new caller with `--fork` from the commit that is named"
	case ReasonContainerLost:
		return "the container ended while the command ran; look for what killed it (`ramus log`, `ramus doctor`), then `ramus retry`"
	case ReasonUnavailable:
		return "no container was available; `ramus doctor` names what the engine lacks; then run `ramus retry`"
	case ReasonDiskFull:
		return "write less, or make room on the disk, or raise limits.disk where it was the caller's own bound, then `ramus retry`; `ramus stop CALLER` removes a container with what it has not committed"
	case ReasonOutOfMemory:
		return "raise limits.memory, or use less, then `ramus retry`"
	case ReasonInterrupted:
		return "the server stopped while the command ran; `ramus retry` runs it again"
	case ReasonEnvLost:
		return "values given by --env are kept in memory alone; send the command again, with its --env"
	case ReasonService:
		return "read the end of the service's output in the error, correct its entry under services, then `ramus retry`"
	case ReasonBadInput:
		return "correct the request and send it again"
	case ReasonModel:
		return "read the model endpoint's answer in the journal, then run `ramus retry`"
	case ReasonBudget:
		return "ask for less at once, or raise models.budget, then `ramus retry`: a new run has a budget of its own"
	case ReasonSetupFailed:
		return "look into the container, which `ramus exec --no-setup CALLER -- COMMAND` uses as it is; correct `setup` in .ramus/config.yaml of the base, then `ramus retry`"
	case ReasonInternal:
		return "this is a bug of ramus; read the server's log and report it"
	}
	return ""
}

// Uncommitted reports whether the command ended, and some of its changes did not reach the branch. The run's error names the
// place where they are kept.
func (r Reason) Uncommitted() bool {
	switch r {
	case ReasonConflict, ReasonNotCommitted, ReasonBranchGone:
		return true
	}
	return false
}

// EgressHint returns how containers can reach hosts that the egress proxy refused, or "" if refused is empty. Each is HOST or
// HOST:PORT. The hint leaves out ports 80 and 443, which a rule does not name.
func EgressHint(refused []string) string {
	const most = 3 // names in one line
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
	return "containers may not reach " + strings.Join(names, ", ") +
		": list what they need under `egress` in the configuration"
}
