package workspace

import (
	"testing"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
)

// transitions has a row for each state and a column for each state that may follow, in the order of States.
var transitions = map[State]string{
	//          P C R r s S E
	Pending:  ". x . . . . .",
	Creating: ". . x x . . x",
	Running:  ". . . . x . x",
	Recovery: ". . . . x . x",
	Stopping: ". . . . . x .",
	Stopped:  ". x . . . . .",
	Error:    ". x . . . . .",
}

func TestTransitions(t *testing.T) {
	for _, from := range States() {
		for i, to := range States() {
			if want := transitions[from][2*i] == 'x'; from.Reaches(to) != want {
				t.Errorf("%s to %s: %t, want %t", from, to, from.Reaches(to), want)
			}
		}
		deletes := from == Stopped || from == Error
		if from.MayDelete() != deletes || from.MayRestart() != deletes {
			t.Errorf("%s: restart %t, delete %t", from, from.MayRestart(), from.MayDelete())
		}
		if serves := from == Running || from == Recovery; from.Serves() != serves || from.MayStop() != serves {
			t.Errorf("%s: serves %t, stop %t", from, from.Serves(), from.MayStop())
		}
	}
}

func TestStateOf(t *testing.T) {
	host := func(state string) *containers.HostStatus { return &containers.HostStatus{State: state} }
	ended := record.Run{State: record.StateComplete}
	failed := func(reason record.Reason) record.Run { return record.Run{State: record.StateFailed, Reason: reason} }
	began := record.Run{State: record.StateRunning}
	began.StartedAt = began.StartedAt.AddDate(1, 0, 0)
	for _, x := range []struct {
		name     string
		host     *containers.HostStatus
		last     record.Run
		recovers bool
		want     State
	}{
		{"claimed", nil, record.Run{State: record.StateSubmitted}, false, Pending},
		{"in line", host("queued"), record.Run{State: record.StateRunning}, false, Pending},
		{"at work without a container yet", nil, began, false, Creating},
		{"starting", host("starting"), began, false, Creating},
		{"busy", host("busy"), began, false, Running},
		{"idle", host("idle"), ended, false, Running},
		{"taken over", host("orphan"), ended, false, Running},
		{"image failed", host("idle"), ended, true, Recovery},
		{"setup failed", host("idle"), failed(record.ReasonSetupFailed), false, Recovery},
		{"without setup", host("busy"), record.Run{Exec: &record.Command{NoSetup: true}}, false, Recovery},
		{"stopping", host("stopping"), ended, false, Stopping},
		{"asleep", nil, ended, false, Stopped},
		{"asks", nil, record.Run{State: record.StateAwaitingReview}, false, Stopped},
		{"stopped by a person", nil, failed(record.ReasonCancelled), false, Stopped},
		{"a command failed", nil, failed(record.ReasonCommandFailed), false, Stopped},
		{"lost", nil, failed(record.ReasonContainerLost), false, Error},
		{"no engine", nil, failed(record.ReasonUnavailable), false, Error},
	} {
		if got := StateOf(executor.CallerStatus{Container: x.host, Last: x.last}, x.recovers); got != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

func FuzzCallerOf(f *testing.F) {
	for _, id := range []string{"run-fancy-mallard", "conv-x", "run-", "-", "run", "run-A", "conv-a--b"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if c, ok := CallerOf(id); ok && c.Slug() != id {
			t.Errorf("%q is the id of %s", id, c)
		}
	})
}
