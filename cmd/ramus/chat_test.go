package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// chatServer is the real binary serving a stand-in of Slack. It can be killed
// and started again on the same data folder and address.
type chatServer struct {
	t       testing.TB
	slack   *slacktest.Server
	binary  string
	data    string
	addr    string
	environ []string
	cmd     *exec.Cmd
	read    sync.WaitGroup // the server's log

	mu  sync.Mutex
	log bytes.Buffer
}

const chatOwner = "U01"

// newChatServer makes the data folder, with the sample as the repository "sample". It does not
// start the server. settings are lines of the configuration. Without an engine in them the
// engine is the Sandbox. options configure the stand-in.
func newChatServer(t testing.TB, settings string, options ...func(*slacktest.Server)) *chatServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "chat")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // containers of another user start the binary
		t.Fatal(err)
	}
	s := &chatServer{t: t, slack: slacktest.New(t, options...), binary: filepath.Join(dir, "bin", "ramus"),
		data: filepath.Join(dir, "data")}
	s.slack.AckTime = time.Minute
	if err := programs.Into(filepath.Dir(s.binary), "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(settings, "engine:") {
		settings = "engine: sandbox\n" + settings
		sandbox := &sandbox.Engine{Dir: t.TempDir(), Runner: s.binary}
		if err := sandbox.Check(t.Context()); err != nil {
			t.Skipf("cannot run here: sandboxes: %v", err)
		}
	}
	s.addr = loopback.Address(t)
	s.slack.SetRequestURLs("http://"+s.addr+"/slack/events", "http://"+s.addr+"/slack/commands",
		"http://"+s.addr+"/slack/interactions")
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`listen: %s
url: http://%s
slack:
  token_env: SLACK_TOKEN
  signing_secret_env: SLACK_SIGNING_SECRET
  url: %s
  edit_every: 500ms
gate:
  enabled: true
  thread_starters: [%s]
%s`, s.addr, s.addr, s.slack.API(), chatOwner, settings)
	if err := os.WriteFile(filepath.Join(s.data, "ramus.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "RAMUS_DATA=" + s.data, "NO_COLOR=1",
		"GIT_CONFIG_NOSYSTEM=1",
		"SLACK_TOKEN=" + s.slack.Token, "SLACK_SIGNING_SECRET=" + s.slack.SigningSecret}
	s.environ = append(s.environ, testWay()...)
	src := filepath.Join(dir, "sample")
	s.sh(dir, `cp -r "$0" sample && cd sample && git init -q -b main && git add -A && git -c user.name=T -c user.email=t@example.org commit -qm sample`,
		abs(t, "../../examples/sample"))
	s.ramus("repo", "import", "sample", src)
	t.Cleanup(func() {
		s.kill(syscall.SIGTERM)
		s.ramus("ps") // a command with its own server removes the containers that are left
		remains.Check(t, dir)
		if t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			text := s.log.String()
			t.Logf("the end of the server's log:\n%s", text[max(0, len(text)-8000):])
		}
	})
	return s
}

