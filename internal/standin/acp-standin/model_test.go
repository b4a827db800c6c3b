package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/standin/acptest"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// TestModel plays a turn against a stand-in of the API that is busy at first:
// the tools it calls are used, and their results reach it.
func TestModel(t *testing.T) {
	api := &modeltest.Server{Answer: modeltest.Play(modeltest.Scene{Prompt: "make it green", Answers: []modeltest.Answer{
		{Text: "I look first.", Calls: []modeltest.ToolCall{{Name: "read", Input: map[string]any{"path": "a.txt"}},
			{Name: "bash", Input: map[string]any{"command": "make test"}}}},
		{Calls: []modeltest.ToolCall{{Name: "edit", Input: map[string]any{"path": "a.txt", "old": "red", "new": "green"}}}},
		{Text: "It is green."},
	}})}
	api.Fail(modeltest.Fault{Status: http.StatusTooManyRequests, RetryAfter: "0"}, modeltest.Fault{Status: 529})
	server := httptest.NewServer(api)
	defer server.Close()
	m := &model{url: server.URL + "/anthropic", key: modeltest.Key, model: "claude-sonnet-4-5", client: server.Client()}
	history := []acptest.Entry{{Role: "user", Text: "Please make it green."}}
	var used []string
	for range 10 {
		step, err := m.Next(t.Context(), acptest.View{History: history})
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, acptest.Entry{Role: "agent", Text: step.Text, Calls: step.Calls})
		for i, c := range step.Calls {
			used = append(used, c.Tool+" "+c.Args["path"]+c.Args["command"])
			history = append(history, acptest.Entry{Role: "tool", CallID: c.ID, Text: "result", Failed: i == 1})
		}
		if len(step.Calls) == 0 {
			break
		}
	}
	if got := strings.Join(used, ", "); got != "read a.txt, bash make test, edit a.txt" {
		t.Errorf("used %s", got)
	}
	if last := history[len(history)-1]; last.Text != "It is green.\n" {
		t.Errorf("said %q", last.Text)
	}
	// One more turn, after a process that was ended between a call and its result.
	history = append(history, acptest.Entry{Role: "user", Text: "Look again."},
		acptest.Entry{Role: "agent",
			Calls: []acptest.Call{{ID: "toolu_lost", Tool: "read", Args: map[string]string{"path": "b"}}}},
		acptest.Entry{Role: "user", Text: "You were interrupted."})
	if _, err := m.Next(t.Context(), acptest.View{History: history}); err != nil {
		t.Error(err)
	}
	for _, c := range api.Complaints() {
		t.Error(c)
	}
}
