package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/goroutines"
	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// shop is rooms with an engineer, a repository at a stand-in of GitHub, and a stand-in of Slack.
type shop struct {
	*rooms
	t        *testing.T
	engineer *engineer.Engineer
	github   *githubtest.Server
	repo     *githubtest.Repo
	slack    *slacktest.Server
}

func openShop(t *testing.T, change func(*engineer.Engineer)) *shop {
	t.Helper()
	return openShopWith(t, nil, change)
}

// openShopWith is like openShop, with the hosts that containers may reach.
func openShopWith(t *testing.T, egress []string, change func(*engineer.Engineer)) *shop {
	t.Helper()
	return openShopServing(t, egress, change, nil)
}

// shopHost is the engineer of a shop, which is made after its executor.
type shopHost struct{ k *shop }

func (h shopHost) Sweep(ctx context.Context, repo string, c record.Caller, dry bool) (string, error) {
	return h.k.engineer.Sweep(ctx, repo, c, dry)
}

func (h shopHost) Writer(repo string) (gitd.Upstream, bool) { return h.k.engineer.Writer(repo) }

func (h shopHost) Propose(ctx context.Context, p upstream.Proposal) (record.Pull, error) {
	return h.k.engineer.Propose(ctx, p)
}

// openShopServing is like openShopWith, and changes the server too.
func openShopServing(t *testing.T, egress []string, change func(*engineer.Engineer), serve func(*shop, *gateway.Server)) *shop {
	t.Helper()
	goroutines.Watch(t) // before the stand-in, which ends later
	k := &shop{t: t, github: githubtest.New(t, func(s *githubtest.Server) {
		// A delivery that is not answered in time is not repeated. Only the next look would find its event.
		s.PostsPerMinute, s.Hourly, s.AckTime = -1, -1, time.Minute
		s.Addr = loopback.Address(t) // a fixed address, so that the server can stop and start again
	}), slack: slacktest.New(t)}
	var err error
	if k.repo, err = k.github.AddRepo("app", ""); err != nil {
		t.Fatal(err)
	}
	agents := map[string]agent.Agent{"scripted": scriptedAgent(t)}
	app := &github.App{ID: k.github.App, Installation: k.github.Installation, Key: k.github.Key, URL: k.github.API()}
	from := gitd.Upstream{URL: k.github.Upstream("app"),
		Credential: github.Credential(app, k.github.Upstream("app"), github.AccessWrite)}
	options := func(x *executor.Executor) {
		x.Options.Agents, x.Options.Egress, x.Bases.Hosts = agents, egress, []upstream.Host{shopHost{k}}
		x.Bases.Sources = map[string]upstream.Source{"app": {Upstream: from}}
	}
	k.rooms = openExecutor(t, true, options, func(s *gateway.Server) {
		client := &github.Client{URL: k.github.API(), Web: k.github.URL(), Tokens: app}
		k.engineer = &engineer.Engineer{Executor: s.Executor, Git: s.Git, Links: s.Links,
			Upstream: func(repo string) (gitd.Upstream, forge.Repo, bool) {
				return from, forge.Repo{Forge: client, Name: forge.Name{Owner: "acme", Repo: "app"}}, repo == "app"
			},
			Slack:    &slack.Client{URL: k.slack.API(), Token: k.slack.Token},
			Settings: engineer.Settings{Channel: "C01", Gather: 20 * time.Millisecond},
			Log:      slog.New(slog.NewTextHandler(testWriter{t}, nil)),
		}
		s.Engineer, s.Hooks = k.engineer, map[string]engineer.Hook{"github": {Forge: client,
			Parse: func(h http.Header, body []byte) (forge.Delivery, error) {
				return github.ParseDelivery(h, body, k.github.HookSecret)
			}}}
		if change != nil {
			change(k.engineer)
		}
		if serve != nil {
			serve(k, s)
		}
		if _, err := s.Git.ImportFrom(t.Context(), "app", from, false, nil); err != nil {
			t.Fatal(err)
		}
	})
	k.github.SetHook(k.web.URL + "/webhooks/github")
	k.open()
	t.Cleanup(func() {
		if err := k.engineer.Close(); err != nil {
			t.Error(err)
		}
		k.slack.Close()
	})
	return k
}

