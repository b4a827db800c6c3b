package modeltest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// script has the model read a file and run a command at once, edit, and end.
var script = modeltest.Play(modeltest.Scene{Prompt: "make it pass", Answers: []modeltest.Answer{
	{Text: "Let me look.", Calls: []modeltest.ToolCall{{Name: "Read", Input: map[string]any{"path": "a.go"}},
		{Name: "Bash", Input: map[string]any{"command": "ls — all"}}}},
	{Calls: []modeltest.ToolCall{{Name: "Bash"}}},
	{Text: "It passes."},
}})

type anthropicBlock struct {
	Type      string         `json:"type"`
	Text      string         `json:"text,omitempty"`
	ID        string         `json:"id,omitempty"`
	Name      string         `json:"name,omitempty"`
	Input     map[string]any `json:"input,omitempty"`
	ToolUseID string         `json:"tool_use_id,omitempty"`
	Content   any            `json:"content,omitempty"`
}

type anthropicAnswer struct {
	ID         string           `json:"id"`
	Content    []anthropicBlock `json:"content"`
	StopReason string           `json:"stop_reason"`
}

// ask posts a request.
func ask(t *testing.T, url string, body map[string]any) (int, string) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	switch {
	case strings.Contains(url, "/openai/"):
		r.Header.Set("Authorization", "Bearer "+modeltest.Key)
	case strings.Contains(url, "/gemini/"):
		r.Header.Set("X-Goog-Api-Key", modeltest.Key)
	default:
		r.Header.Set("X-Api-Key", modeltest.Key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// assemble puts a streamed answer together as a client does.
func assemble(t *testing.T, stream string) (a anthropicAnswer) {
	t.Helper()
	var inputs []string
	lines := bufio.NewScanner(strings.NewReader(stream))
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type    string          `json:"type"`
			Index   int             `json:"index"`
			Message anthropicAnswer `json:"message"`
			Block   anthropicBlock  `json:"content_block"`
			Delta   struct {
				Type, Text string
				Partial    string `json:"partial_json"`
				StopReason string `json:"stop_reason"`
			} `json:"delta"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case "message_start":
			a = e.Message
		case "content_block_start":
			a.Content, inputs = append(a.Content, e.Block), append(inputs, "")
		case "content_block_delta":
			a.Content[e.Index].Text += e.Delta.Text
			inputs[e.Index] += e.Delta.Partial
		case "content_block_stop":
			if text := inputs[e.Index]; text != "" {
				if err := json.Unmarshal([]byte(text), &a.Content[e.Index].Input); err != nil {
					t.Fatal(err)
				}
			}
		case "message_delta":
			a.StopReason = e.Delta.StopReason
		}
	}
	return a
}

// A client that does what it is told comes to the end of the script, streamed or not.
func TestPlay(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		s, remote := modeltest.New()
		defer remote.Close()
		s.Answer = script
		var names []string
		ids := map[string]bool{}
		messages := []map[string]any{{"role": "user", "content": []anthropicBlock{
			{Type: "text", Text: "<system-reminder>make it pass the lint</system-reminder>"},
			{Type: "text", Text: "Please make it pass."}}}}
		for turn := 1; ; turn++ {
			request := map[string]any{"model": "claude-x", "max_tokens": 100, "messages": messages, "stream": streamed,
				"system": "You are a client.",
				"tools": []any{map[string]any{"name": "Read", "input_schema": map[string]any{}},
					map[string]any{"name": "Bash", "input_schema": map[string]any{}}}}
			status, text := ask(t, remote.URL+"/anthropic/v1/messages", request)
			if status != 200 {
				t.Fatalf("%d %s", status, text)
			}
			var a anthropicAnswer
			if streamed {
				a = assemble(t, text)
			} else if err := json.Unmarshal([]byte(text), &a); err != nil {
				t.Fatal(err)
			}
			if ids[a.ID] {
				t.Errorf("two messages are %s", a.ID)
			}
			ids[a.ID] = true
			messages = append(messages, map[string]any{"role": "assistant", "content": a.Content})
			if a.StopReason != "tool_use" {
				if a.StopReason != "end_turn" || a.Content[0].Text != "It passes." || turn != 3 {
					t.Errorf("turn %d: %+v", turn, a)
				}
				break
			}
			var results []anthropicBlock
			for _, b := range a.Content {
				if b.Type == "tool_use" {
					names = append(names, b.Name)
					if b.Name == "Bash" && turn == 1 && b.Input["command"] != "ls — all" {
						t.Errorf("%+v", b)
					}
					results = append(results, anthropicBlock{Type: "tool_result", ToolUseID: b.ID,
						Content: []anthropicBlock{{Type: "text", Text: "done"}}})
				}
			}
			// What a client remarks on results is no prompt.
			results = append(results, anthropicBlock{Type: "text", Text: "There are 3 tasks left."})
			messages = append(messages, map[string]any{"role": "user", "content": results})
		}
		if want := []string{"Read", "Bash", "Bash"}; !reflect.DeepEqual(names, want) {
			t.Errorf("called %q, want %q", names, want)
		}
		if c := s.Complaints(); c != nil {
			t.Errorf("complaints: %q", c)
		}
		for i, c := range s.Calls() {
			if c.Output == 0 || i > 0 && c.Input <= s.Calls()[i-1].Input {
				t.Errorf("call %d: %d in, %d out", i, c.Input, c.Output)
			}
		}
	}
}

func TestQuestion(t *testing.T) {
	s, remote := modeltest.New()
	defer remote.Close()
	var got modeltest.Question
	s.Answer = func(q modeltest.Question) modeltest.Answer { got = q; return modeltest.Answer{Text: "yes"} }
	status, text := ask(t, remote.URL+"/anthropic/v1/messages", map[string]any{"model": "claude-x", "max_tokens": 1,
		"system": []any{map[string]any{"type": "text", "text": "Be brief."}},
		"tools":  []any{map[string]any{"name": "Read", "input_schema": map[string]any{}}},
		"messages": []any{
			map[string]any{"role": "user", "content": "first"},
			map[string]any{"role": "assistant", "content": "well"},
			map[string]any{"role": "user", "content": "second"},
			map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "tool_use", "id": "t1",
				"name": "Read", "input": map[string]any{}}}},
			map[string]any{"role": "user",
				"content": []any{map[string]any{"type": "tool_result", "tool_use_id": "t1", "content": "a file"}}},
		}})
	want := modeltest.Question{Provider: "anthropic", Model: "claude-x", System: "Be brief.", Tools: []string{"Read"},
		Prompt: "second", Results: []string{"a file"}, Said: "first second a file"}
	if status != 200 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d %s\n got %+v\nwant %+v", status, text, got, want)
	}
}

// What the real one refuses.
func TestRefusals(t *testing.T) {
	s, remote := modeltest.New()
	defer remote.Close()
	s.Answer = script
	use := map[string]any{"role": "assistant",
		"content": []any{map[string]any{"type": "tool_use", "id": "t1", "name": "Read", "input": map[string]any{}}}}
	result := map[string]any{"role": "user",
		"content": []any{map[string]any{"type": "tool_result", "tool_use_id": "t1", "content": "x"}}}
	person := map[string]any{"role": "user", "content": "hello"}
	for name, messages := range map[string][]any{
		"a result nobody asked for": {person, result},
		"a call without a result":   {person, use, person},
		"a result twice":            {person, use, result, result},
		"an unknown role":           {map[string]any{"role": "tool", "content": "x"}},
		"a call of a person":        {map[string]any{"role": "user", "content": use["content"]}},
		"content that is a number":  {map[string]any{"role": "user", "content": 1}},
		"a part without a type":     {map[string]any{"role": "user", "content": []any{map[string]any{"text": "x"}}}},
		"an empty text among others": {map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "text", "text": "x"}, map[string]any{"type": "text", "text": ""}}}},
	} {
		if status, text := ask(t, remote.URL+"/anthropic/v1/messages", map[string]any{"model": "m", "max_tokens": 1,
			"messages": messages}); status != 400 || !strings.Contains(text, "invalid_request_error") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for name, tool := range map[string]map[string]any{
		"a tool without a schema": {"name": "Read"},
		"a tool with a bad name":  {"name": "Read it", "input_schema": map[string]any{}},
	} {
		if status, text := ask(t, remote.URL+"/anthropic/v1/messages", map[string]any{"model": "m", "max_tokens": 1,
			"messages": []any{person}, "tools": []any{tool}}); status != 400 {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, _ := ask(t, remote.URL+"/anthropic/v1/messages", map[string]any{"model": "m", "max_tokens": 1,
		"messages": []any{map[string]any{"role": "user", "content": "make it pass"}},
		"tools":    []any{map[string]any{"name": "Other", "input_schema": map[string]any{}}}}); status != 200 ||
		len(s.Complaints()) == 0 {
		t.Error("nobody complained of a script that calls a tool that is not there")
	}
}
