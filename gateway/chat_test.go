package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/fallback"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/goroutines"
	"github.com/ramus-dev/ramus/internal/standin/fallbacktest"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// talk is rooms with a chat and a stand-in of Slack.
type talk struct {
	*rooms
	chat  *chat.Chat
	slack *slacktest.Server
	t     *testing.T
}

// owner is the user whose threads the gate of a talk lets through.
const owner = "U01"

func openTalk(t *testing.T, withContainers bool, change func(*chat.Chat), workspace ...func(*slacktest.Server)) *talk {
	t.Helper()
	goroutines.Watch(t) // before the stand-in, which ends later
	k := &talk{slack: slacktest.New(t, workspace...), t: t}
	k.rooms = open(t, withContainers, func(s *gateway.Server) {
		k.chat = &chat.Chat{
			Slack:         &slack.Client{URL: k.slack.API(), Token: k.slack.Token},
			SigningSecret: k.slack.SigningSecret, Executor: s.Executor, Git: s.Git,
			Settings:  chat.Settings{Gate: gate.Gate{Enabled: true, ThreadStarters: []string{owner}}},
			EditEvery: 20 * time.Millisecond,
		}
		if change != nil {
			change(k.chat)
		}
		s.Chat, s.Now = k.chat, k.chat.Now
	})
	k.slack.SetRequestURLs(k.web.URL+"/slack/events", k.web.URL+"/slack/commands", k.web.URL+"/slack/interactions")
	k.repo(t, "app")
	if err := k.chat.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.chat.Close(); err != nil {
			t.Error(err)
		}
		k.slack.Close()
	})
	return k
}

// until waits for a condition on the workspace.
func (k *talk) until(what string, done func() bool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
	defer cancel()
	if err := k.slack.Until(ctx, done); err != nil {
		k.t.Fatalf("%s: %v\n%s", what, err, k.transcript())
	}
}

// recorded waits for a condition on the runs. It polls, because the workspace does not report changes of runs.
func (k *talk) recorded(what string, done func() bool) {
	k.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
	defer cancel()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			k.t.Fatalf("%s: %v\n%s", what, ctx.Err(), k.transcript())
		}
	}
}

