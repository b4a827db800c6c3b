package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

var ada = gitd.Person{Name: "Ada", Email: "ada@example.org"}

// raised submits a task and waits for its pull request.
func (k *shop) raised(lines ...string) record.Task {
	k.t.Helper()
	return k.settled(k.submit(lines...).ID, record.StateAwaitingReview)
}

// worked waits until a task has the given number of works and awaits review again.
func (k *shop) worked(id string, times int) record.Task {
	k.t.Helper()
	return k.until(id, fmt.Sprintf("work %d", times), func(t record.Task) bool {
		return len(t.Work) == times && t.Status == record.StateAwaitingReview && t.Unposted == 0
	})
}

// failed waits for a task to fail and checks its error and the message in its thread.
func (k *shop) failed(id, want string) record.Task {
	k.t.Helper()
	t := k.settled(id, record.StateFailed)
	thread := k.thread(t)
	if last := thread[len(thread)-1]; !strings.Contains(t.Error, want) || !strings.HasPrefix(last, "❌ Task failed: ") {
		k.t.Errorf("failed with %q, want %q; the thread: %q", t.Error, want, thread)
	}
	return t
}

func (k *shop) retry(id string) {
	k.t.Helper()
	if _, err := k.engineer.Retry(k.t.Context(), id, ada); err != nil {
		k.t.Fatal(err)
	}
}

// reads checks the content of a file of a branch at GitHub.
func (k *shop) reads(branch, path, want string) {
	k.t.Helper()
	if got, err := k.repo.File(branch, path); err != nil || got != want {
		k.t.Errorf("%s of %s is %q, %v; want %q", path, branch, got, err, want)
	}
}

// waitGo has the lines with which an agent waits until [rooms.touch] makes go.txt.
const waitGo = "wait go.txt\nrun rm go.txt"

