package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/collision"
	"github.com/ramus-dev/ramus/gitd"
)

// TestCollisionsAreTold has two threads, a pull request and a task learn once that their branches do not merge, and once
// that they do again. Servers that are killed in between repeat nothing, and private callers are not named.
func TestCollisionsAreTold(t *testing.T) {
	t.Parallel()
	k, talking := openThreads(t, nil)
	first, _ := k.say("", "exec echo first >same.txt", 1)
	k.say(first, "pr", 2)
	second, _ := k.say("", "exec echo second >same.txt", 1)
	task := k.submit("write same.txt third")
	k.until(task.ID, "a pull request", func(t record.Task) bool { return t.PRNumber != 0 })
	caller := func(thread string) record.Caller {
		return chat.Session{Key: "slack:" + k.slack.Team + ":C01:" + thread}.Caller()
	}
	repo, err := k.Git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	private := map[record.Caller]bool{}
	newTeller := func() *collision.Teller {
		return &collision.Teller{Git: k.Git, Radar: &radar.Radar{}, Places: []collision.Places{k.engineer, talking},
			IsPrivate: func(c record.Caller) bool { return private[c] }, Bot: k.Executor.Bot, Log: k.Log, Now: time.Now}
	}
	look := func(tell *collision.Teller) {
		t.Helper()
		if err := tell.Look(t.Context(), "app"); err != nil {
			t.Fatal(err)
		}
		k.until(task.ID, "posted messages", func(t record.Task) bool { return t.Unposted == 0 })
		open, ok := k.engineer.TaskOf(caller(first))
		if !ok {
			t.Fatal("the pull request of the thread is not followed")
		}
		k.until(open.ID, "posted messages", func(t record.Task) bool { return t.Unposted == 0 })
	}
	task, err = k.engineer.Task(t.Context(), task.ID)
	if err != nil {
		t.Fatal(err)
	}
	// said returns the messages at the places of the three branches, with short names.
	short := strings.NewReplacer(caller(first).Branch(), "ONE", caller(second).Branch(), "TWO", task.Caller().Branch(), "TASK")
	said := func() string {
		var all []string
		note := func(place, text string) {
			if strings.Contains(text, "does not merge") || strings.Contains(text, "is gone") {
				text, _, _ = strings.Cut(text, "\n")
				_, text, _ = strings.Cut(short.Replace(strings.ReplaceAll(text, "\u2060", "")), "with ")
				all = append(all, place+": "+text)
			}
		}
		for _, m := range k.slack.Messages("C01") {
			for name, thread := range map[string]string{"one": first, "two": second, "task": task.SlackThreadTS} {
				if m.ThreadTS == thread {
					note(name, m.Text)
				}
			}
		}
		for _, p := range k.repo.Pulls() {
			for _, c := range p.Comments {
				note("pull "+short.Replace(p.Head), c.Body)
			}
		}
		return strings.Join(all, "\n")
	}
	count := func(want int) string {
		t.Helper()
		text := said()
		if n := strings.Count(text+"\n", "\n"); text == "" && want != 0 || text != "" && n != want {
			t.Errorf("%d messages, want %d:\n%s", n, want, text)
		}
		return text
	}

	look(newTeller())
	text := count(10) // the first thread, its pull request and both places of the task have two others, and the second thread too
	t.Log("\n" + text)
	before, err := repo.Resolve(t.Context(), collision.Ref)
	if err != nil {
		t.Fatal(err)
	}
	look(newTeller())
	count(10)
	// The server is killed after the messages, and before it has kept that they were told.
	state, err := repo.ReadFile(t.Context(), string(before), "collisions.json", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	forgot := strings.ReplaceAll(string(state), `"told"`, `"forgotten"`)
	commit, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Author: k.Executor.Bot, When: time.Now(), Message: "forgot",
		Put: []gitd.File{{Path: "collisions.json", Content: []byte(forgot)}}})
	if err == nil {
		err = repo.Update(t.Context(), gitd.RefUpdate{Name: collision.Ref, New: commit, Old: &before})
	}
	if err != nil {
		t.Fatal(err)
	}
	look(newTeller())
	count(10)

	// The second branch makes the conflict go.
	k.say(second, "exec rm same.txt", 2)
	tell := newTeller()
	look(tell)
	text = count(16)
	if strings.Count(text, "one: TWO is gone") != 1 || strings.Count(text, "two: ONE is gone") != 1 ||
		strings.Count(text, "task: TWO is gone") != 1 {
		t.Errorf("it is not told that the conflict is gone:\n%s", text)
	}
	look(tell)
	count(16)

	// It comes again while the second caller is private.
	private[caller(second)] = true
	k.say(second, "exec echo again >same.txt", 3)
	look(tell)
	text = count(18)
	if strings.Count(text, "two: ") != 6 {
		t.Errorf("others are told of a private caller:\n%s", text)
	}
}