func (k *talk) transcript() string {
	var b strings.Builder
	for _, channel := range []string{"C01", "C02", "D01"} {
		for _, m := range k.slack.Messages(channel) {
			fmt.Fprintf(&b, "%s %s %s%s: %s %s\n", channel, m.TS, m.User, m.BotID, m.Text, m.Blocks)
		}
	}
	runs, err := k.Executor.Runs(context.Background(), record.Filter{})
	for _, r := range runs {
		fmt.Fprintf(&b, "%s on %s: %s %s %s\n", r.Name(), r.Repo, r.State, r.Reason, r.Error)
	}
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

// part returns the messages of ramus in a thread that have the given part.
func (k *talk) part(channel, thread, part string) []slacktest.Message {
	var found []slacktest.Message
	for _, m := range k.slack.Own(channel, thread) {
		var mark slack.Mark
		if m.Metadata != nil && json.Unmarshal(m.Metadata.Payload, &mark) == nil && mark.Part == part {
			found = append(found, m)
		}
	}
	return found
}

// ask mentions ramus and waits for the nth result of the thread, which is the answer.
func (k *talk) ask(user, thread, text string, n int) (ts string, result slacktest.Message) {
	k.t.Helper()
	ts = k.slack.Say(user, "C01", thread, "<@"+k.slack.BotUser+"> "+text)
	if thread == "" {
		thread = ts
	}
	k.until("the answer to "+text, func() bool { return len(k.part("C01", thread, "result")) >= n })
	return ts, k.part("C01", thread, "result")[n-1]
}

// untilGo is a command that waits for the file go.txt. A run that ends before its progress is first shown has no
// progress message.
const untilGo = "until test -e go.txt; do sleep 0.05; done; rm go.txt"

// atWork waits until the progress message of a thread shows a command. Its container exists then.
func (k *talk) atWork(thread, command string) {
	k.t.Helper()
	k.until(command+" at work", func() bool {
		p := k.part("C01", thread, "progress")
		return len(p) == 1 && strings.Contains(says(p[0]), command)
	})
}

func says(m slacktest.Message) string { return m.Text + " " + string(m.Blocks) }

func (k *talk) runs(channel, thread string) []record.Run {
	return k.Executor.OfCaller(chat.Session{Key: "slack:" + k.slack.Team + ":" + channel + ":" + thread}.Caller())
}

func TestSessionCaller(t *testing.T) {
	t.Parallel()
	a, b := chat.Session{Key: "slack:T1:C1:1700000000.000100"}, chat.Session{Key: "slack:T1:C1:1700000000.000200"}
	if again := (chat.Session{Key: a.Key}); a.Caller() != again.Caller() || a.Caller() == b.Caller() || a.Caller().Kind() != "conv" {
		t.Errorf("%v, %v", a.Caller(), b.Caller())
	}
}

// TestSlackRetryIdempotency delivers one mention many times concurrently, by both of its envelopes.
func TestSlackRetryIdempotency(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, nil)
	ts := k.slack.Write(owner, "C01", "", "<@"+k.slack.BotUser+"> help")
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for i := range 10 {
		wg.Go(func() {
			for _, body := range k.slack.Envelopes("C01", ts)[i%2 : i%2+1] {
				for _, a := range k.slack.Deliver(t.Context(), body) {
					var c chat.Claimed
					if err := json.Unmarshal(a.Answer, &c); a.Status != 200 || err != nil {
						t.Errorf("status %d, %s, %v", a.Status, a.Answer, a.Err)
					}
					mu.Lock()
					answers[c.Run]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(answers) != 1 {
		t.Errorf("ten deliveries were answered with the runs %v", answers)
	}
	k.until("the answer", func() bool { return len(k.part("C01", ts, "result")) > 0 })
	for _, body := range k.slack.Envelopes("C01", ts) { // repeated after the end of the run
		k.slack.Deliver(t.Context(), body)
	}
	if runs := k.runs("C01", ts); len(runs) != 1 || len(k.part("C01", ts, "result")) != 1 {
		t.Errorf("%d runs, %d answers", len(runs), len(k.part("C01", ts, "result")))
	}
}

func TestMentionRunsACommand(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, nil)
	ts := k.slack.Say(owner, "C01", "", "<@"+k.slack.BotUser+"> exec echo hello > greeting.txt; "+untilGo)
	k.atWork(ts, "greeting.txt")
	k.touch(t, "go.txt")
	k.until("the result", func() bool { return len(k.part("C01", ts, "result")) == 1 })
	progress := k.part("C01", ts, "progress")
	if len(progress) != 1 || !strings.Contains(says(progress[0]), "thread-starter-allowlist") {
		t.Errorf("the progress messages: %+v", progress)
	}
	result := k.part("C01", ts, "result")[0]
	if !strings.Contains(says(result), "greeting.txt") {
		t.Errorf("the result: %s", says(result))
	}
	k.until("the reactions", func() bool {
		m := k.slack.Thread("C01", ts)[0]
		return len(m.Reactions["white_check_mark"]) == 1 && len(m.Reactions["eyes"]) == 0
	})
	runs := k.runs("C01", ts)
	if len(runs) != 1 || runs[0].State != record.StateComplete || runs[0].ID != "C01-"+ts {
		t.Errorf("runs: %+v", runs)
	}
	// A second mention continues on the same branch.
	_, result = k.ask(owner, ts, "exec cat greeting.txt && rm greeting.txt && exit 3", 2)
	if !strings.Contains(says(result), "retry") {
		t.Errorf("the result of a failure: %s", says(result))
	}
	runs = k.runs("C01", ts)
	if len(runs) != 2 || runs[0].Branch != runs[1].Branch || runs[1].Exit == nil || *runs[1].Exit != 3 {
		t.Errorf("runs: %+v", runs)
	}
	for i, x := range []struct{ say, want string }{
		{"status", "2 runs"}, {"log", "exit 3"}, {"why", "What to do"}, {"diff", "does not differ"},
		{"stop", "Nothing is at work"},
		{"merge", "is in main now"}, {"exec", "exec"}, {"repo:other test", "new thread"},
		{"please fix it", "No agent"},
	} {
		if _, m := k.ask(owner, ts, x.say, 3+i); !strings.Contains(says(m), x.want) {
			t.Errorf("%s: %s", x.say, says(m))
		}
	}
	// The button has the effect of the word, once.
	if _, err := k.slack.Press(t.Context(), owner, "C01", k.part("C01", ts, "result")[1].TS, "retry", runs[1].Name()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.slack.Press(t.Context(), owner, "C01", k.part("C01", ts, "result")[1].TS, "retry", runs[1].Name()); err != nil {
		t.Fatal(err)
	}
	k.until("the retry", func() bool { return len(k.part("C01", ts, "result")) == 12 })
	retried := 0
	for _, r := range k.runs("C01", ts) {
		if r.Parent == runs[1].Name() {
			retried++
		}
	}
	if retried != 1 {
		t.Errorf("%d retries", retried)
	}
}

func TestAsksWhichRepositoryIsMeant(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, nil)
	k.repo(t, "other")
	ts, question := k.ask(owner, "", "exec cat README", 1)
	if !strings.Contains(says(question), "other") || !strings.Contains(says(question), "app") {
		t.Fatalf("the question: %s", says(question))
	}
	runs := k.runs("C01", ts)
	if len(runs) != 1 {
		t.Fatalf("runs: %+v", runs)
	}
	if _, err := k.slack.Press(t.Context(), owner, "C01", question.TS, "repo", runs[0].Name()+" other"); err != nil {
		t.Fatal(err)
	}
	k.until("the result", func() bool { return len(k.part("C01", ts, "result")) == 2 })
	runs = k.runs("C01", ts)
	if len(runs) != 2 || runs[1].Repo != "other" || runs[1].State != record.StateComplete {
		t.Errorf("runs: %+v", runs)
	}
	// The thread stays on its branch.
	k.ask(owner, ts, "exec true", 3)
	if runs = k.runs("C01", ts); len(runs) != 3 || runs[2].Repo != "other" {
		t.Errorf("runs: %+v", runs)
	}
}

func TestTooFastForSlackIsWaitedOut(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, nil)
	k.slack.Fail(
		slacktest.Fault{Method: "conversations.replies", RetryAfter: time.Second},
		slacktest.Fault{Method: "chat.postMessage", Lose: true},
		slacktest.Fault{Method: "chat.postMessage", Status: 503},
		slacktest.Fault{Method: "chat.postMessage", Lose: true},
	)
	ts := k.slack.Say(owner, "C01", "", "<@"+k.slack.BotUser+"> exec "+untilGo)
	k.atWork(ts, "go.txt")
	k.touch(t, "go.txt")
	k.until("the result", func() bool { return len(k.part("C01", ts, "result")) > 0 })
	if p, r := k.part("C01", ts, "progress"), k.part("C01", ts, "result"); len(p) != 1 || len(r) != 1 {
		t.Errorf("%d progress messages, %d results", len(p), len(r))
	}
}

// TestWithoutSignature checks that deliveries without a valid signature are refused.
func TestWithoutSignature(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, nil)
	ts := k.slack.Write(owner, "C01", "", "<@"+k.slack.BotUser+"> help")
	k.slack.SigningSecret = "another-secret"
	for _, body := range k.slack.Envelopes("C01", ts) {
		for _, a := range k.slack.Deliver(t.Context(), body) {
			if a.Status != 401 {
				t.Errorf("status %d: %s", a.Status, a.Answer)
			}
		}
	}
	if runs := k.runs("C01", ts); len(runs) != 0 {
		t.Errorf("runs: %+v", runs)
	}
}

// TestThreadOutsideTheGate compares the requests of a thread that the gate does not let through with those of a thread
// while ramus's own runner is switched off. They must be the same.
func TestThreadOutsideTheGate(t *testing.T) {
	t.Parallel()
	record := func(gate gate.Gate) (lines []string) {
		t.Run("", func(t *testing.T) {
			now := func() time.Time { return time.Unix(1_700_000_000, 0) }
			runner, web := fallbacktest.New()
			t.Cleanup(web.Close)
			runner.Now, runner.Secret = now, "a-shared-secret"
			k := openTalk(t, false, func(c *chat.Chat) {
				c.Now, c.Settings.Gate = now, gate
				c.Slack.Now = now
				c.Fallback = &fallback.Client{URL: web.URL, Secret: runner.Secret, Now: now}
			}, func(s *slacktest.Server) { s.Now = now })
			// Without the identity, the chat would send one request more.
			k.recorded("who ramus is", func() bool { return k.chat.Identified() })
			ts := k.slack.Write("U02", "C01", "", "the build is red & <@U03> is away")
			k.slack.Write("U03", "C01", ts, "```make``` fails")
			mention := k.slack.Say(owner, "C01", ts, "<@"+k.slack.BotUser+"> !!! please fix it")
			k.until("the answer", func() bool { return len(k.part("C01", ts, "result")) == 1 })
			k.until("the reactions", func() bool {
				for _, m := range k.slack.Thread("C01", ts) {
					if m.TS == mention && len(m.Reactions["white_check_mark"]) == 1 && len(m.Reactions["eyes"]) == 0 {
						return true
					}
				}
				return false
			})
			// The effect of a request is visible before the request is recorded.
			k.until("the last request", func() bool {
				all := k.slack.Requests()
				return all[len(all)-1].Method == "reactions.remove"
			})
			for _, r := range k.slack.Requests() {
				lines = append(lines, fmt.Sprintf("%s %s %s", r.Method, r.Header.Get("Content-Type"), r.Body))
			}
			for _, r := range runner.Requests() {
				lines = append(lines, fmt.Sprintf("%s %v %s", r.Method, r.Header, r.Body))
			}
			if runs := k.runs("C01", ts); len(runs) != 1 || runs[0].Kind != record.KindRequest {
				t.Errorf("runs: %+v", runs)
			}
		})
		return lines
	}
	off := record(gate.Gate{ThreadStarters: []string{"U02"}, Requesters: []string{owner}})
	out := record(gate.Gate{Enabled: true, ThreadStarters: []string{"U09"}, Requesters: []string{"U09"}, Percentage: 0})
	if len(off) < 5 || strings.Join(off, "\n") != strings.Join(out, "\n") {
		t.Errorf("switched off:\n%s\n\nnot let through:\n%s", strings.Join(off, "\n"), strings.Join(out, "\n"))
	}
}

// TestNobodyToHandOverTo mentions ramus in a thread outside the gate without a fallback runner.
func TestNobodyToHandOverTo(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, nil)
	ts := k.slack.Say("U02", "C01", "", "<@"+k.slack.BotUser+"> please fix it")
	k.recorded("the record", func() bool {
		runs := k.runs("C01", ts)
		return len(runs) == 1 && runs[0].Told != nil
	})
	if runs := k.runs("C01", ts); len(runs) != 1 || runs[0].State != record.StateComplete {
		t.Errorf("runs: %+v", runs)
	}
	if m := k.slack.Thread("C01", ts); len(m) != 1 || len(m[0].Reactions) != 0 {
		t.Errorf("the thread: %+v", m)
	}
}

// TestGateAtWork runs the smoke test of the gate with three threads. One is not allowed, one is, and one is by its
// prefix.
func TestGateAtWork(t *testing.T) {
	t.Parallel()
	runner, web := fallbacktest.New()
	t.Cleanup(web.Close)
	runner.Secret = "a-shared-secret"
	runner.Answer = func(fallback.Packet) string { return "done elsewhere" }
	k := openTalk(t, true, func(c *chat.Chat) {
		c.Settings.Gate.Requesters = []string{"U02"}
		c.Fallback = &fallback.Client{URL: web.URL, Secret: runner.Secret}
	})
	for _, x := range []struct{ user, text, runner, reason, want string }{
		{"U03", "exec echo one", "fallback", "not-allowlisted", "done elsewhere"},
		{owner, "exec echo two; " + untilGo, "container", "thread-starter-allowlist", "echo two"},
		{"U02", "!!! exec echo three; " + untilGo, "container", "explicit-prefix", "echo three"},
		{"U03", "!!! exec echo four", "fallback", "not-allowlisted", "done elsewhere"},
	} {
		ts := k.slack.Say(x.user, "C01", "", "<@"+k.slack.BotUser+"> "+x.text)
		if x.runner == "container" {
			k.atWork(ts, x.want)
			k.touch(t, "go.txt")
		}
		k.until("the answer to "+x.text, func() bool { return len(k.part("C01", ts, "result")) == 1 })
		result := k.part("C01", ts, "result")[0]
		if !strings.Contains(says(result), x.want) || strings.Contains(says(result), "!!!") {
			t.Errorf("%s: %s", x.text, says(result))
		}
		run := k.runs("C01", ts)[0]
		var policies []string
		for e, err := range k.Executor.Events(t.Context(), run.Name(), 0, false) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == record.EventPolicy {
				policies = append(policies, e.Message+" "+e.Reason)
			}
		}
		if len(policies) != 1 || policies[0] != x.runner+" "+x.reason {
			t.Errorf("%s: the journal says %v", x.text, policies)
		}
		if x.runner == "container" {
			if p := k.part("C01", ts, "progress"); len(p) != 1 || !strings.Contains(says(p[0]), x.reason) {
				t.Errorf("%s: the first message: %+v", x.text, p)
			}
		}
	}
}

