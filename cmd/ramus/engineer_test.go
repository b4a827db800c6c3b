package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// engineerServer is the real binary with an engineer, between a stand-in of
// GitHub, which has the repository "app", and one of Slack.
type engineerServer struct {
	*chatServer
	github *githubtest.Server
	repo   *githubtest.Repo
	local  *client.Client // by the socket, also after restarts
	trap   atomic.Pointer[trap]
}

// newEngineerServer makes both stand-ins and the data folder. It does not start the
// server. settings are further lines of the configuration.
func newEngineerServer(t *testing.T, settings string) *engineerServer {
	t.Helper()
	s := &engineerServer{}
	s.github = githubtest.New(t, func(g *githubtest.Server) {
		g.Hourly, g.PostsPerMinute = -1, -1
		g.AckTime = time.Minute // GitHub does not deliver again
		g.On = func(c githubtest.Change) { s.see(c) }
	})
	var err error
	if s.repo, err = s.github.AddRepo("app", ""); err != nil {
		t.Fatal(err)
	}
	secrets := t.TempDir()
	key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(s.github.Key)})
	for name, text := range map[string][]byte{"key": key, "webhook": []byte(s.github.HookSecret)} {
		if err := os.WriteFile(filepath.Join(secrets, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings += scripted(t, "timeout: 1m") + fmt.Sprintf(`
github: {url: %s, app_id: %d, installation_id: %d, key_file: %s/key, webhook_secret_file: %s/webhook}
engineer: {repo: app, slack_channel: C01, gather: 100ms, delete_branch: true, labels: [ramus]}
repos: {app: {upstream: %s}}
`, s.github.URL(), s.github.App, s.github.Installation, secrets, secrets, s.github.Upstream("app"))
	s.chatServer = newChatServer(t, settings, func(w *slacktest.Server) { w.On = func(c slacktest.Change) { s.see(c) } })
	s.github.SetHook("http://" + s.addr + "/webhooks/github")
	s.local = client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, s.data) })
	t.Cleanup(s.local.Close)
	return s
}

// trap kills the server at a point. at is called for every change at a stand-in,
// before the answer to the request that made the change.
type trap struct {
	at     func(change any) bool
	victim *os.Process
	sprung chan struct{}
}

// see is called for every change.
func (s *engineerServer) see(change any) {
	t := s.trap.Load()
	if t == nil || !t.at(change) || !s.trap.CompareAndSwap(t, nil) {
		return
	}
	_ = t.victim.Kill()
	for range 300_000 { // until the server can receive no answer any more
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", t.victim.Pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			break
		}
		time.Sleep(200 * time.Microsecond)
	}
	close(t.sprung)
}

// set sets a trap for the server that runs now.
func (s *engineerServer) set(at func(change any) bool) *trap {
	t := &trap{at: at, victim: s.cmd.Process, sprung: make(chan struct{})}
	s.trap.Store(t)
	return t
}

// submit submits a task whose agent follows the lines.
func (s *engineerServer) submit(key string, lines ...string) (record.Task, error) {
	return s.local.SubmitTask(s.t.Context(),
		engineer.Submission{Description: strings.Join(lines, "\n"), Repo: "app", Agent: "scripted", Key: key})
}

