package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// shareLines connects the comments on lines of a server with its engineer.
func shareLines(k *shop, s *gateway.Server) *comment.Comments {
	find := &lookup.Lookup{Executor: s.Executor, Git: s.Git}
	c := comment.NewComments(s.Executor, &conversation.Talk{Executor: s.Executor, Prompts: &s.Executor.Prompts, Find: find}, find, s.Executor.Bot, time.Now)
	c.Tasks, k.engineer.Lines, s.Comments = k.engineer, c, c
	return c
}

// conversational is a forge at which ramus neither begins threads on lines nor resolves them.
type conversational struct{ forge.Forge }

// TestLinesInConversation has comments on lines of a pull request at such a forge. Each is in the conversation, once, with its line.
func TestLinesInConversation(t *testing.T) {
	t.Parallel()
	var comments *comment.Comments
	k := openShopServing(t, nil, nil, func(k *shop, s *gateway.Server) {
		comments = shareLines(k, s)
		upstream := k.engineer.Upstream
		k.engineer.Upstream = func(repo string) (gitd.Upstream, forge.Repo, bool) {
			up, at, ok := upstream(repo)
			at.Forge = conversational{at.Forge}
			return up, at, ok
		}
		hook := s.Hooks["github"]
		hook.Forge = conversational{hook.Forge}
		s.Hooks["github"] = hook
	})
	task := k.raised("write made.txt made")
	st, err := k.Executor.Named(task.Caller().String())
	if err != nil {
		t.Fatal(err)
	}
	work, err := comments.Of(t.Context(), route.Local, st, changes.Window{})
	if err != nil {
		t.Fatal(err)
	}
	sent, err := comments.Send(t.Context(), route.Local, work, comment.Sending{By: ada, Comments: []comment.New{
		{Path: "made.txt", Line: 1, Text: "Please:\nrun echo here >>made.txt"}}})
	if err != nil {
		t.Fatal(err)
	}
	task = k.worked(task.ID, 2)
	k.reads(task.Branch, "made.txt", "made\nhere")
	posted := func(text string) (n int) {
		for _, body := range k.told(task.PRNumber) {
			if strings.Contains(body, text) {
				if n++; !strings.HasPrefix(body, "On made.txt, line 1:") {
					t.Errorf("it does not name its line: %s", body)
				}
			}
		}
		return n
	}
	thread := func() comment.Thread {
		t.Helper()
		v, err := comments.Read(t.Context(), route.Local, work)
		if err != nil || len(v.Threads) != 1 || v.At == nil || v.At.Pull != task.PRNumber || v.At.Lines || v.At.Resolves {
			t.Fatalf("%+v %v", v, err)
		}
		return v.Threads[0]
	}
	k.until(task.ID, "the comment there", func(record.Task) bool {
		return posted("echo here") == 1 && thread().Remarks[0].Outside != 0
	})
	if _, err := comments.Answer(t.Context(), work, sent.Threads[0], review.Remark{Kind: review.ByPerson, By: gitd.Person{Name: "Bo"}, Text: "Thank you."}); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "the answer there", func(t record.Task) bool { return posted("Thank you.") == 1 && t.Unposted == 0 })
	if _, err := comments.Resolve(t.Context(), work, sent.Threads[0], gitd.Person{Name: "Bo"}, true, false); err != nil {
		t.Fatal(err)
	}
	if _, err := comments.Answer(t.Context(), work, sent.Threads[0], review.Remark{Kind: review.ByPerson, By: gitd.Person{Name: "Bo"}, Text: "Once more."}); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "one more answer", func(t record.Task) bool { return posted("Once more.") == 1 && t.Unposted == 0 })
	if n := len(k.repo.Pull(task.PRNumber).Lines); n != 0 || posted("echo here") != 1 || posted("Thank you.") != 1 || len(thread().Remarks) < 3 {
		t.Errorf("%d comments on lines, the thread here %+v", n, thread())
	}
}