// TestResumeStartBranching gives plain words to an agent. A second mention reaches the agent at its next turn while it
// works, and starts a new run on the same branch after it has ended. Shared files are available, and the memory of the
// agent is kept.
func TestResumeStartBranching(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "examples", "agents", "scripted.sh"))
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"sh", "-c", string(script), "scripted"}
	k := openTalk(t, true, func(c *chat.Chat) {
		c.Executor.Options.Agents = map[string]agent.Agent{"scripted": {Name: "scripted", Command: command,
			Resume: append(command[:len(command):len(command)], "--resume"),
			State:  []string{".scripted"}, Timeout: time.Minute, Output: 1 << 20}}
	})
	mention := "<@" + k.slack.BotUser + "> "
	ts := k.slack.Say(owner, "C01", "", mention+"remember the blue one\nfiles\nwait go.txt\nwrite first.txt one",
		slacktest.File{ID: "F1", Name: "plan.md", MIME: "text/markdown", Data: []byte("# the plan\n")})
	k.atWork(ts, "remember the blue one")
	k.slack.Say(owner, "C01", ts, mention+"recall\nwrite second.txt two")
	k.until("the words handed on", func() bool { return len(k.part("C01", ts, "result")) == 1 })
	if m := k.part("C01", ts, "result")[0]; !strings.Contains(says(m), "next turn") {
		t.Errorf("the answer: %s", says(m))
	}
	// The file that the agent waits for is made outside the container.
	runs := k.runs("C01", ts)
	if len(runs) != 2 || runs[0].Kind != record.KindAgent || runs[1].Kind != record.KindRequest {
		t.Fatalf("runs: %+v", runs)
	}
	k.touch(t, "go.txt")
	k.until("the agent's end", func() bool { return len(k.part("C01", ts, "result")) == 2 })
	result := says(k.part("C01", ts, "result")[1])
	for _, want := range []string{"first.txt", "second.txt"} {
		if !strings.Contains(result, want) {
			t.Errorf("the result lacks %s: %s", want, result)
		}
	}
	journal := k.journal(runs[0].Name())
	if !strings.Contains(journal, "plan.md") || !strings.Contains(journal, "turn-2") || !strings.Contains(journal, "the blue one") {
		t.Errorf("the journal:\n%s", journal)
	}
	// The agent has ended. The next words start a new run, which has the memory of the first.
	_, m := k.ask(owner, ts, "recall\nrun cat first.txt second.txt", 3)
	if !strings.Contains(says(m), "Done") && !strings.Contains(says(m), "Nothing") {
		t.Errorf("the result: %s", says(m))
	}
	runs = k.runs("C01", ts)
	if len(runs) != 3 || runs[2].Branch != runs[0].Branch || !strings.Contains(k.journal(runs[2].Name()), "the blue one") {
		t.Errorf("runs: %+v\n%s", runs, k.journal(runs[2].Name()))
	}
}

