package gateway_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/prune"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/forgekey"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// openThreads is a shop in which people mention ramus in threads too.
func openThreads(t *testing.T, change func(*chat.Chat)) (*shop, *chat.Chat) {
	t.Helper()
	var talking *chat.Chat
	k := openShopServing(t, nil, func(e *engineer.Engineer) {
		e.Settings.DeleteBranch, e.Settings.Every = true,
			time.Hour
	}, func(k *shop, s *gateway.Server) {
		talking = &chat.Chat{Slack: k.engineer.Slack, SigningSecret: k.slack.SigningSecret, Executor: s.Executor,
			Git: s.Git, Engineer: k.engineer,
			Settings:  chat.Settings{Gate: gate.Gate{Enabled: true, ThreadStarters: []string{owner}}, Repo: "app"},
			EditEvery: 20 * time.Millisecond}
		if change != nil {
			change(talking)
		}
		if keys, ok := talking.Keys.(*forgekey.Keys); ok {
			s.ForgeKeys, k.engineer.Personal = keys, keys.Forge
		}
		s.Chat = talking
	})
	k.slack.SetRequestURLs(k.web.URL+"/slack/events", k.web.URL+"/slack/commands", k.web.URL+"/slack/interactions")
	if err := talking.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := talking.Close(); err != nil {
			t.Error(err)
		}
	})
	return k, talking
}

// say mentions ramus, and waits for the nth result in the thread.
func (k *shop) say(thread, text string, n int) (ts string, result slacktest.Message) {
	k.t.Helper()
	ts = k.slack.Say(owner, "C01", thread, "<@"+k.slack.BotUser+"> "+text)
	if thread == "" {
		thread = ts
	}
	return ts, k.result(thread, n)
}

// result waits for the nth result in a thread.
func (k *shop) result(thread string, n int) slacktest.Message {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer cancel()
	var found []slacktest.Message
	err := k.slack.Until(ctx, func() bool {
		found = found[:0]
		for _, m := range k.slack.Own("C01", thread) {
			var mark slack.Mark
			if m.Metadata != nil && json.Unmarshal(m.Metadata.Payload, &mark) == nil && mark.Part == "result" {
				found = append(found, m)
			}
		}
		return len(found) >= n
	})
	if err != nil {
		for _, m := range k.slack.Messages("C01") {
			k.t.Log(m.ThreadTS, m.Text)
		}
		k.t.Fatalf("result %d: %v", n, err)
	}
	return found[n-1]
}

// posted waits until ramus has posted a text in a thread.
func (k *shop) posted(thread, text string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer cancel()
	err := k.slack.Until(ctx, func() bool {
		for _, m := range k.slack.Own("C01", thread) {
			if strings.Contains(m.Text, text) {
				return true
			}
		}
		return false
	})
	if err != nil {
		for _, m := range k.slack.Messages("C01") {
			k.t.Log(m.ThreadTS, m.Text)
		}
		k.t.Fatalf("%q: %v", text, err)
	}
}

