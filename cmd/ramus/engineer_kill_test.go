package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/githubtest"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// killPoint is the point of a story at which the server is killed. It is recognized from
// outside. One of at, cut and when is set.
type killPoint struct {
	name string
	// at recognizes a change that was made, and whose answer the server does not get.
	at func(y *story, change any) bool
	// cut is a request at GitHub that is not done. The server is killed before it tries again.
	cut string
	// hold is a request at GitHub that waits until the server is killed, because the task could otherwise end before the
	// point is seen.
	hold string
	// when is polled.
	when func(y *story) bool

	submit, comment string // further lines of the agent's prompts
}

// changed recognizes a change at GitHub by ramus.
func changed(kind string) func(*story, any) bool {
	return func(y *story, change any) bool {
		c, ok := change.(githubtest.Change)
		return ok && c.Kind == kind && c.User == "ramus[bot]"
	}
}

// pushOf recognizes the n-th push of a branch.
func pushOf(n int) func(*story, any) bool {
	seen := 0
	return func(y *story, change any) bool {
		if changed("push")(y, change) {
			seen++
		}
		return seen == n
	}
}

// delivered recognizes the 202 for a webhook.
func delivered(event string) func(*story, any) bool {
	return func(_ *story, change any) bool {
		c, ok := change.(githubtest.Change)
		return ok && c.Kind == "delivery" && c.Ref == "202" && strings.HasPrefix(c.Text, event)
	}
}

// posted recognizes a message in Slack.
func posted(text string) func(*story, any) bool {
	return func(_ *story, change any) bool {
		c, ok := change.(slacktest.Change)
		return ok && c.Kind == "post" && strings.HasPrefix(c.Message.Text, text)
	}
}

// atWork recognizes the first output of an agent in its run's n-th work.
func atWork(n int) func(*story) bool {
	return func(y *story) bool {
		names, err := filepath.Glob(filepath.Join(y.s.data, "live", "*"+y.id+"*", fmt.Sprintf("work-%d.output", n),
			"*.stdout"))
		if err != nil || len(names) == 0 {
			return false
		}
		info, err := os.Stat(names[0])
		return err == nil && info.Size() > 0
	}
}

// The routes that are cut or held.
const (
	routeDeleteRef = "DELETE /repos/{owner}/{repo}/git/refs/{ref...}"

	routePulls   = "POST /repos/{owner}/{repo}/pulls"
	routeComment = "POST /repos/{owner}/{repo}/pulls/{pull_number}/comments"
	routeRequest = "POST /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers"
)

var killPoints = []killPoint{
	{name: "submitted", when: func(y *story) bool { return y.id != "" }},
	{name: "thread-begun", at: posted("🔨")},
	{name: "agent-at-work", when: atWork(1), submit: "sleep 1"},
	{name: "push-before", cut: "git-receive-pack"},
	{name: "push-lost", at: pushOf(1)},
	{name: "pull-before", cut: routePulls},
	{name: "pull-lost", at: changed("open")},
	{name: "raised-lost", at: posted("🚀")},
	{name: "comment-delivered", at: delivered("pull_request_review_comment")},
	{name: "addressing-at-work", when: atWork(2), comment: "sleep 1"},
	{name: "change-push-lost", at: pushOf(2)},
	{name: "reply-before", cut: routeComment},
	{name: "reply-lost", at: changed("reply")},
	{name: "request-before", cut: routeRequest},
	{name: "request-lost", at: changed("request")},
	{name: "merged-delivered", at: delivered("pull_request closed"), hold: routeDeleteRef},
	{name: "branch-deleted", at: changed("delete")},
}

// kill kills the server at a point of a story that has begun, or is about to, and starts it
// again.
func (p killPoint) kill(y *story) {
	s := y.s
	s.t.Helper()
	switch {
	case p.when != nil:
		s.poll(p.name+" is not reached", func() bool { return p.when(y) })
	case p.cut != "":
		err := y.wait(p.name, func() bool {
			for _, r := range s.github.Requests() {
				if r.Route == p.cut && r.Status == 0 {
					return true
				}
			}
			return false
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.kill(syscall.SIGKILL)
	s.github.Heal()
	s.start()
}

// TestEngineerKilled kills the server at every named point of a task's way to its merge.
// Each time there is one pull request, one reply to its comment and one message of each
// kind, and the state is right. RAMUS_CRASHES is the number of further tasks, during which
// the server is killed repeatedly at random moments.
func TestEngineerKilled(t *testing.T) {
	t.Parallel()
	s := newEngineerServer(t, "")
	s.start()
	var stories []*story
	for i, p := range killPoints {
		began := time.Now()
		y := &story{s: s, name: p.name, file: p.name + ".txt", comment: p.comment}
		if p.submit != "" {
			y.submit = []string{p.submit}
		}
		stories = append(stories, y)
		var sprung <-chan struct{}
		if p.at != nil {
			sprung = s.set(func(change any) bool { return p.at(y, change) }).sprung
		} else if p.cut != "" {
			s.github.Fail(githubtest.Fault{Route: p.cut, Times: -1, Cut: true})
		}
		held := make(chan struct{})
		if p.hold != "" {
			s.github.Fail(githubtest.Fault{Route: p.hold, Times: -1, Slow: held})
		}
		if err := y.begin(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- y.end() }()
		if sprung != nil {
			select {
			case <-sprung:
			case err := <-ended:
				t.Fatalf("%s: it was not reached: %v", p.name, err)
			}
		}
		p.kill(y)
		close(held)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		for _, f := range y.check() {
			t.Error(f)
		}
		t.Logf("%d %s: %s", i+1, p.name, time.Since(began).Round(10*time.Millisecond))
	}
	if rounds, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES")); err == nil && rounds > 0 {
		stories = append(stories, s.crash(rounds)...)
	}
	s.finish(stories...)
}

// crash brings that many tasks to their merge, some concurrently, while the server is
// killed at random moments.
func (s *engineerServer) crash(tasks int) (stories []*story) {
	s.t.Helper()
	const abreast = 3
	for len(stories) < tasks {
		ended, waiting := make(chan error), 0
		for range abreast {
			y := &story{s: s, name: fmt.Sprintf("random-%d", len(stories)), comment: "sleep 0.3"}
			y.file, y.submit = y.name+".txt", []string{"sleep 0.3"}
			stories = append(stories, y)
			waiting++
			go func() {
				err := y.begin()
				if err == nil {
					err = y.end()
				}
				ended <- err
			}()
		}
		kills := 0
		for waiting > 0 {
			// Every other time the server runs long enough to make progress.
			pause := time.Duration(rand.Int64N(int64(3 * time.Second)))
			if kills++; kills%2 == 0 {
				pause /= 10
			}
			timer := time.NewTimer(pause)
			select {
			case err := <-ended:
				if waiting--; err != nil {
					s.t.Error(err)
				}
			case <-timer.C:
				s.kill(syscall.SIGKILL)
				s.start()
			}
			timer.Stop()
		}
	}
	return stories
}