func abs(t testing.TB, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *chatServer) sh(dir, script string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command("sh", append([]string{"-ec", script}, args...)...)
	cmd.Dir, cmd.Env = dir, s.environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// ramus runs a command of the binary.
func (s *chatServer) ramus(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(s.binary, args...)
	cmd.Env = s.environ
	out, err := cmd.Output()
	if err != nil {
		s.t.Errorf("ramus %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// start starts the server, and returns when it serves.
func (s *chatServer) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.binary, "serve")
	s.cmd.Env = s.environ
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	up := make(chan struct{})
	s.read.Go(func() {
		serving := sync.OnceFunc(func() { close(up) })
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if strings.Contains(lines.Text(), `msg="serving HTTP"`) {
				serving()
			}
			s.mu.Lock()
			fmt.Fprintln(&s.log, lines.Text())
			s.mu.Unlock()
		}
		serving()
	})
	select {
	case <-up:
	case <-time.After(time.Minute):
		s.t.Fatal("the server does not serve")
	}
}

// kill ends the server, when it runs.
func (s *chatServer) kill(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	s.read.Wait()
	if err := s.cmd.Wait(); err != nil && sig == syscall.SIGTERM {
		s.t.Errorf("the server ended with %v", err)
	}
	s.cmd = nil
}

// part returns ramus's messages of one kind in a thread.
func (s *chatServer) part(thread, part string) []slacktest.Message {
	var found []slacktest.Message
	for _, m := range s.slack.Own("C01", thread) {
		var mark slack.Mark
		if m.Metadata != nil && json.Unmarshal(m.Metadata.Payload, &mark) == nil && mark.Part == part {
			found = append(found, m)
		}
	}
	return found
}

// until waits until a condition holds in the workspace.
func (s *chatServer) until(what string, within time.Duration, done func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	if err := s.slack.Until(ctx, done); err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

func (s *chatServer) say(thread, text string) (ts string) {
	return s.slack.Say(chatOwner, "C01", thread, "<@"+s.slack.BotUser+"> "+text)
}

// runs returns the runs in the server's refs, as `ramus` itself reads them.
func (s *chatServer) runs() (runs []record.Run) {
	s.t.Helper()
	out := s.sh(s.data, `for r in repos/*.git; do git -C "$r" for-each-ref --format="$r %(refname)" refs/ramus/runs; done`)
	for line := range strings.Lines(out) {
		repo, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		var r record.Run
		if err := json.Unmarshal([]byte(s.sh(s.data, `git -C "$0" cat-file blob "$1:run.json"`, repo, ref)), &r); err != nil {
			s.t.Fatal(err)
		}
		runs = append(runs, r)
	}
	return runs
}

// settle waits until every run has ended and its thread has the result.
func (s *chatServer) settle() {
	s.t.Helper()
	open := ""
	for range 1200 {
		open = ""
		for _, r := range s.runs() {
			if !r.Ended() || r.Told == nil {
				open = fmt.Sprintf("%s is %s, told %v", r.Name(), r.State, r.Told)
			}
		}
		if open == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Errorf("after two minutes %s", open)
}

// TestChatSmoke runs the smoke test of the gate by its script, like people do.
func TestChatSmoke(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	cmd := exec.Command(abs(t, "../../scripts/demo-slack.sh"), "smoke")
	cmd.Env = append(os.Environ(), "RAMUS="+s.binary, "TMPDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "runner=container reason=explicit-prefix") {
		t.Errorf("the smoke test: %v\n%s", err, out)
	}
}

// TestChatMention is the shortest story. It has a mention, its evidence, and a second mention.
func TestChatMention(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	s.start()
	if err := s.slack.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	ts := s.say("", "exec echo one > one.txt")
	s.until("the first result", time.Minute, func() bool { return len(s.part(ts, "result")) == 1 })
	// The index and every container are deleted. The state must survive that.
	s.kill(syscall.SIGTERM)
	remains.KillContainers(s.data)
	s.sh(s.data, "rm -f index.db; rm -rf hosts sandbox")
	s.start()
	s.say(ts, "exec cat one.txt && echo two > two.txt")
	s.until("the second result", time.Minute, func() bool { return len(s.part(ts, "result")) == 2 })
	s.say(ts, "status")
	s.until("the status", time.Minute, func() bool { return len(s.part(ts, "result")) == 3 })
	status := string(s.part(ts, "result")[2].Blocks)
	if !strings.Contains(status, "2 runs") || !strings.Contains(status, "echo one") {
		t.Errorf("the status: %s", status)
	}
	runs := s.runs()
	if len(runs) != 3 || runs[0].Branch != runs[1].Branch || runs[0].State != record.StateComplete ||
		runs[1].State != record.StateComplete {
		t.Errorf("runs: %+v", runs)
	}
}

// TestChatSocketMode is TestChatMention without any address that Slack could reach.
func TestChatSocketMode(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	s.sh(s.data, `sed -i -e 's/^  signing_secret_env: .*/  app_token_env: SLACK_APP_TOKEN/' "$0"`,
		filepath.Join(s.data, "ramus.yaml"))
	s.environ = append(s.environ, "SLACK_APP_TOKEN="+s.slack.AppToken)
	s.slack.SocketMode = true // nothing is delivered yet
	s.start()
	s.until("a socket", time.Minute, func() bool { return s.slack.Sockets() > 0 })
	ts := s.say("", "exec echo one > one.txt")
	s.until("the first result", time.Minute, func() bool { return len(s.part(ts, "result")) == 1 })
	s.slack.Disconnect("refresh_requested")
	s.until("a new socket", time.Minute, func() bool { return s.slack.Sockets() > 0 })
	s.say(ts, "exec cat one.txt")
	s.until("the second result", time.Minute, func() bool { return len(s.part(ts, "result")) == 2 })
	if _, err := s.slack.Press(t.Context(), chatOwner, "C01", s.part(ts, "result")[0].TS, "diff", ""); err != nil {
		t.Error(err)
	}
	s.until("the diff", time.Minute, func() bool { return len(s.part(ts, "result")) == 3 })
	s.settle()
}

// TestChatKilled kills the server between claim and answer, and between a run's end and its
// reply. Each mention has one run and one reply.
func TestChatKilled(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	s.slack.Retries = []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second, 3 * time.Second,
		20 * time.Second, 20 * time.Second}
	rounds := 6
	if n, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES")); err == nil && n > 0 {
		rounds = n
	}
	var threads []string
	for i := range rounds {
		s.start()
		switch i % 3 {
		case 0: // the claim is made, and the thread cannot be read yet
			s.slack.Fail(slacktest.Fault{Method: "conversations.replies", Delay: 30 * time.Second})
			ts := s.say("", fmt.Sprintf("exec echo %d > file.txt", i))
			threads = append(threads, ts)
			ref := "*/C01-" + ts
			s.poll("the mention is not claimed", func() bool {
				return strings.TrimSpace(s.sh(s.data,
					`git -C repos/sample.git for-each-ref "refs/ramus/runs/`+ref+`"`)) != ""
			})
		case 1: // the result is posted, and the answer to that is lost with the server
			ts := s.say("", fmt.Sprintf("exec echo %d > file.txt", i))
			threads = append(threads, ts)
			s.until("the result", time.Minute, func() bool { return len(s.part(ts, "result")) == 1 })
		case 2: // it has been at work for a while
			ts := s.say("", fmt.Sprintf("exec sleep 1; echo %d > file.txt", i))
			threads = append(threads, ts)
			// On a slow machine the run may end first.
			s.until("progress", time.Minute,
				func() bool { return len(s.part(ts, "progress"))+len(s.part(ts, "result")) > 0 })
		}
		s.kill(syscall.SIGKILL)
		s.slack.Heal()
	}
	s.start()
	s.until("all results", 2*time.Minute, func() bool {
		return !slices.ContainsFunc(threads, func(ts string) bool { return len(s.part(ts, "result")) == 0 })
	})
	s.settle()
	s.kill(syscall.SIGTERM)
	s.start() // no further message is sent
	s.kill(syscall.SIGTERM)
	runs := map[string]int{}
	for _, r := range s.runs() {
		runs[r.ID]++
	}
	for i, ts := range threads {
		if n := runs["C01-"+ts]; n != 1 {
			t.Errorf("mention %d has %d runs", i, n)
		}
		if p, r := len(s.part(ts, "progress")), len(s.part(ts, "result")); p > 1 || r != 1 {
			t.Errorf("mention %d has %d progress messages and %d replies", i, p, r)
		}
	}
}

// TestChatBursts sends each mention five times concurrently, half through its twin envelope.
func TestChatBursts(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	s.start()
	mentions := 50
	if os.Getenv("RAMUS_TEST") == "full" {
		mentions = 200
	}
	var stamps []string
	for i := range mentions {
		stamps = append(stamps, s.slack.Write(chatOwner, "C01", "", fmt.Sprintf("<@%s> exec echo %d", s.slack.BotUser, i)))
	}
	var wg sync.WaitGroup
	gate := make(chan struct{}, 40)
	for _, ts := range stamps {
		for i := range 5 {
			gate <- struct{}{}
			wg.Go(func() {
				defer func() { <-gate }()
				body := s.slack.Envelopes("C01", ts)[i%2]
				for _, a := range s.slack.Deliver(t.Context(), body) {
					if a.Status != 200 {
						t.Errorf("status %d: %s %v", a.Status, a.Answer, a.Err)
					}
				}
			})
		}
	}
	wg.Wait()
	s.until("all results", 5*time.Minute, func() bool {
		return !slices.ContainsFunc(stamps, func(ts string) bool { return len(s.part(ts, "result")) == 0 })
	})
	s.kill(syscall.SIGTERM)
	refs := strings.Fields(s.sh(s.data, `git -C repos/sample.git for-each-ref --format="%(refname)" refs/ramus/runs`))
	if len(refs) != mentions {
		t.Errorf("%d mentions made %d runs", mentions, len(refs))
	}
	for _, ts := range stamps {
		if n := len(s.part(ts, "result")); n != 1 {
			t.Errorf("mention %s has %d replies", ts, n)
		}
	}
}

// TestChatEngineHangs mentions ramus while the container engine takes requests and never answers.
func TestChatEngineHangs(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var held sync.WaitGroup
	held.Go(func() {
		var all []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			all = append(all, c)
		}
		for _, c := range all {
			c.Close()
		}
	})
	defer held.Wait()
	defer l.Close()
	config := filepath.Join(s.data, "ramus.yaml")
	s.sh(s.data, `sed -i 's/^engine: .*/engine: docker/' "$0"`, config)
	s.environ = append(s.environ, "DOCKER_HOST=unix://"+socket)
	s.start()
	var slowest time.Duration
	for i := range 20 {
		ts := s.slack.Write(chatOwner, "C01", "", fmt.Sprintf("<@%s> exec echo %d", s.slack.BotUser, i))
		for _, a := range s.slack.Deliver(t.Context(), s.slack.Envelopes("C01", ts)[0]) {
			slowest = max(slowest, a.Took)
			if a.Status != 200 || a.Retry > 0 {
				t.Errorf("status %d after %s: %s %v", a.Status, a.Took, a.Answer, a.Err)
			}
		}
	}
	t.Logf("the slowest acknowledgement took %s", slowest)
	s.until("the progress messages", time.Minute, func() bool {
		n := 0
		for _, m := range s.slack.Messages("C01") {
			if m.BotID != "" {
				n++
			}
		}
		return n >= 20
	})
	s.kill(syscall.SIGTERM)
	s.sh(s.data, `sed -i 's/^engine: .*/engine: sandbox/' "$0"`, config)
	s.start()
	s.settle()
}