// TestSaidBeforeTheEnd checks a crash after an agent got a mention and before that was recorded. The agent's run has
// ended too. The mention must not be given to an agent again.
func TestSaidBeforeTheEnd(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "examples", "agents", "scripted.sh"))
	if err != nil {
		t.Fatal(err)
	}
	k := openTalk(t, true, func(c *chat.Chat) {
		c.RetryEvery = time.Millisecond
		c.Executor.Options.Agents = map[string]agent.Agent{"scripted": {Name: "scripted",
			Command: []string{"sh", "-c", string(script), "scripted"},
			Timeout: time.Minute, Output: 1 << 20}}
	})
	mention := "<@" + k.slack.BotUser + "> "
	ts := k.slack.Say(owner, "C01", "", mention+"wait go.txt")
	k.atWork(ts, "go.txt")
	k.slack.Fail(slacktest.Fault{Method: "conversations.replies", Error: "token_expired", Times: -1})
	second := k.slack.Say(owner, "C01", ts, mention+"write second.txt two")
	// A mention that arrives after the end of the agent would start a new run instead.
	k.recorded("the second mention", func() bool { return len(k.runs("C01", ts)) == 2 })
	run := k.runs("C01", ts)[0]
	if err := k.Executor.Prompts.Say(t.Context(), run.Name(), record.Prompt{Key: "C01-" + second, Text: "write second.txt two"}); err != nil {
		t.Fatal(err)
	}
	k.touch(t, "go.txt")
	k.recorded("the agent's end", func() bool { return k.runs("C01", ts)[0].Ended() })
	k.slack.Heal()
	k.until("both answers", func() bool { return len(k.part("C01", ts, "result")) == 2 })
	if runs := k.runs("C01", ts); len(runs) != 2 || runs[1].Kind != record.KindRequest || runs[1].State != record.StateComplete {
		t.Errorf("%s", k.transcript())
	}
}