// TestEngineerLines has comments on lines of a pull request, there and here. Each is at both places, once.
func TestEngineerLines(t *testing.T) {
	t.Parallel()
	var comments *comment.Comments
	k := openShopServing(t, nil, nil, func(k *shop, s *gateway.Server) {
		comments = shareLines(k, s)
	})
	task := k.raised("write made.txt made")
	work := func() comment.Work {
		t.Helper()
		st, err := k.Executor.Named(task.Caller().String())
		if err != nil {
			t.Fatal(err)
		}
		w, err := comments.Of(t.Context(), route.Local, st, changes.Window{})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	threads := func() []comment.Thread {
		t.Helper()
		v, err := comments.Read(t.Context(), route.Local, work())
		if err != nil {
			t.Fatal(err)
		}
		return v.Threads
	}

	// A comment there is a thread here, and the answer of ramus is in it.
	there := must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1, "run echo there >>made.txt"))
	task = k.worked(task.ID, 2)
	k.reads(task.Branch, "made.txt", "made\nthere")
	k.until(task.ID, "the answer", func(record.Task) bool {
		list := threads()
		return len(list) == 1 && len(list[0].Remarks) == 2 && list[0].Remarks[1].Kind == review.ByAgent
	})
	if x := threads()[0]; x.Remarks[0].Outside != there || x.Remarks[0].Kind != review.ByForge || x.Remarks[0].By.Name != "reviewer" ||
		x.Anchor.Path != "made.txt" || x.State != review.Answered || strings.Contains(x.Remarks[1].Text, "<!--") {
		t.Errorf("%+v", x)
	}

	// A comment here is further work of the task, and one comment there.
	send := func() {
		t.Helper()
		if _, err := comments.Send(t.Context(), route.Local, work(), comment.Sending{Key: "k", By: ada, Comments: []comment.New{
			{Path: "made.txt", Line: 2, Text: "Please, @everybody:\nrun echo here >>made.txt"}}}); err != nil {
			t.Fatal(err)
		}
	}
	send()
	send()
	task = k.worked(task.ID, 3)
	k.reads(task.Branch, "made.txt", "made\nthere\nhere")
	mine := func() (list []int64) {
		for _, c := range k.repo.Pull(task.PRNumber).Lines {
			if c.User == "ramus[bot]" && strings.Contains(c.Body, "echo here") {
				if list = append(list, c.ID); c.Path != "made.txt" || !strings.Contains(c.Body, "**Ada**") || strings.Contains(c.Body, "@everybody") {
					t.Errorf("%+v", c)
				}
			}
		}
		return list
	}
	k.until(task.ID, "the comment there", func(record.Task) bool {
		list := threads()
		return len(mine()) == 1 && len(list) == 2 && list[1].Remarks[0].Outside == mine()[0]
	})

	// Answers follow each other in the thread at both places.
	must[int64](t)(k.repo.Reply("reviewer", task.PRNumber, mine()[0], "say thanks"))
	task = k.worked(task.ID, 4)
	if _, err := comments.Answer(t.Context(), work(), threads()[1].ID, review.Remark{Kind: review.ByPerson, By: gitd.Person{Name: "Bo"}, Text: "You are welcome."}); err != nil {
		t.Fatal(err)
	}
	welcome := func() (n int) {
		for _, c := range k.repo.Pull(task.PRNumber).Lines {
			if strings.Contains(c.Body, "You are welcome.") && c.ReplyTo == mine()[0] {
				n++
			}
		}
		return n
	}
	k.until(task.ID, "the answer there", func(t record.Task) bool { return welcome() == 1 && t.Unposted == 0 })

	// A thread that is resolved or opened at one place is so at the other, and stays so.
	first, second := threads()[0], threads()[1]
	state := func(n int, who string, resolved bool) func(record.Task) bool {
		return func(record.Task) bool {
			x := threads()[n]
			_, there := k.repo.IsResolved(task.PRNumber, x.Remarks[0].Outside)
			return there == resolved && (x.Resolved != nil) == resolved && (x.Resolved == nil || x.Resolved.By.Name == who)
		}
	}
	if err := k.repo.ResolveThread("reviewer", task.PRNumber, first.Remarks[0].Outside, true); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "the resolution here", state(0, "reviewer", true))
	if _, err := comments.Resolve(t.Context(), work(), second.ID, gitd.Person{Name: "Bo"}, true, false); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "the resolution there", state(1, "Bo", true))
	if by, _ := k.repo.IsResolved(task.PRNumber, second.Remarks[0].Outside); by != "ramus[bot]" {
		t.Errorf("%s resolved the thread", by)
	}
	if _, err := comments.Resolve(t.Context(), work(), first.ID, gitd.Person{Name: "Bo"}, false, false); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "the thread open there", state(0, "", false))
	if err := k.repo.ResolveThread("reviewer", task.PRNumber, second.Remarks[0].Outside, false); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "the thread open here", state(1, "", false))
	if !state(0, "", false)(task) {
		t.Error("the first thread is resolved again")
	}

	// Another engineer over the same records repeats nothing.
	if err := k.engineer.Close(); err != nil {
		t.Fatal(err)
	}
	before := len(k.repo.Pull(task.PRNumber).Lines)
	e := k.engineer
	k.engineer = &engineer.Engineer{Executor: e.Executor, Git: e.Git, Upstream: e.Upstream, Slack: e.Slack, Links: e.Links, Lines: e.Lines,
		Settings: e.Settings, Log: e.Log}
	comments.Tasks = k.engineer
	k.open()
	k.engineer.LinesChanged(task.Caller())
	if _, err := comments.Answer(t.Context(), work(), threads()[1].ID, review.Remark{Kind: review.ByPerson, By: gitd.Person{Name: "Bo"}, Text: "Once more."}); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "one more", func(t record.Task) bool { return len(k.repo.Pull(task.PRNumber).Lines) == before+1 && t.Unposted == 0 })
	if len(mine()) != 1 || welcome() != 1 {
		t.Errorf("%d comments, %d answers", len(mine()), welcome())
	}
	for _, x := range threads() {
		seen := map[int64]bool{}
		for _, m := range x.Remarks {
			if m.Outside != 0 && seen[m.Outside] {
				t.Errorf("a comment is here twice: %+v", x)
			}
			seen[m.Outside] = true
		}
	}
}
