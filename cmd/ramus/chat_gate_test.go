package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/fallback"
	"github.com/ramus-dev/ramus/internal/standin/fallbacktest"
)

// TestGateOfRepositories has a person with all rights use rules, excluded repositories and the word
// that hands a thread over.
func TestGateOfRepositories(t *testing.T) {
	t.Parallel()
	runner, web := fallbacktest.New()
	t.Cleanup(web.Close)
	runner.Answer = func(p fallback.Packet) string { return "elsewhere: " + p.Text }
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(fallbacktest.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newChatServer(t, fmt.Sprintf("fallback: {url: %q, secret_file: %q}\n", web.URL, secret))
	config := filepath.Join(s.data, "ramus.yaml")
	s.sh(s.data, `sed -i 's/^  thread_starters:.*/&\n  repos: ["!closed"]/; s/^  edit_every:.*/&\n  repo: sample\n  rules:\n    - {words: [the library], repo: lib}\n    - {words: [treasure], repo: closed}/' "$0"`, config)
	for _, name := range []string{"lib", "closed"} {
		s.ramus("repo", "import", name, filepath.Join(s.data, "repos", "sample.git"))
	}
	s.start()

	ask := func(thread, text string) (string, string) {
		t.Helper()
		before := 0
		if thread != "" {
			before = len(s.part(thread, "result"))
		}
		ts := s.say(thread, text)
		if thread == "" {
			thread = ts
		}
		s.until("the result of "+text, time.Minute, func() bool { return len(s.part(thread, "result")) == before+1 })
		last := s.part(thread, "result")[before]
		return thread, last.Text + string(last.Blocks)
	}
	repoOf := func(command string) string {
		t.Helper()
		for _, r := range s.runs() {
			if r.Kind == record.KindExec && r.Command == command {
				return r.Repo
			}
		}
		return ""
	}

	// The words of the first mention lead to a repository, and the thread stays with it.
	thread, _ := ask("", "exec echo in the library")
	if got := repoOf("echo in the library"); got != "lib" {
		t.Errorf("a rule leads to %q", got)
	}
	ask(thread, "exec echo again")
	if got := repoOf("echo again"); got != "lib" {
		t.Errorf("the thread goes on in %q", got)
	}
	ask("", "exec echo elsewhere")
	if got := repoOf("echo elsewhere"); got != "sample" {
		t.Errorf("without a rule it leads to %q", got)
	}

	// Nobody gets at a closed repository, by a word, by a rule or by a name in a thread of another one.
	for _, text := range []string{"repo:closed exec cat README.md", "exec cat the treasure"} {
		if _, said := ask("", text); !strings.Contains(said, "elsewhere: "+text) {
			t.Errorf("%s: %s", text, said)
		}
	}
	if _, said := ask(thread, "repo:closed exec ls"); strings.Contains(said, "exit 0") {
		t.Errorf("in the thread of another repository: %s", said)
	}
	if slices.ContainsFunc(s.runs(), func(r record.Run) bool { return r.Repo == "closed" && r.Kind != record.KindRequest }) {
		t.Error("something ran in the closed repository")
	}

	// A word hands an admitted thread over, and only that mention.
	if _, said := ask(thread, "fallback: build the Mac app"); !strings.Contains(said, "elsewhere: build the Mac app") {
		t.Errorf("handed over: %s", said)
	}
	if _, said := ask(thread, "fallback"); !strings.Contains(said, "elsewhere: @ramus exec echo in the library") &&
		!strings.Contains(said, "elsewhere: exec echo in the library") {
		t.Errorf("handed over without words: %s", said)
	}
	ask(thread, "exec echo here")
	if got := repoOf("echo here"); got != "lib" {
		t.Errorf("then the thread goes on in %q", got)
	}
	if _, said := ask("", "fallback"); !strings.Contains(said, "Say what the fallback runner is to do") {
		t.Errorf("handed over without anything: %s", said)
	}
	requests := runner.Requests()
	var p fallback.Packet
	if len(requests) != 4 || json.Unmarshal(requests[2].Body, &p) != nil || p.Text != "build the Mac app" || len(p.Thread.Replies) == 0 {
		t.Errorf("%d requests, the packet is %+v", len(requests), p)
	}
}
