package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/internal/remains"
)

// pairCommand changes both repositories of a caller.
const pairCommand = "echo x >>own; echo x >>$RAMUS_REPOS/lib/theirs"

// dieInPair has the server die at a moment of a command in two repositories. at is "change N" for the moment after the
// Nth change of branches, or "packet N" for the moment before the Nth packet to the container after the command was sent.
func dieInPair(git *gitd.Server, x *executor.Executor, at string) error {
	kind, number, _ := strings.Cut(at, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return err
	}
	x.With = map[string][]string{"demo": {"lib"}}
	if kind == "packet" {
		x.Fleet.Engine = &mortal{Engine: x.Fleet.Engine.(*sandbox.Engine), sends: n - 1}
		return nil
	}
	var changes atomic.Int64
	git.Changed = func(string) {
		if changes.Add(1) == n {
			die()
		}
	}
	return nil
}

// crashPair runs a command in two repositories, in a server that dies meanwhile.
func crashPair(ctx context.Context, x *executor.Executor, at string) error {
	r := record.Request{Key: "job", Repo: "demo", With: []string{"lib"}, Command: &record.Command{Shell: pairCommand}}
	if strings.HasPrefix(at, "packet ") {
		r.Command.Env = []string{"LARGE=" + strings.Repeat("x", commandSize)}
	}
	var err error
	if r.Caller, err = record.ParseCaller("run:pair-" + strings.ReplaceAll(at, " ", "-")); err != nil {
		return err
	}
	run, err := x.Submit(ctx, r)
	if err != nil {
		return err
	}
	if run, err = crashWait(ctx, x, run); err != nil {
		return err
	}
	fmt.Println("ended", run.State)
	return x.Close(ctx, false)
}

// TestCrashInPair kills the server, and in half of the cases the container with it, at each step of a claim and of a
// commit in two repositories. Nothing that a record shows is lost, no repository has a commit of a run that the record
// does not name, and no command runs twice.
func TestCrashInPair(t *testing.T) {
	t.Parallel()
	packets := []int{6, 19} // before the commits, and when the run has ended
	full := os.Getenv("RAMUS_TEST") == "full"
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost=%v", lost), func(t *testing.T) {
			w, _ := newPairWorld(t)
			first := 1
			if lost {
				first = 3 // after the claim, which has no container
			}
			for n := first; crashPairAt(t, w, fmt.Sprint("change ", n), lost); n++ {
				if n > 20 {
					t.Fatal("the branches change without end")
				}
			}
			for _, n := range packets {
				crashPairAt(t, w, fmt.Sprint("packet ", n), lost)
			}
			for n := 1; full && crashPairAt(t, w, fmt.Sprint("packet 0", n), lost); n++ {
			}
		})
	}
}

// crashPairAt reports whether the server lived long enough to be killed at a moment.
func crashPairAt(t *testing.T, w *world, at string, lost bool) (killed bool) {
	w.stop(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "RAMUS_TEST_CRASH="+w.data, "RAMUS_TEST_RUNNER="+runnerBinary, "RAMUS_TEST_PAIR="+at)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	killed = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if !killed && err != nil {
		t.Fatalf("%s: %v\n%s", at, err, out)
	}
	if lost {
		remains.KillContainers(w.data)
	}
	w.start()
	name := "pair-" + strings.ReplaceAll(at, " ", "-")
	r := pairRequest(t, name, pairCommand)
	r.Key = "job"
	run, err := w.x.Submit(t.Context(), r)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	run = w.ended(run.Name())
	t.Logf("%s, killed %v: %s %s", at, killed, run.State, run.Reason)
	if !lost && run.State != record.StateComplete {
		t.Errorf("%s: the run ended as %s %s: %s\n%s", at, run.State, run.Reason, run.Error, w.journal(run.Name()))
	}
	w.checkPair(run)
	res, err := w.x.Exec(t.Context(), pairRequest(t, name, "true"), nil, nil)
	if err != nil || res.ExitCode != 0 || res.Commit != "" || len(res.With) != 1 || res.With[0].Commit != "" {
		t.Errorf("%s: the next command: %+v, %v", at, res, err)
	}
	return killed
}

// checkPair compares the record of a run of pairCommand with both repositories.
func (w *world) checkPair(r record.Run) {
	w.t.Helper()
	made := func(dir string) []string {
		return strings.Fields(gittest.Run(w.t, dir, "log", "--format=%H", "--grep=^Ramus-Run: "+r.ID+"$", "main.."+r.Branch))
	}
	demo, err := w.git.Repo("demo")
	if err != nil {
		w.t.Fatal(err)
	}
	lib, err := w.git.Repo("lib")
	if err != nil {
		w.t.Fatal(err)
	}
	here, there := made(demo.Dir()), made(lib.Dir())
	a, _ := r.Addition("lib")
	tip, err := lib.Resolve(w.t.Context(), "refs/heads/"+r.Branch)
	if err != nil || a.Head != tip {
		w.t.Errorf("%s: the record has %s of lib, the branch is at %s, %v", r.Name(), a.Head, tip, err)
	}
	var named []string
	for _, e := range w.events(r.Name(), record.EventStepFinished) {
		for _, m := range e.With {
			if m.Commit != "" {
				named = append(named, string(m.Commit))
			}
		}
	}
	if len(here) > 1 || len(there) > 1 || len(here) > len(there) || strings.Join(named, " ") != strings.Join(there, " ") {
		w.t.Errorf("%s: demo has %v, lib has %v, the journal names %v", r.Name(), here, there, named)
	}
	if r.State != record.StateComplete {
		return
	}
	if got := gittest.Run(w.t, demo.Dir(), "show", r.Branch+":own"); got != "x" {
		w.t.Errorf("%s: demo has %q", r.Name(), got)
	}
	if got := gittest.Run(w.t, lib.Dir(), "show", r.Branch+":theirs"); got != "x" {
		w.t.Errorf("%s: lib has %q", r.Name(), got)
	}
}
