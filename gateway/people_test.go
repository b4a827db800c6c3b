package gateway_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// TestOthersRead checks that other people can only read in the thread of an allowed person. Other commands are refused
// with a text.
func TestOthersRead(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, func(c *chat.Chat) { c.Settings.Gate.Channels, c.Settings.Repo = []string{"C02"}, "app" })
	k.repo(t, "secret")
	ts, _ := k.ask(owner, "", "exec true", 1) // it fails, because there are no containers
	began := k.runs("C01", ts)[0]
	n := 1
	for _, text := range []string{"exec cat README", "merge", "merge into main", "retry", "stop", "test", "run x",
		"repo:secret exec true", "please do it", "base:main exec true"} {
		n++
		if _, m := k.ask("U03", ts, text, n); !strings.Contains(says(m), "You may not") {
			t.Errorf("%s by a stranger: %s", text, says(m))
		}
	}
	for _, text := range []string{"status", "log", "why", "diff", "help"} {
		n++
		if _, m := k.ask("U03", ts, text, n); strings.Contains(says(m), "You may not") {
			t.Errorf("%s by a stranger: %s", text, says(m))
		}
	}
	result := k.part("C01", ts, "result")[0]
	if _, err := k.slack.Press(t.Context(), "U03", "C01", result.TS, "retry", began.Name()); err != nil {
		t.Fatal(err)
	}
	// A permitted command of the starter still works after all refused ones.
	n++
	if _, m := k.ask(owner, ts, "retry", n); strings.Contains(says(m), "You may not") {
		t.Errorf("retry by the starter: %s", says(m))
	}
	worked := 0
	for _, r := range k.runs("C01", ts) {
		if r.Kind != record.KindRequest {
			worked++
		}
	}
	if worked != 2 {
		t.Errorf("%d runs, want those of the starter\n%s", worked, k.transcript())
	}

	// Only its channel opens this thread. Its starter may use only the thread's own repository.
	open := k.slack.Say("U03", "C02", "", "<@"+k.slack.BotUser+"> repo:secret exec cat README")
	k.until("the answer", func() bool { return len(k.part("C02", open, "result")) == 1 })
	if m := k.part("C02", open, "result")[0]; !strings.Contains(says(m), "You may not") {
		t.Errorf("a repository that is not the thread's: %s", says(m))
	}
	own := k.slack.Say("U03", "C02", "", "<@"+k.slack.BotUser+"> exec cat README")
	k.until("the answer", func() bool { return len(k.part("C02", own, "result")) == 1 })
	if m := k.part("C02", own, "result")[0]; strings.Contains(says(m), "You may not") {
		t.Errorf("the thread's own repository: %s", says(m))
	}
}

// TestAnotherWorkspace checks events of other workspaces, because Slack signs all of them with the same secret.
func TestAnotherWorkspace(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		k := openTalk(t, false, func(c *chat.Chat) {
			if known {
				c.Teams = []string{"T0ANOTHER", "T0THIRD"}
			}
		})
		if !known {
			k.recorded("who ramus is", func() bool { return k.chat.Identified() })
		}
		ts := k.slack.Write(owner, "C01", "", "<@"+k.slack.BotUser+"> help")
		for _, team := range []string{k.slack.Team, "T0ANOTHER", "T0FOURTH"} {
			for _, body := range k.slack.Envelopes("C01", ts) {
				for _, a := range k.slack.Deliver(t.Context(), bytes.ReplaceAll(body, []byte(k.slack.Team), []byte(team))) {
					if a.Status != 200 {
						t.Errorf("status %d: %s", a.Status, a.Answer)
					}
				}
			}
			want := 0
			if known && team == "T0ANOTHER" || !known && team == k.slack.Team {
				want = 1
			}
			caller := chat.Session{Key: "slack:" + team + ":C01:" + ts}.Caller()
			if runs := k.Executor.OfCaller(caller); len(runs) != want {
				t.Errorf("workspace %s, configured: %t: %d runs, want %d", team, known, len(runs), want)
			}
		}
	}
}

