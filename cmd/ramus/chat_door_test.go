package main

import (
	"bufio"
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

// TestChatDoor has a thread's agent use the session's tools at its door. It leaves a note for its next turn, and
// requests one run after its own. That run cannot request another, and speaks in the thread too.
func TestChatDoor(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, `agents:
  door:
    command:
      - sh
      - -c
      - |
        cat >>said.txt
        { cat <<'END'
        {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
        {"jsonrpc":"2.0","method":"notifications/initialized"}
        {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"resume_code_session","arguments":{"prompt":"a word to myself"}}}
        {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"start_code_session","arguments":{"prompt":"what comes after"}}}
        {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"reply_to_thread","arguments":{"text":"a word to the thread"}}}
        END
        } | /ramus mcp >>answers.txt
`)
	s.start()
	ts := s.say("", "use the door")
	s.until("the result", time.Minute, func() bool { return len(s.part(ts, "result")) == 1 })
	ended := func() (runs []record.Run) {
		for _, r := range s.runs() {
			if r.Kind == record.KindAgent && r.Ended() {
				runs = append(runs, r)
			}
		}
		return runs
	}
	s.poll("the run after it does not end", func() bool { return len(ended()) == 2 })
	runs := ended()
	if len(runs) != 2 || len(s.runs()) != 2 {
		t.Fatalf("%d runs have ended of %d", len(runs), len(s.runs()))
	}
	first, second := runs[0], runs[1]
	if first.Parent != "" {
		first, second = second, first
	}
	if second.Parent != first.Name() || second.Branch != first.Branch || second.State != record.StateComplete ||
		second.Asker != first.Asker {
		t.Errorf("the run after: %+v", second)
	}
	read := func(file string) string {
		return s.sh(s.data, `git -C repos/sample.git show "$0"`, first.Branch+":"+file)
	}
	if said := read("said.txt"); strings.Count(said, "a word to myself") != 1 || strings.Count(said, "what comes after") != 1 {
		t.Errorf("said:\n%s", said)
	}
	if answers := read("answers.txt"); strings.Count(answers,
		`"structuredContent":{"run":"`+second.Name()) != 2 || // both turns of the first run ask, and it is one run
		strings.Count(answers, `unknown tool \"start_code_session\"`) != 1 {
		t.Errorf("answers:\n%s", answers)
	} else if strings.Count(answers, `"told":true`) != 2 || len(s.part(ts, "agent-reply")) != 2 { // one for each run
		t.Errorf("the thread has %d replies, answers:\n%s", len(s.part(ts, "agent-reply")), answers)
	}
}

// doorScript is an agent that lists the tools at its door, and uses one if its prompt asks for it.
const doorScript = `agents:
  door:
    command:
      - sh
      - -c
      - |
        hand=; if grep -q "hand it over"; then hand=1; fi
        { cat <<'END'
        {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
        {"jsonrpc":"2.0","method":"notifications/initialized"}
        {"jsonrpc":"2.0","id":2,"method":"tools/list"}
        END
        if test -n "$hand"; then cat <<'END'
        {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fallback_session","arguments":{"prompt":"it needs a Mac"}}}
        {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"fallback_session","arguments":{"prompt":"it needs a Mac"}}}
        END
        fi
        } | /ramus mcp >answers.txt
        echo own work >own.txt
`

