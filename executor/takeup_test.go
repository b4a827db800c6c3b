package executor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/remains"
)

// TestCommittedWithoutServer ends the server and the container after a command was committed, and before the
// server noted it. The next server finds the commit, on the branch or at the ref where it waits to be
// merged. It reports the work that is missing.
func TestCommittedWithoutServer(t *testing.T) {
	t.Parallel()
	const work = `work=$(git -c user.name=a -c user.email=a@example.com commit-tree -p $old "$(printf '100644 blob %s\tmade\n' $(echo made | git hash-object -w --stdin) | (git ls-tree $old; cat) | git mktree)" -m "$message")`
	const push = `new=$(git -c user.name=b -c user.email=b@example.com commit-tree -p $old "$(printf '100644 blob %s\tNAME\n' $(echo person | git hash-object -w --stdin) | (git ls-tree $old; cat) | git mktree)" -m push); git update-ref $branch $new`
	cases := map[string]struct {
		after    string // content of the repository
		trailers string
		reason   record.Reason
		made     string // on the branch at the end
	}{
		"branch": {after: work + "; git update-ref $branch $work", made: "made"},
		"less": {after: work + "; git update-ref $branch $work", trailers: "\nRamus-Uncommitted: true",
			reason: record.ReasonNotCommitted, made: "made"},
		"staged": {after: work + "; git update-ref $stage $work; " + strings.Replace(push, "NAME", "other", 1),
			made: "made"},
		"conflict": {after: work + "; git update-ref $stage $work; " + strings.Replace(push, "NAME", "made", 1),
			reason: record.ReasonConflict, made: "person"},
		"kept": {after: work + "; git update-ref refs/ramus/conflicts/run-kept/abc $work; " + strings.Replace(push,
			"NAME", "made", 1), reason: record.ReasonConflict, made: "person"},
		"deleted": {after: work + "; git update-ref $stage $work; git update-ref -d $branch",
			reason: record.ReasonBranchGone},
	}
	w := newWorld(t, nil)
	runs := map[string]record.Run{}
	for name := range cases {
		r, err := w.x.Submit(t.Context(), record.Request{Repo: "demo", Caller: caller(t, "run:"+name),
			Command: &record.Command{Shell: "echo begun; sleep 98765"}})
		if err != nil {
			t.Fatal(err)
		}
		w.until(r.Name(), printed("begun"))
		runs[name] = r
	}
	w.stop(true)
	remains.KillContainers(w.data)
	for name, c := range cases {
		w.sh(w.data+"/repos/demo.git", "branch=refs/heads/ramus/run-"+name+" stage=refs/ramus/stage/run-"+name+
			"/abc old=$(git rev-parse $(git rev-parse ramus/run-"+name+"))\n"+
			"message='exec\n\nRamus-Caller: run:"+name+"\nRamus-Run: "+runs[name].ID+
			"\nRamus-Step: exec\nRamus-Exit: 0"+c.trailers+"'\n"+c.after)
	}
	w.start()
	for name, c := range cases {
		r := w.ended(runs[name].Name())
		state := record.StateComplete
		if c.reason != "" {
			state = record.StateFailed
		}
		if r.State != state || r.Reason != c.reason {
			t.Errorf("%s: %s %s: %s\n%s", name, r.State, r.Reason, r.Error, w.journal(r.Name()))
		}
		if c.made != "" {
			if got := w.inRepo("show", "refs/heads/ramus/run-"+name+":made"); got != c.made {
				t.Errorf("%s: the branch has %q", name, got)
			}
		}
		if got := w.inRepo("for-each-ref", "refs/ramus/stage/run-"+name); got != "" {
			t.Errorf("%s: staged still: %s", name, got)
		}
		kept := w.inRepo("for-each-ref", "refs/ramus/conflicts/run-"+name) != ""
		if want := c.reason == record.ReasonConflict || c.reason == record.ReasonBranchGone; kept != want {
			t.Errorf("%s: kept at a conflict ref: %v", name, kept)
		}
	}
}

// TestGroupAfterRestart kills the server while a command of a group runs in its container and others of the group wait.
// After the restart they still wait for it.
func TestGroupAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	submit := func(line string) record.Run {
		t.Helper()
		r, err := w.x.Submit(t.Context(), record.Request{Repo: "demo", Group: "one", Command: &record.Command{Shell: line}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := submit("echo ready; until [ -e go ]; do sleep 0.05; done")
	w.until(first.Name(), printed("ready"))
	var names []string
	for range 4 {
		names = append(names, submit("true").Name())
	}
	w.stop(true)
	w.start()
	w.release(first, "go")
	w.ended(first.Name())
	end := finished(t, w, first.Name(), record.EventStepFinished)
	for _, name := range names {
		w.ended(name)
		if begin := finished(t, w, name, record.EventStepStarted); begin.Before(end) {
			t.Errorf("%s began at %v, before %s ended at %v", name, begin, first.Name(), end)
		}
	}
}

// finished returns the time of the only event of a kind.
func finished(t *testing.T, w *world, run, kind string) time.Time {
	t.Helper()
	list := w.events(run, kind)
	if len(list) != 1 {
		t.Fatalf("%s has %d events %s\n%s", run, len(list), kind, w.journal(run))
	}
	return list[0].Time
}
