package workspace

import (
	"slices"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
)

// State is the state of a workspace.
type State string

// The states of workspaces.
const (
	Pending  State = "pending"  // it waits for its turn, or for a container
	Creating State = "creating" // its container starts
	Running  State = "running"
	Recovery State = "recovery" // its container is there, and the image or the setup of the repository failed
	Stopping State = "stopping"
	Stopped  State = "stopped" // it has no container; the branch has its files
	Error    State = "error"   // its container failed or was lost
)

// States returns all states, in the order of a workspace's life.
func States() []State {
	return []State{Pending, Creating, Running, Recovery, Stopping, Stopped, Error}
}

// next has the states that follow each state.
var next = map[State][]State{
	Pending:  {Creating},
	Creating: {Running, Recovery, Error},
	Running:  {Stopping, Error},
	Recovery: {Stopping, Error},
	Stopping: {Stopped},
	Stopped:  {Creating},
	Error:    {Creating},
}

// Next returns the states that a workspace in state s can enter.
func (s State) Next() []State { return slices.Clone(next[s]) }

// Reaches reports whether a workspace can go from s to another state at once.
func (s State) Reaches(to State) bool { return slices.Contains(next[s], to) }

// Serves reports whether terminals and previews of a workspace answer.
func (s State) Serves() bool { return s == Running || s == Recovery }

// MayStop reports whether a person can stop a workspace. The run of one that still begins is stopped instead.
func (s State) MayStop() bool { return s.Reaches(Stopping) }

// MayRestart reports whether a person can start a workspace again.
func (s State) MayRestart() bool { return s.Reaches(Creating) && s != Pending }

// MayDelete reports whether a person can delete a workspace.
func (s State) MayDelete() bool { return s == Stopped || s == Error }

// The states of containers, as containers.HostStatus has them.
const (
	hostStarting = "starting"
	hostQueued   = "queued"
	hostStopping = "stopping"
)

// lostBy has the reasons of runs that leave a workspace without a container by a failure.
var lostBy = []record.Reason{record.ReasonContainerLost, record.ReasonUnavailable, record.ReasonSetupFailed,
	record.ReasonService,
	record.ReasonDiskFull, record.ReasonOutOfMemory, record.ReasonInternal}

// StateOf returns the state of a caller as a workspace. recovers is set if its container is one of the usual image in place of the
// repository's own.
func StateOf(st executor.CallerStatus, recovers bool) State {
	last := st.Last
	if st.Container != nil {
		switch st.Container.State {
		case hostQueued:
			return Pending
		case hostStarting:
			return Creating
		case hostStopping:
			return Stopping
		}
		if recovers || last.NoSetup() || last.Reason == record.ReasonSetupFailed {
			return Recovery
		}
		return Running
	}
	works := !last.Ended() && !last.Passive() && last.State != record.StateAwaitingReview
	switch {
	case works && last.StartedAt.IsZero():
		return Pending
	case works:
		return Creating
	case last.State == record.StateFailed && slices.Contains(lostBy, last.Reason):
		return Error
	}
	return Stopped
}
