package main

import (
	"strings"
	"testing"
	"time"
)

// sayScript is an agent that posts in its thread and in two channels, more often than it may.
const sayScript = `  post_channels: [C02]
agents:
  door:
    command:
      - sh
      - -c
      - |
        { cat <<'END'
        {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
        {"jsonrpc":"2.0","method":"notifications/initialized"}
        {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"reply_to_thread","arguments":{"text":"half <!channel> way *done* <@U02>"}}}
        {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"reply_to_thread","arguments":{"text":"half <!channel> way *done* <@U02>"}}}
        {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"post_message","arguments":{"channel":"C02","text":"released <!here>"}}}
        {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"post_message","arguments":{"channel":"C02","text":"released <!here>"}}}
        {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"post_message","arguments":{"channel":"C01","text":"not allowed"}}}
        END
        } | /ramus mcp >answers.txt
`

// TestAgentsSpeak has the agent of a mention, and one that a person runs by hand, post in Slack. Their texts mention
// nobody, and their number is limited.
func TestAgentsSpeak(t *testing.T) {
	t.Parallel()
	s := newChatServer(t, "")
	config := s.data + "/ramus.yaml"
	s.sh(s.data, `sed -i '/^gate:/,$d' "$0"; printf '%s\ngate: {enabled: true, thread_starters: [U01]}\nengine: sandbox\n' "$1" >>"$0"`, config, sayScript)
	s.start()
	ts := s.say("", "speak up")
	s.until("the result", time.Minute, func() bool { return len(s.part(ts, "result")) == 1 })
	texts := func(channel, part string) (all []string) {
		for _, m := range s.slack.Messages(channel) {
			if m.Metadata != nil && strings.Contains(string(m.Metadata.Payload), `"`+part+`"`) {
				all = append(all, string(m.Blocks))
			}
		}
		return all
	}
	replies, posts := texts("C01", "agent-reply"), texts("C02", "agent-post")
	if len(replies) != 1 || !strings.Contains(replies[0], "half \\u0026lt;!channel\\u0026gt; way") ||
		strings.Contains(replies[0], "<@U02>") {
		t.Errorf("in the thread: %q", replies)
	}
	if len(posts) != 1 || !strings.Contains(posts[0], "released \\u0026lt;!here\\u0026gt; — conv:") {
		t.Errorf("in the channel: %q", posts)
	}
	if all := strings.Join(append(texts("C01", "agent-post"), texts("C02", "agent-reply")...), ""); all != "" {
		t.Errorf("elsewhere: %s", all)
	}
	run := s.agentRun()
	if answers := s.sh(s.data, `git -C "repos/$0.git" show "$1:answers.txt"`, run.Repo,
		run.Branch); strings.Count(answers, `"told":true`) != 2 || strings.Count(answers, `"told":false`) != 2 {
		t.Errorf("answers:\n%s", answers)
	}

	// An agent without a thread has the channels, and no thread.
	s.ramus("agent", "hand", "--repo", "sample", "--", "speak up")
	by := s.agentRun(run.Name())
	if answers := s.sh(s.data, `git -C "repos/$0.git" show "$1:answers.txt"`, by.Repo,
		by.Branch); strings.Count(answers, `"told":true`) != 1 ||
		!strings.Contains(answers, `unknown tool \"reply_to_thread\"`) {
		t.Errorf("answers to an agent without a thread:\n%s", answers)
	}
}