// TestPullFromThread has a person open the pull request of a thread's branch. Its review, its merge and the next one come
// back to the thread.
func TestPullFromThread(t *testing.T) {
	t.Parallel()
	k, _ := openThreads(t, func(c *chat.Chat) { c.People = map[string]gitd.Person{} })
	k.slack.SetEmail(owner, "ada@example.org")
	thread, first := k.say("", "exec echo made >made.txt", 1)
	if !strings.Contains(string(first.Blocks), "Open pull request") || !strings.Contains(string(first.Blocks), "say `pr`") {
		t.Errorf("the result offers no pull request: %s", first.Blocks)
	}
	before := k.repo.Head("main")
	session := chat.Session{Key: "slack:" + k.slack.Team + ":C01:" + thread}
	_, opened := k.say(thread, "pr", 2)
	pulls := k.repo.Pulls()
	if len(pulls) != 1 || !strings.Contains(opened.Text, "Opened pull request #1") ||
		!strings.Contains(string(opened.Blocks), pulls[0].URL) ||
		!strings.Contains(string(opened.Blocks), "Nothing is merged yet") {
		t.Fatalf("%+v\n%s %s", pulls, opened.Text, opened.Blocks)
	}
	if text, err := k.repo.File(pulls[0].Head, "made.txt"); err != nil || text != "made" {
		t.Errorf("%q %v", text, err)
	}
	repo, err := k.Git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	// The commit has the person's own address.
	own := "refs/heads/" + pulls[0].Head
	if c, err := repo.Commit(t.Context(), own); err != nil || c.Author.Email != "ada@example.org" {
		t.Errorf("%+v %v", c, err)
	}

	// A merge by word is a pull request here, and says so. Further work of the thread is pushed along.
	k.say(thread, "exec echo more >>made.txt", 3)
	_, again := k.say(thread, "merge", 4)
	if !strings.Contains(again.Text, "Pull request #1") || !strings.Contains(again.Text, "is up to date") || k.repo.Head("main") != before {
		t.Errorf("%s", again.Text)
	}
	if text, _ := k.repo.File(pulls[0].Head, "made.txt"); text != "made\nmore" {
		t.Errorf("%q", text)
	}

	// A comment is addressed, and that is told in the thread.
	if _, err := k.repo.CommentLine("reviewer", 1, "made.txt", 1, "append made.txt reviewed"); err != nil {
		t.Fatal(err)
	}
	k.posted(thread, `Addressing: "append made.txt reviewed"`)
	k.posted(thread, "Changes pushed")
	if text, _ := k.repo.File(pulls[0].Head, "made.txt"); text != "made\nmore\nreviewed" {
		t.Errorf("%q", text)
	}

	// So are plain words in the thread.
	if _, handed := k.say(thread, "append made.txt asked", 5); !strings.Contains(handed.Text, "pull request #1") {
		t.Error(handed.Text)
	}
	k.until(session.Caller().ID(), "the words' work", func(t record.Task) bool {
		text, _ := k.repo.File(pulls[0].Head, "made.txt")
		return text == "made\nmore\nreviewed\nasked" && t.Status == record.StateAwaitingReview
	})

	if _, err := k.repo.Merge("reviewer", 1, "squash"); err != nil {
		t.Fatal(err)
	}
	k.posted(thread, "Merged: "+pulls[0].URL)
	task := k.settled(session.Caller().ID(), record.StateComplete)
	if head := k.repo.Head(task.Branch); head != "" {
		t.Errorf("the branch is still at %s there", head)
	}
	k.until(task.ID, "the branch here goes, and the base follows", func(record.Task) bool {
		_, err := repo.Resolve(context.Background(), own)
		base, _ := repo.Resolve(context.Background(), "refs/heads/main")
		return err != nil && string(base) == k.repo.Head("main")
	})

	// The thread goes on, from the merged base, with another pull request.
	_, next := k.say(thread, "exec cat made.txt && echo next >next.txt", 6)
	if !strings.Contains(string(next.Blocks), "reviewed") {
		t.Errorf("%s", next.Blocks)
	}
	if _, opened = k.say(thread, "pr", 7); !strings.Contains(opened.Text, "Opened pull request #2") {
		t.Errorf("%s\n%s", opened.Text, k.story(task))
	}
}

// TestPullByButton opens the pull request by the button of a result, and finds out why none can be opened.
func TestPullByButton(t *testing.T) {
	t.Parallel()
	k, _ := openThreads(t, nil)
	thread, first := k.say("", "exec echo made >made.txt", 1)
	if _, err := k.slack.Press(t.Context(), owner, "C01", first.TS, "pull", ""); err != nil {
		t.Fatal(err)
	}
	if opened := k.result(thread, 2); !strings.Contains(opened.Text, "Opened pull request #1") {
		t.Error(opened.Text)
	}
	_, same := k.say(thread, "pr", 3)
	if !strings.Contains(same.Text, "is up to date") || len(k.repo.Pulls()) != 1 {
		t.Error(same.Text)
	}
}

// TestPruneThere prunes the branch of a task that was merged, here and at GitHub, but not one that somebody pushed to.
func TestPruneThere(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	for n, pushed := range []bool{false, true} {
		file := []string{"one.txt", "two.txt"}[n]
		task := k.settled(k.submit("write "+file+" made").ID, record.StateAwaitingReview)
		if _, err := k.repo.Merge("reviewer", task.PRNumber, "squash"); err != nil {
			t.Fatal(err)
		}
		task = k.settled(task.ID, record.StateComplete)
		if k.repo.Head(task.Branch) == "" {
			t.Fatal("the branch is gone before it is pruned")
		}
		if pushed {
			if _, err := k.repo.Push("developer", task.Branch, "More", map[string]string{"more": "more"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, dry := range []bool{true, false} {
			list, err := k.Executor.Prune(t.Context(),
				prune.Pruning{Kinds: []string{prune.Branches}, DryRun: dry})
			if err != nil {
				t.Fatal(err)
			}
			there := slices.ContainsFunc(list, func(p prune.Pruned) bool { return p.Name == "upstream "+task.Branch })
			here := slices.ContainsFunc(list,
				func(p prune.Pruned) bool { return p.Name == "refs/heads/"+task.Caller().Branch() })
			if there == pushed || !here {
				t.Errorf("pushed %v, dry %v: %+v", pushed, dry, list)
			}
		}
		if gone := k.repo.Head(task.Branch) == ""; gone == pushed {
			t.Errorf("pushed %v: the branch at GitHub is gone: %v", pushed, gone)
		}
	}
}