// TestLongConversation checks that a thread that is too long for an agent is cut.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, func(c *chat.Chat) {
		c.Executor.Options.Agents = map[string]agent.Agent{"short": {Name: "short",
			Command: []string{"sh", "-c", `printf %s "$1" | wc -c`, "short"}, Argument: true,
			Timeout: time.Minute, Output: 1 << 20}}
	})
	ts := k.slack.Write(owner, "C01", "", "it begins")
	for range 3 {
		k.slack.Write("U02", "C01", ts, strings.Repeat("much is said. ", 2800))
	}
	k.slack.Say(owner, "C01", ts, "<@"+k.slack.BotUser+"> "+strings.Repeat("fix it all ", 3000))
	k.until("the answer", func() bool { return len(k.part("C01", ts, "result")) == 1 })
	if runs := k.runs("C01", ts); len(runs) != 1 || runs[0].Kind != record.KindAgent || runs[0].State != record.StateComplete {
		t.Errorf("%s", k.transcript())
	}
}

// TestRepositoryIsRemoved checks that a thread is answered after its repository is removed.
func TestRepositoryIsRemoved(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, nil)
	k.repo(t, "other")
	ts, _ := k.ask(owner, "", "repo:app exec echo x > a.txt", 1)
	k.recorded("the record", func() bool { return k.runs("C01", ts)[0].Told != nil })
	if err := os.Rename(filepath.Join(k.Executor.Data, "repos", "app.git"), filepath.Join(t.TempDir(), "app.git")); err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"status", "log", "diff", "why", "merge", "retry", "exec true"} {
		mention := "repo:other " + text
		k.ask(owner, ts, mention, 2+i)
	}
	runs := k.runs("C01", ts)
	if last := runs[len(runs)-1]; last.Repo != "other" || last.State != record.StateComplete {
		t.Errorf("%s", k.transcript())
	}
}