// task returns the state of a task. The server must be up.
func (s *engineerServer) task(id string) record.Task {
	s.t.Helper()
	t, err := s.local.Task(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return t
}

// headOf returns the branch of a task's work at GitHub.
func headOf(id string) string {
	if strings.HasPrefix(id, "run-") { // a proposed branch
		return "ramus/" + id
	}
	return "ramus/conv-" + id
}

// pulls returns a task's pull requests.
func (s *engineerServer) pulls(id string) []githubtest.Pull {
	return slices.DeleteFunc(s.repo.Pulls(), func(p githubtest.Pull) bool { return p.Head != headOf(id) })
}

// story is a person's work with one task. The person submits the task, comments on
// its pull request, and merges the answer. The person waits only for events at
// GitHub, so the story does not depend on whether the server is up.
type story struct {
	s       *engineerServer
	name    string
	file    string // that it works on
	id      string
	submit  []string // further lines of its agent's prompt
	comment string   // lines of the comment
}

// wait waits until a condition holds at GitHub.
func (y *story) wait(what string, ready func() bool) error {
	ctx, cancel := context.WithTimeout(y.s.t.Context(), 2*time.Minute)
	defer cancel()
	return y.s.github.Until(ctx, y.name+": "+what, ready)
}

// begin submits the task, repeatedly until the server answers.
func (y *story) begin() error {
	for range 1200 {
		t, err := y.s.submit(y.name, append([]string{"write " + y.file + " made"}, y.submit...)...)
		if err == nil {
			y.id = t.ID
			return nil
		}
		if answer := (*route.Problem)(nil); errors.As(err, &answer) {
			return fmt.Errorf("%s: %w", y.name, err)
		}
		time.Sleep(50 * time.Millisecond) // there is no server
	}
	return fmt.Errorf("%s: it cannot be submitted", y.name)
}

// end continues the story to its end.
func (y *story) end() error {
	if err := y.wait("a pull request", func() bool { return len(y.s.pulls(y.id)) > 0 }); err != nil {
		return err
	}
	number := y.s.pulls(y.id)[0].Number
	if _, err := y.s.repo.CommentLine("reviewer", number, y.file, 1, "append "+y.file+" more\n"+y.comment); err != nil {
		return err
	}
	err := y.wait("a reply, and to be asked for a review", func() bool {
		p := y.s.repo.Pull(number)
		return len(p.Lines) > 1 && len(p.Requested) > 0
	})
	if err != nil {
		return err
	}
	if _, err := y.s.repo.Merge("reviewer", number, "squash"); err != nil {
		return err
	}
	return y.wait("the branch's end", func() bool { return y.s.repo.Head(headOf(y.id)) == "" })
}

// check returns the faults at the end of the story.
func (y *story) check() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(y.name+": "+format, args...)) }
	s := y.s
	var task record.Task
	s.poll(y.name+" is not complete", func() bool {
		task = s.task(y.id)
		return task.Status == record.StateComplete && task.Unposted == 0
	})
	pulls := s.pulls(y.id)
	if len(pulls) != 1 {
		fault("%d pull requests", len(pulls))
		return faults
	}
	p := pulls[0]
	if len(p.Lines) != 2 || p.Lines[1].ReplyTo != p.Lines[0].ID || len(p.Comments) != 0 || !p.Merged ||
		!slices.Equal(p.Labels, []string{"ramus"}) ||
		task.PRNumber != p.Number || len(task.Work) != 2 {
		fault("%+v\n%s", task, p)
	}
	if text, err := s.repo.File("main", y.file); err != nil || text != "made\nmore" {
		fault("%s is %q, %v", y.file, text, err)
	}
	var thread []string
	working := 0 // once for each full minute, and at most once for each work here
	for _, m := range s.slack.Messages("C01") {
		switch {
		case m.TS != task.SlackThreadTS && m.ThreadTS != task.SlackThreadTS:
		case strings.HasPrefix(m.Text, "⚙️"):
			working++
		default:
			thread = append(thread, m.Text)
		}
	}
	want := []string{"🔨 New task received: write " + y.file, "🚀 PR raised: " + p.URL, "💬 Addressing: ",
		"✅ Changes pushed", "🎉 Merged: " + p.URL}
	if !slices.EqualFunc(thread, want, strings.HasPrefix) || working < 1 || working > 2 {
		fault("the thread says, and %d times what is done\n%s", working, strings.Join(thread, "\n"))
	}
	return faults
}

// left returns the remains of a server that has ended, and the gaps in its records.
func (s *engineerServer) left() (faults []string) {
	s.t.Helper()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	s.sh(s.data, `for r in repos/*.git "$0"/*/*.git; do git -C "$r" fsck --strict --no-dangling; done`, s.github.Root)
	if live, err := filepath.Glob(filepath.Join(s.data, "live", "*", "*")); err != nil || len(live) > 0 {
		fault("left in live/: %v, %v", live, err)
	}
	if containers := s.containers(); len(containers) > 0 {
		fault("containers that are left: %+v", containers)
	}
	s.gone(filepath.Dir(s.data))
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || bytes.Contains(mounts, []byte(filepath.Dir(s.data))) {
		fault("mounts that are left: %s, %v", mounts, err)
	}
	runs := map[string]int{}
	for _, r := range s.sealed() {
		runs[r.Name()]++
		if !r.Ended() || r.EndedAt.IsZero() {
			fault("%s has not ended: %s", r.Name(), r.files["run.json"])
		}
		for i, e := range r.events {
			if e.Seq != int64(i)+1 || e.Time.IsZero() {
				fault("%s: event %d is %+v", r.Name(), i+1, e)
			}
		}
		if r.Kind == record.KindConversation {
			var t record.Task
			if err := json.Unmarshal(r.Record, &t); err != nil || t.Unposted != 0 || t.Branch != headOf(t.ID) {
				fault("%s: the record: %v, %s", r.Name(), err, r.Record)
			}
			queued, posted := map[string]int{}, map[string]int{}
			for _, e := range r.events {
				switch e.Type {
				case record.EventOutbox:
					queued[e.Step]++
				case record.EventPosted:
					posted[e.Step]++
					if e.OK == nil || !*e.OK {
						fault("%s: %s was not posted: %s", r.Name(), e.Step, e.Message)
					}
				}
			}
			for key, n := range queued {
				if n != 1 || posted[key] != 1 {
					fault("%s: %s was said %d times, and posted %d times", r.Name(), key, n, posted[key])
				}
			}
		}
	}
	for name, n := range runs {
		if n != 1 {
			fault("%s is there %d times", name, n)
		}
	}
	return faults
}

