package main

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestHomeTab has a person choose repository, branch, agent and mentions in the Home tab. The choices outlast a kill,
// count for the person alone, and open nothing.
func TestHomeTab(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	config := filepath.Join(s.data, "ramus.yaml")
	s.sh(s.data, `sed -i 's/^  thread_starters:.*/&\n  channels: [C01]\n  repos: ["!closed"]/; s/^  edit_every:.*/&\n  repo: sample/' "$0"
		printf 'agents:\n  one: {command: [sh, -c, "echo one >agent.txt"]}\n  two: {command: [sh, -c, "echo two >agent.txt"]}\n' >>"$0"`, config)
	for _, name := range []string{"lib", "closed"} {
		s.ramus("repo", "import", name, filepath.Join(s.data, "repos", "sample.git"))
	}
	s.sh(s.data, `git -C repos/lib.git branch next main`)
	s.start()

	s.slack.OpenHome(t.Context(), "U01")
	shows := func(user, text string) {
		t.Helper()
		s.until("the Home tab shows "+text, time.Minute,
			func() bool { return strings.Contains(string(s.slack.Home(user)), text) })
	}
	shows("U01", `"home_repo"`)
	if home := string(s.slack.Home("U01")); strings.Contains(home, "closed") || !strings.Contains(home, `"lib"`) ||
		strings.Contains(home, "home_base") {
		t.Errorf("the Home tab has %s", home)
	}
	choose := func(user, action, value string) {
		t.Helper()
		if a, err := s.slack.Choose(t.Context(), user, action, value); err != nil || a.Status != 200 {
			t.Fatalf("choosing %s: %v, status %d", value, err, a.Status)
		}
	}
	choose("U01", "home_repo", "lib")
	shows("U01", "home_base")
	choose("U01", "home_base", "next")
	choose("U01", "home_agent", "two")
	choose("U01", "home_notify", "always")
	choose("U01", "home_base", "ramus/run-x")
	shows("U01", "is a branch that callers work on")
	s.kill(syscall.SIGKILL)
	s.start()

	ts := s.say("", "do something")
	s.until("the result", time.Minute, func() bool { return len(s.part(ts, "result")) == 1 })
	run := s.agentRun()
	if run.Repo != "lib" || run.Base != "next" || run.Agent.Name != "two" {
		t.Errorf("the run is %+v", run)
	}
	if result := s.part(ts, "result")[0]; !strings.Contains(result.Text, "<@U01>") ||
		!strings.Contains(string(result.Blocks), "\\u003c@U01\\u003e") {
		t.Errorf("a success for somebody who wants to be mentioned: %s", result.Text)
	}
	other := s.slack.Say("U02", "C01", "", "<@"+s.slack.BotUser+"> exec true")
	s.until("the other's result", time.Minute, func() bool { return len(s.part(other, "result")) == 1 })
	if !slices.ContainsFunc(s.runs(), func(r record.Run) bool { return r.Kind == record.KindExec && r.Repo == "sample" }) {
		t.Error("somebody else's thread went elsewhere")
	}
	if result := s.part(other, "result")[0]; strings.Contains(result.Text+string(result.Blocks), "@U02") {
		t.Errorf("a success mentions the person: %s", result.Text)
	}

	// A name in the commit's history says who chose what, and a choice can be taken back.
	if log := s.sh(s.data, `git -C repos/ramus-inbox.git log --format=%an:%s refs/ramus/people/T01/U01`); strings.Count(log, "U01:Change the preferences of U01") != 4 {
		t.Errorf("the history of the preferences:\n%s", log)
	}
	s.slack.OpenHome(t.Context(), "U01")
	choose("U01", "home_repo", "-")
	again := s.say("", "exec echo default")
	s.until("the result", time.Minute, func() bool { return len(s.part(again, "result")) == 1 })
	if !slices.ContainsFunc(s.runs(), func(r record.Run) bool { return r.Command == "echo default" && r.Repo == "sample" }) {
		t.Error("after the choice was taken back, the thread went elsewhere")
	}
}

// TestUrgency has runs fail and ask. Both mention the person in a message of their own, unless the person does not want
// that.
func TestUrgency(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	src := filepath.Join(s.data, "..", "sample")
	s.sh(src, `mkdir -p .ramus/workflows && printf 'id: ask\nnodes:\n  - id: q\n    human: {message: "Publish <!channel>?"}\n' >.ramus/workflows/ask.yaml && git add -A && git -c user.name=T -c user.email=t@example.org commit -qm ask`)
	s.ramus("repo", "refresh", "sample")
	s.start()
	mentions := func(m string) bool { return strings.Contains(m, "<@U01>") }

	failed := s.say("", "exec false")
	s.until("the failure", time.Minute, func() bool { return len(s.part(failed, "result")) == 1 })
	if m := s.part(failed, "result")[0]; !mentions(m.Text) {
		t.Errorf("a failure mentions nobody: %s", m.Text)
	}
	asks := s.say("", "run ask")
	s.until("the question", time.Minute, func() bool { return len(s.part(asks, "asks-1")) == 1 })
	if m := s.part(asks, "asks-1")[0]; !mentions(m.Text) || strings.Contains(m.Text, "<!channel>") {
		t.Errorf("the question: %s", m.Text)
	}
	s.kill(syscall.SIGKILL)
	s.start()
	s.poll("the button is not there", func() bool { return len(s.part(asks, "progress")) == 1 })
	if _, err := s.slack.Press(t.Context(), "U01", "C01", s.part(asks, "progress")[0].TS, "approve", ""); err != nil {
		t.Fatal(err)
	}
	s.until("the end", time.Minute, func() bool { return len(s.part(asks, "result")) == 1 })
	if m := s.part(asks, "result")[0]; mentions(m.Text) || len(s.part(asks, "asks-1")) != 1 {
		t.Errorf("after the answer: %s, %d questions", m.Text, len(s.part(asks, "asks-1")))
	}

	s.slack.OpenHome(t.Context(), "U01")
	s.until("the Home tab", time.Minute, func() bool { return s.slack.Home("U01") != nil })
	if _, err := s.slack.Choose(t.Context(), "U01", "home_notify", "never"); err != nil {
		t.Fatal(err)
	}
	failed = s.say("", "exec false")
	s.until("the second failure", time.Minute, func() bool { return len(s.part(failed, "result")) == 1 })
	if m := s.part(failed, "result")[0]; mentions(m.Text + string(m.Blocks)) {
		t.Errorf("a failure mentions somebody who does not want that: %s", m.Text)
	}
}