// must returns a function that ends the test if an action of a person fails.
func must[V any](t *testing.T) func(V, error) V {
	return func(v V, err error) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// told returns the comments of ramus in the conversation of a pull request.
func (k *shop) told(number int) (texts []string) {
	for _, c := range k.repo.Pull(number).Comments {
		if c.User == "ramus[bot]" {
			texts = append(texts, c.Body)
		}
	}
	return texts
}

// prompts returns the events of a run, which include the prompts, because the agent prints them. Returns "" if the run
// has not begun.
func (k *shop) prompts(run string) string {
	var b strings.Builder
	for e, err := range k.Executor.Events(k.t.Context(), run, 0, false) {
		if err != nil {
			break
		}
		fmt.Fprintln(&b, e.Command, e.Message, string(e.Data))
	}
	return b.String()
}

// TestEngineerTogether checks that commits of people on the branch are merged before work continues.
func TestEngineerTogether(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	task := k.raised("write made.txt made")
	must[string](t)(k.repo.Push("reviewer", task.Branch, "Add theirs", map[string]string{"theirs.txt": "theirs"}))
	must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1, "run cat theirs.txt >>made.txt"))
	task = k.worked(task.ID, 2)
	k.reads(task.Branch, "made.txt", "made\ntheirs")
	k.reads(task.Branch, "theirs.txt", "theirs")
	if p := k.prompts(task.Work[1]); !strings.Contains(p, "Add theirs") {
		t.Errorf("the agent was told\n%s", p)
	}

	// A commit that arrives while the agent works is merged with the agent's own.
	must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1, "append late.txt ours\n"+waitGo))
	k.atWork(task.ID, 3)
	must[string](t)(k.repo.Push("reviewer", task.Branch, "Add more", map[string]string{"theirs.txt": "theirs\nmore"}))
	k.touch(t, "go.txt")
	task = k.worked(task.ID, 3)
	k.reads(task.Branch, "late.txt", "ours")
	k.reads(task.Branch, "theirs.txt", "theirs\nmore")

	// A commit that changes the same line in another way cannot be merged.
	must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1, "write made.txt ours\n"+waitGo))
	k.atWork(task.ID, 4)
	theirs := must[string](t)(k.repo.Push("reviewer", task.Branch, "Say otherwise",
		map[string]string{"made.txt": "otherwise"}))
	k.touch(t, "go.txt")
	task = k.failed(task.ID, "conflict with ramus's own in made.txt")
	if head := k.repo.Head(task.Branch); head != theirs {
		t.Errorf("the branch is at %s, want %s", head, theirs)
	}
	if told := k.told(task.PRNumber); len(told) != 1 || !strings.Contains(told[0], "could not finish") {
		t.Errorf("the pull request was told %q", told)
	}
	must[string](t)(k.repo.Push("reviewer", task.Branch, "Say nothing", map[string]string{"made.txt": "made\ntheirs"}))
	k.retry(task.ID)
	task = k.worked(task.ID, 4)
	k.reads(task.Branch, "made.txt", "ours")
	for _, p := range k.repo.Pull(task.PRNumber).Lines {
		if p.ReplyTo != 0 {
			continue
		}
		replies := 0
		for _, r := range k.repo.Pull(task.PRNumber).Lines {
			if r.ReplyTo == p.ID {
				replies++
			}
		}
		if replies != 1 {
			t.Errorf("comment %q has %d replies", p.Body, replies)
		}
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerForced checks that a force-pushed branch is reported and not overwritten. A retry continues from the
// pushed commit.
func TestEngineerForced(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	task := k.raised("write made.txt made")
	forced := must[string](t)(k.repo.ForcePush("reviewer", task.Branch, "Begin again",
		map[string]string{"again.txt": "again\n"}))
	must[int64](t)(k.repo.Comment("reviewer", task.PRNumber, "@ramus go on\nappend again.txt more"))
	task = k.failed(task.ID, "force-pushed the branch")
	if head := k.repo.Head(task.Branch); head != forced {
		t.Errorf("the branch is at %s, want %s", head, forced)
	}
	if told := k.told(task.PRNumber); len(told) != 1 || !strings.Contains(told[0], "force-pushed") {
		t.Errorf("the pull request was told %q", told)
	}
	k.retry(task.ID)
	task = k.worked(task.ID, 2)
	k.reads(task.Branch, "again.txt", "again\nmore")
	if _, err := k.repo.File(task.Branch, "made.txt"); err == nil {
		t.Error("what was done away with is back")
	}
	if _, err := k.repo.Git("merge-base", "--is-ancestor", forced, task.Branch); err != nil {
		t.Errorf("what was force-pushed is not in the history: %v", err)
	}
	if told := k.told(task.PRNumber); len(told) != 2 { // the failure and the answer
		t.Errorf("the pull request was told %q", told)
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerDeleted checks that a deleted branch is reported, and that a retry pushes the branch again.
func TestEngineerDeleted(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	task := k.raised("write made.txt made")
	if err := k.repo.DeleteBranch("reviewer", task.Branch); err != nil {
		t.Fatal(err)
	}
	task = k.failed(task.ID, "closed without being merged")
	if head := k.repo.Head(task.Branch); head != "" {
		t.Errorf("the branch is back at %s", head)
	}
	was := task.PRNumber
	k.retry(task.ID)
	task = k.until(task.ID, "another pull request", func(t record.Task) bool {
		return t.PRNumber != 0 && t.PRNumber != was && t.Status == record.StateAwaitingReview && t.Unposted == 0
	})
	k.reads(task.Branch, "made.txt", "made")
	must[int64](t)(k.repo.Comment("reviewer", task.PRNumber, "@ramus\nappend made.txt more"))
	task = k.worked(task.ID, 2)
	k.reads(task.Branch, "made.txt", "made\nmore")
	if n := len(k.repo.Pulls()); n != 2 {
		t.Errorf("%d pull requests", n)
	}
	thread := strings.Join(k.thread(task), "\n")
	if strings.Count(thread, "🚀") != 2 {
		t.Errorf("the thread says\n%s", thread)
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerReopened checks that closing a pull request without a merge ends the task. Reopening continues the task
// with the comments that came meanwhile.
func TestEngineerReopened(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	task := k.raised("write made.txt made")
	if err := k.repo.Close("reviewer", task.PRNumber); err != nil {
		t.Fatal(err)
	}
	task = k.failed(task.ID, "closed without being merged")
	k.until(task.ID, "no container", func(record.Task) bool {
		status, err := k.Executor.Caller(t.Context(), "conv:"+task.ID)
		return err == nil && status.Container == nil
	})
	must[int64](t)(k.repo.Comment("reviewer", task.PRNumber, "@ramus\nappend made.txt more"))
	if err := k.repo.Reopen("reviewer", task.PRNumber); err != nil {
		t.Fatal(err)
	}
	task = k.worked(task.ID, 2)
	k.reads(task.Branch, "made.txt", "made\nmore")
	if told := k.told(task.PRNumber); len(told) != 1 {
		t.Errorf("the pull request was told %q", told)
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerReopenedAtWork checks that work stopped by closing the pull request is begun again when the pull request
// is reopened.
func TestEngineerReopenedAtWork(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	task := k.raised("write made.txt made")
	must[int64](t)(k.repo.Comment("reviewer", task.PRNumber, "@ramus\nappend made.txt more\nsleep 600"))
	task = k.atWork(task.ID, 2)
	if err := k.repo.Close("reviewer", task.PRNumber); err != nil {
		t.Fatal(err)
	}
	k.failed(task.ID, "closed without being merged")
	if err := k.repo.Reopen("reviewer", task.PRNumber); err != nil {
		t.Fatal(err)
	}
	if task = k.atWork(task.ID, 3); task.Status != record.StateAddressingComments {
		t.Errorf("at work again it is %s", task.Status)
	}
	if _, err := k.engineer.Cancel(t.Context(), task.ID, false, gitd.Person{Name: "Ada"}); err != nil {
		t.Fatal(err)
	}
	task = k.failed(task.ID, "cancelled by Ada")
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerChecks checks that failed checks are repaired up to the limit. A comment of a person continues the task
// after that.
func TestEngineerChecks(t *testing.T) {
	t.Parallel()
	k := openShop(t, func(e *engineer.Engineer) { e.Settings.Repairs = 2 })
	task := k.raised("write made.txt made")
	fail := func(n int) {
		t.Helper()
		name := "test"
		if n == 3 {
			name = "test <!channel> @acme/all"
		}
		must[int64](t)(k.repo.Check(task.Branch, githubtest.Check{Name: name, Conclusion: "failure", Title: "It fails",
			Summary: fmt.Sprintf("append made.txt repair-%d", n)}))
	}
	must[int64](t)(k.repo.Check(task.Branch, githubtest.Check{Name: "lint", Conclusion: "success"}))
	for n := 1; n <= 2; n++ {
		fail(n)
		task = k.worked(task.ID, n+1)
	}
	k.reads(task.Branch, "made.txt", "made\nrepair-1\nrepair-2")
	fail(3)
	k.until(task.ID, "the cap", func(t record.Task) bool { return t.Unposted == 0 && len(k.told(t.PRNumber)) == 1 })
	fail(4) // reported only once, even if it fails several times
	k.until(task.ID, "what is left", func(t record.Task) bool { return strings.Count(k.story(t), " heard left ") == 2 })
	must[int64](t)(k.repo.Comment("reviewer", task.PRNumber, "@ramus\nappend made.txt by-a-person"))
	task = k.worked(task.ID, 4)
	k.reads(task.Branch, "made.txt", "made\nrepair-1\nrepair-2\nby-a-person")
	fail(5)
	task = k.worked(task.ID, 5)
	k.reads(task.Branch, "made.txt", "made\nrepair-1\nrepair-2\nby-a-person\nrepair-5")
	told := k.told(task.PRNumber)
	if len(told) != 2 || !strings.Contains(told[0], "A person has to look") || !strings.Contains(told[0], "test") ||
		strings.Contains(told[0], "lint") {
		t.Errorf("the pull request was told %q", told)
	}
	if thread := strings.Join(k.thread(task), "\n"); strings.Contains(thread, "<!channel>") ||
		!strings.Contains(thread, "&lt;!channel&gt;") || strings.Contains(told[0], "@acme") {
		t.Errorf("a check's name calls people: %q\n%s", told, thread)
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerStrangers checks that ramus ignores users without write access, bots, and comments that are addressed to
// others.
func TestEngineerStrangers(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	k.repo.SetPublic()
	k.github.AddUser("stranger", "")
	k.github.AddUser("other[bot]", "write")
	task := k.raised("write made.txt made")
	for _, who := range []string{"visitor", "stranger", "other[bot]"} {
		must[int64](t)(k.repo.CommentLine(who, task.PRNumber, "made.txt", 1, "append made.txt "+who))
		must[int64](t)(k.repo.Comment(who, task.PRNumber, "@ramus\nappend made.txt "+who))
	}
	must[int64](t)(k.repo.Review("visitor", task.PRNumber, "changes_requested", "append made.txt visitor"))
	must[int64](t)(k.repo.Review("visitor", task.PRNumber, "approved", "good"))
	must[int64](t)(k.repo.Comment("reviewer", task.PRNumber,
		"append made.txt to-others; mail@ramus.example is no mention, nor is @ramus-team"))
	must[int64](t)(k.repo.Comment("reviewer", task.PRNumber, "Hey @Ramus, please:\nappend made.txt mentioned"))
	task = k.worked(task.ID, 2)
	k.reads(task.Branch, "made.txt", "made\nmentioned")
	pull := k.repo.Pull(task.PRNumber)
	if told := k.told(task.PRNumber); len(told) != 1 || len(pull.Lines) != 3 || task.Approved {
		t.Errorf("approved: %v; %q\n%v", task.Approved, told, pull)
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerReviews checks that a later request for changes revokes an approval, and that comments that arrive
// together are worked on together.
func TestEngineerReviews(t *testing.T) {
	t.Parallel()
	// The clock does not move until all comments are posted. After that, each call of Now returns a later hour.
	var said atomic.Bool
	var hours atomic.Int64
	began := time.Now()
	k := openShop(t, func(e *engineer.Engineer) {
		e.Settings.Gather, e.Settings.Every = time.Hour, 100_000*time.Hour
		e.Now = func() time.Time {
			if said.Load() {
				hours.Add(1)
			}
			return began.Add(time.Duration(hours.Load()) * time.Hour)
		}
	})
	k.github.AddUser("second", "write")
	task := k.raised("write made.txt made", "write other.txt other")
	if err := k.repo.Approve("reviewer", task.PRNumber, "good"); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "the approval", func(t record.Task) bool { return t.Approved })
	must[int64](t)(k.repo.Review("reviewer", task.PRNumber, "changes_requested", "append made.txt review",
		githubtest.Line{Path: "made.txt", Line: 1, Body: "append made.txt first"},
		githubtest.Line{Path: "other.txt", Line: 1, Body: "append other.txt second"}))
	must[int64](t)(k.repo.CommentLine("second", task.PRNumber, "made.txt", 1, "append made.txt third"))
	must[int64](t)(k.repo.Comment("second", task.PRNumber, "@ramus\nappend made.txt fourth"))
	k.until(task.ID, "all that was said", func(t record.Task) bool { return strings.Count(k.story(t), " heard said ") == 5 })
	said.Store(true)
	must[int64](t)(k.repo.Check(task.Branch,
		githubtest.Check{Name: "lint", Conclusion: "success"})) // its delivery makes ramus read the pull request
	task = k.worked(task.ID, 2)
	if task.Approved {
		t.Error("it is still approved")
	}
	k.reads(task.Branch, "made.txt", "made\nreview\nfirst\nthird\nfourth")
	k.reads(task.Branch, "other.txt", "other\nsecond")
	pull := k.repo.Pull(task.PRNumber)
	requested := slices.Sorted(slices.Values(pull.Requested))
	if len(pull.Lines) != 6 || len(k.told(pull.Number)) != 2 || !slices.Equal(requested, []string{"reviewer", "second"}) {
		t.Errorf("%v %q", pull, k.told(pull.Number))
	}
	if thread := strings.Join(k.thread(task), "\n"); strings.Count(thread, "💬") != 1 || strings.Count(thread, "✅") != 1 {
		t.Errorf("the thread says\n%s", thread)
	}
	// A repeated comment of a person is worked on again.
	must[int64](t)(k.repo.Reply("reviewer", pull.Number, pull.Lines[0].ID, "append made.txt once-more"))
	task = k.worked(task.ID, 3)
	k.reads(task.Branch, "made.txt", "made\nreview\nfirst\nthird\nfourth\nonce-more")
	if err := k.repo.Approve("reviewer", task.PRNumber, "good"); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "the approval", func(t record.Task) bool { return t.Approved })
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerCancelled checks that cancelling a task stops all its work and keeps its branch, unless drop is set.
func TestEngineerCancelled(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		k := openShop(t, nil)
		task := k.submit("write made.txt made", "hang")
		k.until(task.ID, "an agent at work", func(t record.Task) bool {
			status, err := k.Executor.Caller(k.t.Context(), "conv:"+t.ID)
			return err == nil && status.Container != nil && len(t.Work) == 1
		})
		if _, err := k.engineer.Cancel(t.Context(), task.ID, drop, ada); err != nil {
			t.Fatal(err)
		}
		task = k.failed(task.ID, "cancelled by Ada")
		status, err := k.Executor.Caller(t.Context(), "conv:"+task.ID)
		if err != nil || status.Container != nil {
			t.Errorf("%+v, %v", status, err)
		}
		repo, err := k.Git.Repo("app")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Resolve(t.Context(), "refs/heads/"+task.Caller().Branch()); (err != nil) != drop {
			t.Errorf("drop %v: the branch: %v", drop, err)
		}
		if len(k.repo.Pulls()) != 0 || k.repo.Head(task.Branch) != "" {
			t.Errorf("GitHub has it: %v", k.repo.Pulls())
		}
		if t.Failed() {
			t.Log(k.story(task))
		}
	}
}

// TestEngineerRetried checks that a retry of a task whose agent failed continues with the work that the agent had
// done.
func TestEngineerRetried(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	task := k.submit("append made.txt made", "run test -e once || { touch once; kill -KILL $PPID; }", "append made.txt done")
	task = k.failed(task.ID, "")
	if len(k.repo.Pulls()) != 0 || len(task.Work) != 1 {
		t.Errorf("%+v %v", task, k.repo.Pulls())
	}
	k.retry(task.ID)
	task = k.worked(task.ID, 2)
	k.reads(task.Branch, "made.txt", "made\nmade\ndone")
	// The agent fails in review. The next attempt works on the comment.
	must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1,
		"run test -e twice || { touch twice; kill -KILL $PPID; }\nappend made.txt twice"))
	task = k.failed(task.ID, "")
	k.retry(task.ID)
	task = k.worked(task.ID, 4)
	k.reads(task.Branch, "made.txt", "made\nmade\ndone\ntwice")
	if pull := k.repo.Pull(task.PRNumber); len(pull.Lines) != 2 || len(k.told(task.PRNumber)) != 1 || len(k.repo.Pulls()) != 1 {
		t.Errorf("%v", pull)
	}
	if _, err := k.engineer.Retry(t.Context(), task.ID, ada); err == nil {
		t.Error("a task that has not failed was retried")
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerRetriedAtOnce cancels a task at work and retries it at once. The work is begun again from the start, and
// the end of the stopped work has no effect.
func TestEngineerRetriedAtOnce(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	task := k.submit("write made.txt made", waitGo)
	for n := range 3 {
		k.atWork(task.ID, n+1)
		if _, err := k.engineer.Cancel(t.Context(), task.ID, false, ada); err != nil {
			t.Fatal(err)
		}
		k.retry(task.ID)
	}
	k.atWork(task.ID, 4)
	k.touch(t, "go.txt")
	task = k.worked(task.ID, 4)
	k.reads(task.Branch, "made.txt", "made")
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerFailedInReview checks that a retry of a task that failed in review merges the commits of people. The
// task is complete if people merge the pull request instead.
func TestEngineerFailedInReview(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	task := k.raised("write made.txt made")
	must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1,
		"run test -e theirs.txt || kill -KILL $PPID\nappend made.txt more"))
	task = k.failed(task.ID, "")
	must[string](t)(k.repo.Push("developer", task.Branch, "Help", map[string]string{"theirs.txt": "theirs"}))
	for range 2 { // the slower call finds the task at work
		_, _ = k.engineer.Retry(t.Context(), task.ID, ada)
	}
	task = k.worked(task.ID, 3)
	k.reads(task.Branch, "made.txt", "made\nmore")
	k.reads(task.Branch, "theirs.txt", "theirs")
	must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1, "run kill -KILL $PPID"))
	task = k.failed(task.ID, "")
	must[string](t)(k.repo.Merge("reviewer", task.PRNumber, "merge"))
	task = k.settled(task.ID, record.StateComplete)
	if thread := k.thread(task); task.Error != "" || !strings.HasPrefix(thread[len(thread)-1], "🎉") {
		t.Errorf("%q %q", task.Error, thread)
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerRewritten checks that a task fails if its local branch was rewritten. The branch at GitHub is not
// changed.
func TestEngineerRewritten(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	task := k.raised("write made.txt made")
	head := k.repo.Head(task.Branch)
	repo, err := k.Git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	base, err := repo.Resolve(t.Context(), "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + task.Caller().Branch(), New: base}); err != nil {
		t.Fatal(err)
	}
	must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1, "write other.txt other"))
	task = k.failed(task.ID, "was rewritten")
	if now := k.repo.Head(task.Branch); now != head {
		t.Errorf("GitHub has %s, had %s", now, head)
	}
}

// TestEngineerAlone checks that a task whose repository is no longer at GitHub ends on its branch.
func TestEngineerAlone(t *testing.T) {
	t.Parallel()
	var alone atomic.Bool
	k := openShop(t, func(e *engineer.Engineer) {
		e.Settings.Every = 10 * time.Millisecond
		there := e.Upstream
		e.Upstream = func(repo string) (gitd.Upstream, forge.Repo, bool) {
			up, at, ok := there(repo)
			return up, at, ok && !alone.Load()
		}
	})
	task := k.raised("write made.txt made")
	alone.Store(true)
	if _, err := k.engineer.Say(t.Context(), task.ID, "", "append made.txt more", ada); err != nil {
		t.Fatal(err)
	}
	k.settled(task.ID, record.StateComplete)
}

// TestEngineerTwo runs two tasks in one repository concurrently while the base moves.
func TestEngineerTwo(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	one, two := k.submit("write one.txt one", waitGo), k.submit("write two.txt two", waitGo)
	k.atWork(one.ID, 1)
	k.atWork(two.ID, 1)
	k.touch(t, "go.txt")
	one, two = k.settled(one.ID, record.StateAwaitingReview), k.settled(two.ID, record.StateAwaitingReview)
	must[string](t)(k.repo.Merge("reviewer", one.PRNumber, "merge"))
	k.settled(one.ID, record.StateComplete)
	repo, err := k.Git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	follows := func(want string) {
		t.Helper()
		k.until(two.ID, "the base", func(record.Task) bool {
			head, err := repo.Resolve(t.Context(), "refs/heads/main")
			return err == nil && string(head) == want
		})
	}
	follows(k.repo.Head("main"))
	must[string](t)(k.repo.Push("developer", "main", "Go on", map[string]string{"base.txt": "base"}))
	follows(k.repo.Head("main"))
	must[int64](t)(k.repo.CommentLine("reviewer", two.PRNumber, "two.txt", 1, "append two.txt more"))
	two = k.worked(two.ID, 2)
	must[string](t)(k.repo.Merge("reviewer", two.PRNumber, "rebase"))
	k.settled(two.ID, record.StateComplete)
	k.reads("main", "one.txt", "one")
	k.reads("main", "two.txt", "two\nmore")
	follows(k.repo.Head("main"))
	if n := len(k.repo.Pulls()); n != 2 {
		t.Errorf("%d pull requests", n)
	}
}

// TestEngineerRefused checks that messages wait while ramus has no access. A message that is refused permanently does
// not delay the others.
func TestEngineerRefused(t *testing.T) {
	t.Parallel()
	k := openShop(t, func(e *engineer.Engineer) { e.RetryEvery = 10 * time.Millisecond })
	k.slack.Fail(slacktest.Fault{Method: "chat.postMessage", Times: 3, Error: "not_in_channel"})
	task := k.raised("write made.txt made")
	comments := "POST /repos/{owner}/{repo}/pulls/{pull_number}/comments"
	k.github.Fail(githubtest.Fault{Route: comments, Times: 6, Status: 401})
	must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1, "append made.txt more"))
	task = k.worked(task.ID, 2)
	if pull := k.repo.Pull(task.PRNumber); len(pull.Lines) != 2 {
		t.Errorf("%v", pull)
	}
	k.github.Fail(githubtest.Fault{Route: comments, Status: 422})
	must[int64](t)(k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1, "append made.txt again"))
	task = k.worked(task.ID, 3)
	pull := k.repo.Pull(task.PRNumber)
	if len(pull.Lines) != 3 || len(pull.Requested) != 1 {
		t.Errorf("%v", pull)
	}
	thread := strings.Join(k.thread(task), "\n")
	if strings.Count(thread, "🔨") != 1 || strings.Count(thread, "🚀") != 1 || strings.Count(thread, "✅") != 2 {
		t.Errorf("the thread says\n%s", thread)
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}