// TestBlocksAreRefused checks that the text is the answer if Slack refuses the blocks.
func TestBlocksAreRefused(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, nil)
	k.slack.Fail(slacktest.Fault{Method: "chat.postMessage", Error: "invalid_blocks"})
	if _, m := k.ask(owner, "", "help", 1); len(m.Blocks) > 0 && string(m.Blocks) != "[]" || m.Text == "" {
		t.Errorf("%+v", m)
	}
	k.slack.Forgive() // the fault was intended
}

// journal returns the events of a run and the output of its commands.
func (k *talk) journal(run string) string {
	k.t.Helper()
	var b strings.Builder
	for e, err := range k.Executor.Events(k.t.Context(), run, 0, false) {
		if err != nil {
			k.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s %s\n", e.Type, e.Step, e.Message)
		for _, s := range []*record.Stream{e.Stdout, e.Stderr} {
			if s != nil {
				b.WriteString(s.Tail)
			}
		}
	}
	return b.String()
}

// TestRunnerElsewhereHoldsUpNobody checks that only threads that are handed over wait for a slow fallback runner.
func TestRunnerElsewhereHoldsUpNobody(t *testing.T) {
	t.Parallel()
	down := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices the end of the connection
		select {
		case <-down:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, `{"text": "done elsewhere"}`)
	}))
	t.Cleanup(web.Close)
	k := openTalk(t, false, func(c *chat.Chat) {
		c.Fallback = &fallback.Client{URL: web.URL, Secret: "a-shared-secret"}
	})
	var outside []string
	for range 40 {
		outside = append(outside, k.slack.Say("U02", "C01", "", "<@"+k.slack.BotUser+"> please fix it"))
	}
	k.ask(owner, "", "help", 1)
	close(down)
	k.until("the answers of the runner", func() bool {
		for _, ts := range outside {
			if len(k.part("C01", ts, "result")) != 1 {
				return false
			}
		}
		return true
	})
}

