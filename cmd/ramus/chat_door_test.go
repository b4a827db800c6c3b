package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
)

// TestChatDoor has a thread's agent use the session's tools at its door: it leaves
// itself a word for its next turn, and asks for one run after its own. That one
// cannot ask for more.
func TestChatDoor(t *testing.T) {
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
        END
        } | /ramus mcp >>answers.txt
`)
	s.start()
	ts := s.say("", "use the door")
	s.until("the result", time.Minute, func() bool { return len(s.part(ts, "result")) == 1 })
	ended := func() (runs []executor.Run) {
		for _, r := range s.runs() {
			if r.Kind == executor.KindAgent && r.Ended() {
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
	if second.Parent != first.Name() || second.Branch != first.Branch || second.State != executor.StateComplete || second.Asker != first.Asker {
		t.Errorf("the run after: %+v", second)
	}
	read := func(file string) string {
		return s.sh(s.data, `git -C repos/sample.git show "$0"`, first.Branch+":"+file)
	}
	if said := read("said.txt"); strings.Count(said, "a word to myself") != 1 || strings.Count(said, "what comes after") != 1 {
		t.Errorf("said:\n%s", said)
	}
	if answers := read("answers.txt"); strings.Count(answers, `"structuredContent":{"run":"`+second.Name()) != 2 || // both turns of the first run ask; it is one
		strings.Count(answers, `unknown tool \"start_code_session\"`) != 1 {
		t.Errorf("answers:\n%s", answers)
	}
}