// toolsOf compares the tools that a run's journal lists with those that tools/list at its door gave the
// agent, and returns them, sorted.
func (s *chatServer) toolsOf(run record.Run) []string {
	s.t.Helper()
	var journalled struct {
		Tools []string `json:"tools"`
	}
	journal := s.sh(s.data, `git -C "repos/$0.git" cat-file blob "refs/ramus/runs/$1:journal.jsonl"`, run.Repo,
		strings.ReplaceAll(run.Name(), ":", "-"))
	for line := range strings.Lines(journal) {
		var e record.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Type == record.EventPolicy {
			if err := json.Unmarshal(e.Data, &journalled); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	slices.Sort(journalled.Tools)

	var offered []string
	answers := bufio.NewScanner(strings.NewReader(s.sh(s.data, `git -C "repos/$0.git" show "$1:answers.txt"`, run.Repo,
		run.Branch)))
	answers.Buffer(nil, 1<<20)
	for answers.Scan() {
		var a struct {
			ID     int `json:"id"`
			Result struct {
				Tools []struct {
					Name string `json:"name"`
				} `json:"tools"`
			} `json:"result"`
		}
		if err := json.Unmarshal(answers.Bytes(), &a); err != nil {
			s.t.Fatal(err)
		}
		if a.ID == 2 {
			for _, tool := range a.Result.Tools {
				offered = append(offered, tool.Name)
			}
		}
	}
	slices.Sort(offered)
	if len(offered) == 0 || !slices.Equal(journalled.Tools, offered) {
		s.t.Errorf("the journal of %s lists %q, its door %q", run.Name(), journalled.Tools, offered)
	}
	return offered
}

// agentRun waits for the end of the only agent's run that is not in known.
func (s *chatServer) agentRun(known ...string) (run record.Run) {
	s.t.Helper()
	s.poll("no agent's run ends", func() bool {
		for _, r := range s.runs() {
			if r.Kind == record.KindAgent && r.Ended() && !slices.Contains(known, r.Name()) {
				run = r
				return true
			}
		}
		return false
	})
	return run
}

// TestDoorOffersWhatIsListed compares journals and doors. It does so for a thread without a fallback runner, for
// one with it, and for a task. An agent hands its thread over, once, and its own run continues.
func TestDoorOffersWhatIsListed(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		s := newChatServer(t, doorScript)
		s.start()
		s.say("", "look")
		thread := s.agentRun()
		if got := s.toolsOf(thread); slices.Contains(got, "fallback_session") || !slices.Contains(got, "start_code_session") {
			t.Errorf("a thread's agent has %q", got)
		}
		s.ramus("task", "submit", "--repo", "sample", "--", "look")
		if got := s.toolsOf(s.agentRun(thread.Name())); slices.Contains(got, "start_code_session") || !slices.Contains(got, "spawn_task") {
			t.Errorf("a task's agent has %q", got)
		}
	})

	t.Run("with a fallback runner", func(t *testing.T) {
		runner, web := fallbacktest.New()
		t.Cleanup(web.Close)
		runner.Answer = func(p fallback.Packet) string { return "elsewhere: " + p.Text }
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte(fallbacktest.Secret), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newChatServer(t, fmt.Sprintf("%sfallback: {url: %q, secret_file: %q}\n", doorScript, web.URL, secret))
		s.start()
		ts := s.say("", "hand it over")
		s.until("both results", time.Minute, func() bool { return len(s.part(ts, "result")) == 2 })
		s.settle()
		run := s.agentRun()
		if got := s.toolsOf(run); !slices.Contains(got, "fallback_session") {
			t.Errorf("a thread's agent has %q", got)
		}
		if run.State != record.StateComplete || s.sh(s.data, `git -C "repos/$0.git" show "$1:own.txt"`, run.Repo,
			run.Branch) != "own work\n" {
			t.Errorf("its own run: %+v", run)
		}
		if answers := s.sh(s.data, `git -C "repos/$0.git" show "$1:answers.txt"`, run.Repo,
			run.Branch); strings.Count(answers, `"structuredContent":{"run":"`+run.Name()+`-fallback"`) != 2 {
			t.Errorf("answers:\n%s", answers)
		}
		requests := runner.Requests()
		if len(requests) != 1 { // both calls are one hand-over
			t.Fatalf("%d requests", len(requests))
		}
		var p fallback.Packet
		if err := json.Unmarshal(requests[0].Body, &p); err != nil || p.Text != "it needs a Mac" ||
			p.Mention.TS != ts || p.Key != "C01:"+ts || !strings.Contains(p.Thread.Parent.Text, "hand it over") {
			t.Errorf("the packet: %+v, %v", p, err)
		}
		said := 0
		for _, m := range s.part(ts, "result") {
			if strings.Contains(m.Text+string(m.Blocks), "elsewhere: it needs a Mac") {
				said++
			}
		}
		if said != 1 {
			t.Errorf("the runner's answer is posted %d times", said)
		}
	})
}