// TestTokenIsMended checks that a mention is answered after Slack has refused the token for a while.
func TestTokenIsMended(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, func(c *chat.Chat) { c.RetryEvery = time.Millisecond })
	k.slack.Fail(
		slacktest.Fault{Method: "conversations.replies", Error: "token_expired", Times: 3},
		slacktest.Fault{Method: "chat.postMessage", Error: "missing_scope", Times: 3},
	)
	ts, _ := k.ask(owner, "", "help", 1)
	k.recorded("the record", func() bool { return k.runs("C01", ts)[0].Told != nil })
	if n := len(k.part("C01", ts, "result")); n != 1 {
		t.Errorf("%d answers", n)
	}
}

// TestChannelIsArchived checks that a run ends normally if its thread takes no messages.
func TestChannelIsArchived(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, nil)
	k.slack.Fail(slacktest.Fault{Method: "chat.postMessage", Error: "is_archived", Times: -1})
	ts := k.slack.Say(owner, "C01", "", "<@"+k.slack.BotUser+"> exec true")
	k.recorded("the end", func() bool {
		runs := k.runs("C01", ts)
		return len(runs) == 1 && runs[0].State == record.StateComplete && runs[0].Told != nil
	})
}

// TestRepositoryThatIsOpenToAll checks that an open repository does not open others. A thread works in the repository
// that has its branch.
func TestRepositoryThatIsOpenToAll(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, func(c *chat.Chat) {
		c.Settings.Gate.Repos, c.Settings.Gate.Requesters, c.Settings.Repo = []string{"open"}, []string{"U02"}, "app"
	})
	k.repo(t, "open")
	ts, _ := k.ask("U02", "", "!!! exec echo x > a.txt", 1)
	for _, text := range []string{"repo:open merge", "repo:open diff", "repo:open exec true", "base:ramus/other exec true"} {
		mention := k.slack.Say("U03", "C01", ts, "<@"+k.slack.BotUser+"> "+text)
		k.recorded("the end of "+text, func() bool {
			run, ok := k.Executor.Find(chat.Session{Key: "slack:" + k.slack.Team + ":C01:" + ts}.Caller(), "C01-"+mention)
			return ok && run.Told != nil
		})
	}
	if n := len(k.part("C01", ts, "result")); n != 1 {
		t.Errorf("a stranger was answered\n%s", k.transcript())
	}
	if _, m := k.ask("U02", ts, "!!! base:ramus/other exec true", 2); !strings.Contains(says(m), "no base") {
		t.Errorf("a branch of callers as a base: %s", says(m))
	}
	// A base that a stranger named does not become the base of the thread.
	k.ask("U02", ts, "!!! exec true", 3)
	if runs := k.runs("C01", ts); runs[len(runs)-1].Base != "main" || runs[len(runs)-1].State != record.StateComplete {
		t.Errorf("the base of a run: %+v", runs[len(runs)-1])
	}
	if _, m := k.ask("U02", ts, "!!! merge into ramus/other", 4); !strings.Contains(says(m), "branch that callers work on") {
		t.Errorf("a merge into a branch of callers: %s", says(m))
	}
}

// TestButtonsOfAChain derives the id of each retry from the id of the run before. All ids must be unique and short.
func TestButtonsOfAChain(t *testing.T) {
	t.Parallel()
	id, seen := "C0123456789-1700000000.000100", map[string]bool{}
	for range 40 {
		if id = lookup.DerivedRunID(id, "-retry"); len(id) > 100 || seen[id] {
			t.Fatalf("%q", id)
		}
		seen[id] = true
		if diff := lookup.DerivedRunID(id, "-diff-13345224609.738474920.8088930838d88f008e0"); len(diff) > 100 {
			t.Fatalf("%q", diff)
		}
	}
}