// finish ends the server, and fails the test for each fault.
func (s *engineerServer) finish(stories ...*story) {
	s.t.Helper()
	for _, y := range stories {
		for _, f := range y.check() {
			s.t.Error(f)
		}
	}
	s.kill(syscall.SIGTERM)
	s.ramus("ps") // its own server removes the containers that were left warm
	for _, f := range s.left() {
		s.t.Error(f)
	}
}

// TestEngineerServed is the shortest story.
func TestEngineerServed(t *testing.T) {
	t.Parallel()
	s := newEngineerServer(t, "")
	s.start()
	y := &story{s: s, name: "served", file: "served.txt"}
	if err := y.begin(); err != nil {
		t.Fatal(err)
	}
	if err := y.end(); err != nil {
		t.Fatal(err)
	}
	s.finish(y)
}

// TestEngineerAway makes GitHub and Slack fail in every phase, in every way, and come
// back. Nothing is lost, and nothing is there twice.
func TestEngineerAway(t *testing.T) {
	t.Parallel()
	s := newEngineerServer(t, "")
	s.start()
	routes := []string{routePulls, routeComment, routeRequest, "PATCH /repos/{owner}/{repo}/pulls/{pull_number}",
		"POST /repos/{owner}/{repo}/issues/{issue_number}/labels", "DELETE /repos/{owner}/{repo}/git/refs/{ref...}"}
	stories := []*story{{s: s, name: "lost"}, {s: s, name: "limited"}, {s: s, name: "down"}}
	for _, y := range stories {
		y.file = y.name + ".txt"
		over := make(chan struct{})
		var weather sync.WaitGroup
		switch y.name {
		case "lost":
			for _, route := range routes {
				s.github.Fail(githubtest.Fault{Route: route, Lose: true}, githubtest.Fault{Route: route, Status: 502})
			}
			for range 2 { // the answer to each push; the request before it asks for the branch's commit
				s.github.Fail(githubtest.Fault{Route: "git-receive-pack", Skip: 1, Lose: true})
			}
			s.slack.Fail(slacktest.Fault{Method: "chat.postMessage", Times: 3, Lose: true},
				slacktest.Fault{Method: "chat.postMessage", Status: 503})
		case "limited":
			for _, route := range append(routes, "GET") {
				s.github.Fail(githubtest.Fault{Route: route, RetryAfter: time.Second},
					githubtest.Fault{Route: route, Cut: true})
			}
			s.github.Fail(githubtest.Fault{Route: "git-receive-pack", Status: 503},
				githubtest.Fault{Route: "git-upload-pack", Cut: true})
			s.slack.Fail(slacktest.Fault{Method: "chat.postMessage", RetryAfter: time.Second},
				slacktest.Fault{Method: "conversations.replies", Cut: true})
		case "down":
			weather.Go(func() {
				for n := 0; ; n++ {
					away, back := s.github.Down, s.github.Up
					if n%2 == 1 {
						away, back = s.slack.Down, s.slack.Up
					}
					away()
					last := !pause(over, 700*time.Millisecond)
					if err := back(); err != nil {
						t.Error(err)
					}
					if last || !pause(over, 500*time.Millisecond) {
						return
					}
				}
			})
		}
		began := time.Now()
		err := y.begin()
		if err == nil {
			err = y.end()
		}
		close(over)
		weather.Wait()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range y.check() {
			t.Error(f)
		}
		s.github.Heal()
		s.slack.Heal()
		for _, c := range s.github.TakeComplaints() {
			// A request that is already under way when another is limited does not
			// know of the limit. It may arrive much later if the machine is busy.
			if y.name != "limited" || !underWay.MatchString(c) {
				t.Errorf("githubtest: %s", c)
			}
		}
		t.Logf("%s: %s", y.name, time.Since(began).Round(10*time.Millisecond))
	}
	s.finish(stories...)
}

// underWay matches a complaint about a request that came soon after a limit of one
// second.
var underWay = regexp.MustCompile(` came (1s|[5-9][0-9]{2}ms) before`)

// pause waits. It returns false if over is closed.
func pause(over <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-over:
		return false
	case <-timer.C:
		return true
	}
}