// TestOthersDoNotPress checks that Stop and Approve need the rights of the same commands. A question may also be
// answered by the users that its workflow names.
func TestOthersDoNotPress(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, nil)
	k.slack.AddUser("U04", "fourth")
	repo, err := k.Git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	head, err := repo.Resolve(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	a := gitd.Person{Name: "A", Email: "a@example.org"}
	commit, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Parents: []gitd.Hash{head}, Author: a, Committer: a,
		When: k.Now(), Message: "workflows", Put: []gitd.File{
			{Path: ".ramus/workflows/ask.yaml", Content: []byte("id: ask\nnodes: [{id: gate, human: {message: Go on?}}]\n")},
			{Path: ".ramus/workflows/named.yaml",
				Content: []byte("id: named\nnodes: [{id: gate, human: {message: Go on?, allowed: [U04]}}]\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: commit}); err != nil {
		t.Fatal(err)
	}

	ts := k.slack.Say(owner, "C01", "", "<@"+k.slack.BotUser+"> exec "+untilGo)
	k.atWork(ts, "go.txt")
	run := k.runs("C01", ts)[0]
	if _, err := k.slack.Press(t.Context(), "U03", "C01", k.part("C01", ts, "progress")[0].TS, "stop", run.Name()); err != nil {
		t.Fatal(err)
	}
	k.until("the refusal", func() bool { return strings.Contains(k.whispered("U03"), "You may not") })
	k.touch(t, "go.txt")
	k.until("the result", func() bool { return len(k.part("C01", ts, "result")) == 1 })
	if run = k.runs("C01", ts)[0]; run.State != record.StateComplete {
		t.Errorf("the run was stopped: %s %s", run.State, run.Reason)
	}

	for workflow, people := range map[string]map[string]bool{"ask": {"U03": false, owner: true}, "named": {"U03": false, "U04": true}} {
		ts := k.slack.Say(owner, "C01", "", "<@"+k.slack.BotUser+"> run "+workflow)
		waits := func() (record.Run, bool) {
			runs := k.runs("C01", ts)
			return runs[len(runs)-1], runs[len(runs)-1].State == record.StateAwaitingReview
		}
		k.until("the question of "+workflow, func() bool {
			p := k.part("C01", ts, "progress")
			return len(p) == 1 && strings.Contains(says(p[0]), "approve")
		})
		run, _ := waits()
		press := func(user string) {
			if _, err := k.slack.Press(t.Context(), user, "C01", k.part("C01", ts, "progress")[0].TS, "approve",
				run.Name()+" "+run.Gate.Step); err != nil {
				t.Fatal(err)
			}
		}
		for _, may := range []bool{false, true} {
			for user, allowed := range people {
				if allowed == may {
					press(user)
				}
			}
			if !may {
				k.until("the refusal", func() bool { return strings.Contains(k.whispered("U03"), "answer that question") })
				if _, still := waits(); !still {
					t.Errorf("%s: a stranger's answer was taken", workflow)
				}
			}
		}
		k.until("the result of "+workflow, func() bool { return len(k.part("C01", ts, "result")) == 1 })
		if run, _ := waits(); run.State != record.StateComplete {
			t.Errorf("%s: %s %s %s", workflow, run.State, run.Reason, run.Error)
		}
		if d := k.decision(run); d.By != "slack:"+map[string]string{"ask": owner, "named": "U04"}[workflow] ||
			d.Name != map[string]string{"ask": "first", "named": "fourth"}[workflow] {
			t.Errorf("%s: the answer is %+v", workflow, d)
		}
	}
}

// TestStopAsksNoName stops a run by the button while Slack does not return names. Slack is not asked for the name of
// the person.
func TestStopAsksNoName(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, func(c *chat.Chat) { c.Settings.Gate.ThreadStarters = []string{owner, "U04"} })
	k.slack.AddUser("U04", "fourth")
	ts := k.slack.Say(owner, "C01", "", "<@"+k.slack.BotUser+"> exec "+untilGo)
	k.atWork(ts, "go.txt")
	run, before := k.runs("C01", ts)[0], k.slack.Count("users.info")
	k.slack.Fail(slacktest.Fault{Method: "users.info", Times: -1, Status: 503})
	if _, err := k.slack.Press(t.Context(), "U04", "C01", k.part("C01", ts, "progress")[0].TS, "stop",
		run.Name()); err != nil {
		t.Fatal(err)
	}
	k.recorded("the end", func() bool { return k.runs("C01", ts)[0].Ended() })
	if run = k.runs("C01", ts)[0]; run.Reason != record.ReasonCancelled || k.slack.Count("users.info") != before {
		t.Errorf("%s %s, and %d questions for names", run.State, run.Reason, k.slack.Count("users.info")-before)
	}
}

// decision returns the last answer to a question of a run.
func (k *talk) decision(run record.Run) (d record.Decision) {
	for e, err := range k.Executor.Events(k.t.Context(), run.Name(), 0, false) {
		if err != nil {
			k.t.Fatal(err)
		}
		if e.Type == record.EventDecision {
			if err := json.Unmarshal(e.Data, &d); err != nil {
				k.t.Fatal(err)
			}
		}
	}
	return d
}

// whispered returns all messages that only one user could see.
func (k *talk) whispered(user string) string {
	var b strings.Builder
	for _, r := range k.slack.Requests() {
		if r.Method == "chat.postEphemeral" && r.Form.Get("user") == user {
			b.WriteString(r.Form.Get("text") + "\n")
		}
	}
	return b.String()
}