func (k *shop) open() {
	k.t.Helper()
	if err := k.engineer.Open(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// submit submits a task whose agent executes the lines.
func (k *shop) submit(lines ...string) record.Task {
	k.t.Helper()
	t, err := k.engineer.Submit(k.t.Context(), engineer.Submission{Description: strings.Join(lines, "\n"), Agent: "scripted",
		Asker: gitd.Person{Name: "Ada", Email: "ada@example.org"}})
	if err != nil {
		k.t.Fatal(err)
	}
	return t
}

// until waits until ready returns true for a task.
func (k *shop) until(id, what string, ready func(record.Task) bool) record.Task {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		t, err := k.engineer.Task(ctx, id)
		if err != nil {
			k.t.Fatal(err)
		}
		if ready(t) {
			return t
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			k.t.Fatalf("%s: %+v\n%s", what, t, k.story(t))
		}
	}
}

// atWork waits until the agent of a task's nth work has begun. Its container exists then.
func (k *shop) atWork(id string, n int) record.Task {
	k.t.Helper()
	return k.until(id, fmt.Sprintf("the agent at work %d", n), func(t record.Task) bool {
		run, err := k.Executor.Run(context.Background(), fmt.Sprintf("conv:%s/work-%d", t.ID, n))
		return err == nil && run.State == record.StateRunning && run.Step != ""
	})
}

// settled waits until a task is in a state and all its messages are posted.
func (k *shop) settled(id string, state record.State) record.Task {
	k.t.Helper()
	return k.until(id, "waiting for "+string(state),
		func(t record.Task) bool { return t.Status == state && t.Unposted == 0 })
}

// story returns all known events of a task.
func (k *shop) story(t record.Task) string {
	var b strings.Builder
	for _, run := range append([]string{t.Run}, t.Work...) {
		fmt.Fprintf(&b, "%s\n", run)
		for e, err := range k.Executor.Events(context.Background(), run, 0, false) {
			if err != nil {
				fmt.Fprintln(&b, err)
				break
			}
			fmt.Fprintf(&b, "  %d %s %s %s %s %.300s\n", e.Seq, e.Type, e.Kind, e.Step, e.Message, e.Data)
		}
	}
	for _, p := range k.repo.Pulls() {
		fmt.Fprintln(&b, p)
	}
	for _, m := range k.slack.Messages("C01") {
		fmt.Fprintln(&b, m.ThreadTS, m.Text)
	}
	return b.String()
}

// thread returns the messages in the task's thread in Slack.
func (k *shop) thread(t record.Task) (texts []string) {
	for _, m := range k.slack.Messages("C01") {
		if m.TS == t.SlackThreadTS || m.ThreadTS == t.SlackThreadTS {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// TestEngineer follows a task from its submission to its merge, with a review.
func TestEngineer(t *testing.T) {
	t.Parallel()
	k := openShop(t, func(e *engineer.Engineer) {
		e.Settings.DeleteBranch, e.Settings.Status, e.Settings.Labels = true, true, []string{"ramus"}
	})
	task := k.submit("write made.txt made")
	if task.Status != record.StateSubmitted || task.ID == "" {
		t.Fatalf("%+v", task)
	}
	task = k.settled(task.ID, record.StateAwaitingReview)
	pull := k.repo.Pull(task.PRNumber)
	if pull.State != "open" || pull.URL != task.PRURL || pull.Head != task.Branch ||
		!strings.Contains(pull.Body, "made.txt") || len(pull.Labels) != 1 {
		t.Errorf("%v\n%s", pull, k.story(task))
	}
	if state, text := k.repo.StatusOf(k.repo.Head(task.Branch), forge.StatusName); state != forge.StatusPending ||
		!strings.HasPrefix(text, "not verified: ") {
		t.Errorf("the status is %q %q", state, text)
	}
	if text, err := k.repo.File(task.Branch, "made.txt"); err != nil || text != "made" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := k.repo.CommentLine("reviewer", pull.Number, "made.txt", 1, "append made.txt more"); err != nil {
		t.Fatal(err)
	}
	task = k.until(task.ID, "the comment's work", func(t record.Task) bool {
		return len(t.Work) == 2 && t.Status == record.StateAwaitingReview && t.Unposted == 0
	})
	if text, err := k.repo.File(task.Branch, "made.txt"); err != nil || text != "made\nmore" {
		t.Errorf("%q, %v\n%s", text, err, k.story(task))
	}
	pull = k.repo.Pull(task.PRNumber)
	if len(pull.Lines) != 2 || pull.Lines[1].ReplyTo != pull.Lines[0].ID || len(pull.Requested) != 1 {
		t.Errorf("%v", pull)
	}
	if _, err := k.repo.Review("reviewer", pull.Number, "changes_requested", "append made.txt again"); err != nil {
		t.Fatal(err)
	}
	task = k.until(task.ID, "the review's work", func(t record.Task) bool {
		return len(t.Work) == 3 && t.Status == record.StateAwaitingReview && t.Unposted == 0
	})
	if err := k.repo.Approve("reviewer", pull.Number, "good"); err != nil {
		t.Fatal(err)
	}
	k.until(task.ID, "the approval", func(t record.Task) bool { return t.Approved })
	if _, err := k.repo.Merge("reviewer", pull.Number, "squash"); err != nil {
		t.Fatal(err)
	}
	task = k.settled(task.ID, record.StateComplete)
	if head := k.repo.Head(task.Branch); head != "" {
		t.Errorf("the branch is still at %s", head)
	}
	status, err := k.Executor.Caller(t.Context(), "conv:"+task.ID)
	if err != nil || status.Container != nil {
		t.Errorf("%+v, %v", status, err)
	}
	want := []string{"🔨 New task received: write made.txt made", "⚙️", "🚀 PR raised: " + task.PRURL + " — awaiting review",
		`💬 Addressing: "append made.txt more"`, "✅ Changes pushed, re-review requested",
		`💬 Addressing: "append made.txt again"`,
		"✅ Changes pushed, re-review requested", "🎉 Merged: " + task.PRURL}
	got := k.thread(task)
	for n := len(got) - 1; n > 1; n-- {
		if strings.HasPrefix(got[n], "⚙️") { // repeated once a minute at most, and the duration of the test is not known
			got = slices.Delete(got, n, n+1)
		}
	}
	ok := len(got) == len(want)
	for i := range want {
		ok = ok && i < len(got) && strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("the thread says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if t.Failed() {
		t.Log(k.story(task))
	}
}

// TestEngineerStatusRefused checks that a task goes on if the App may not set a status.
func TestEngineerStatusRefused(t *testing.T) {
	t.Parallel()
	k := openShop(t, func(e *engineer.Engineer) { e.Settings.Status = true })
	k.github.Permissions = maps.Clone(k.github.Permissions)
	delete(k.github.Permissions, "statuses")
	task := k.settled(k.submit("write made.txt made").ID, record.StateAwaitingReview)
	if state, _ := k.repo.StatusOf(k.repo.Head(task.Branch), forge.StatusName); state != "" || task.PRNumber == 0 {
		t.Errorf("the status is %q\n%s", state, k.story(task))
	}
	if all := k.github.TakeComplaints(); len(all) != 1 || !strings.Contains(all[0], "statuses=write") {
		t.Errorf("%q", all)
	}
}

func scriptedAgent(t *testing.T) agent.Agent {
	t.Helper()
	script, err := os.ReadFile("../examples/agents/scripted.sh")
	if err != nil {
		t.Fatal(err)
	}
	return agent.Agent{Command: []string{"sh", "-c", string(script), "scripted"},
		Resume: []string{"sh", "-c", string(script), "scripted", "--resume"}, State: []string{".scripted"}}
}
