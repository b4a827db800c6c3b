package modeltest_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// eventsOf are the objects of a stream of events.
func eventsOf(t *testing.T, stream string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var e map[string]any
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		all = append(all, e)
	}
	return all
}

// assembleResponse puts a streamed response together from its pieces, and
// compares it with what its end says.
func assembleResponse(t *testing.T, stream string) (output []map[string]any) {
	t.Helper()
	for i, e := range eventsOf(t, stream) {
		if e["sequence_number"] != float64(i) {
			t.Errorf("event %d is numbered %v", i, e["sequence_number"])
		}
		at := func() map[string]any { return output[int(e["output_index"].(float64))] }
		switch e["type"] {
		case "response.output_item.added":
			output = append(output, e["item"].(map[string]any))
		case "response.content_part.added":
			at()["content"] = []any{e["part"]}
		case "response.output_text.delta":
			part := at()["content"].([]any)[0].(map[string]any)
			part["text"] = part["text"].(string) + e["delta"].(string)
		case "response.function_call_arguments.delta":
			at()["arguments"] = at()["arguments"].(string) + e["delta"].(string)
		case "response.custom_tool_call_input.delta":
			at()["input"] = at()["input"].(string) + e["delta"].(string)
		case "response.output_item.done":
			at()["status"] = "completed"
			if !reflect.DeepEqual(at(), e["item"]) {
				t.Errorf("the pieces make %v, the item is %v", at(), e["item"])
			}
		case "response.completed":
			whole := e["response"].(map[string]any)
			for i, item := range whole["output"].([]any) {
				if !reflect.DeepEqual(output[i], item) {
					t.Errorf("the items make %v, the response has %v", output[i], item)
				}
			}
			if whole["usage"] == nil {
				t.Error("no usage")
			}
		}
	}
	return output
}

// A client of Responses that does what it is told comes to the end of the script.
func TestResponses(t *testing.T) {
	function := func(name string) map[string]any {
		return map[string]any{"type": "function", "name": name, "parameters": map[string]any{}}
	}
	text := map[string]any{"type": "custom", "name": "apply_patch"}
	offers := map[string]struct {
		tools, additional []any
		namespace         any
	}{
		"tools": {tools: []any{function("shell"), text, map[string]any{"type": "web_search"}}},
		"namespace": {tools: []any{map[string]any{"type": "namespace", "name": "box",
			"tools": []any{function("shell"), text}}}, namespace: "box"},
		"additional": {additional: []any{map[string]any{"type": "namespace", "name": "functions",
			"tools": []any{function("shell"), text}}}},
	}
	for name, offer := range offers {
		for _, streamed := range []bool{false, true} {
			s, remote := modeltest.New()
			defer remote.Close()
			s.Answer = modeltest.Play(modeltest.Scene{Prompt: "make it pass", Answers: []modeltest.Answer{
				{Text: "Let me look.", Calls: []modeltest.ToolCall{{Name: "shell",
					Input: map[string]any{"command": "ls — all"}},
					{Name: "apply_patch", Input: map[string]any{"input": "*** Begin Patch"}}}},
				{Calls: []modeltest.ToolCall{{Name: "shell"}}},
				{Text: "It passes."},
			}})
			var called []string
			var input []any
			if offer.additional != nil {
				input = append(input, map[string]any{"type": "additional_tools", "role": "developer",
					"tools": offer.additional})
			}
			input = append(input,
				map[string]any{"role": "developer",
					"content": []any{map[string]any{"type": "input_text", "text": "You are a client."}}},
				map[string]any{"type": "message", "role": "user", "content": []any{map[string]any{"type": "input_text",
					"text": "<environment_context>make it pass</environment_context>"}}},
				map[string]any{"role": "user", "content": "Please make it pass."})
			for turn := 1; ; turn++ {
				request := map[string]any{"model": "gpt-x", "input": input, "stream": streamed}
				if offer.tools != nil {
					request["tools"] = offer.tools
				}
				status, answer := ask(t, remote.URL+"/openai/v1/responses", request)
				if status != 200 {
					t.Fatalf("%s: %d %s", name, status, answer)
				}
				var output []map[string]any
				if streamed {
					output = assembleResponse(t, answer)
				} else {
					var r struct{ Output []map[string]any }
					if err := json.Unmarshal([]byte(answer), &r); err != nil {
						t.Fatal(err)
					}
					output = r.Output
				}
				calls := 0
				for _, item := range output {
					input = append(input, item)
					result := map[string]any{"type": item["type"].(string) + "_output", "call_id": item["call_id"],
						"output": "done"}
					switch item["type"] {
					case "function_call":
						called = append(called, item["name"].(string)+" "+item["arguments"].(string))
					case "custom_tool_call":
						called = append(called, item["name"].(string)+" "+item["input"].(string))
						result["output"] = []any{map[string]any{"type": "input_text", "text": "done"}}
					default:
						continue
					}
					if item["namespace"] != offer.namespace {
						t.Errorf("%s: called in the namespace %v", name, item["namespace"])
					}
					calls++
					input = append(input, result)
				}
				if calls > 0 {
					continue
				}
				if turn != 3 || output[0]["content"].([]any)[0].(map[string]any)["text"] != "It passes." {
					t.Errorf("%s, turn %d: %v", name, turn, output)
				}
				break
			}
			if want := []string{`shell {"command":"ls — all"}`, "apply_patch *** Begin Patch",
				"shell {}"}; !reflect.DeepEqual(called, want) {
				t.Errorf("%s: called %q, want %q", name, called, want)
			}
			if c := s.Complaints(); c != nil {
				t.Errorf("%s: complaints: %q", name, c)
			}
		}
	}
}

// The same in Chat Completions.
func TestCompletions(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		s, remote := modeltest.New()
		defer remote.Close()
		s.Answer = script
		var called []string
		messages := []any{map[string]any{"role": "system", "content": "You are a client."},
			map[string]any{"role": "user", "content": "make it pass"}}
		for turn := 1; ; turn++ {
			request := map[string]any{"model": "gpt-x", "messages": messages, "stream": streamed, "tools": []any{
				map[string]any{"type": "function", "function": map[string]any{"name": "Read"}},
				map[string]any{"type": "function", "function": map[string]any{"name": "Bash"}}}}
			status, answer := ask(t, remote.URL+"/openai/v1/chat/completions", request)
			if status != 200 {
				t.Fatalf("%d %s", status, answer)
			}
			type call struct {
				Index    int    `json:"index"`
				ID       string `json:"id"`
				Type     string `json:"type"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			}
			type said struct {
				Content string `json:"content"`
				Calls   []call `json:"tool_calls,omitempty"`
			}
			type choices struct {
				Choices []struct {
					Message, Delta said
					Finish         string `json:"finish_reason"`
				}
			}
			var m said
			var finish string
			if streamed {
				for _, e := range eventsOf(t, answer) {
					var c choices
					b, _ := json.Marshal(e)
					if err := json.Unmarshal(b, &c); err != nil {
						t.Fatal(err)
					}
					d := c.Choices[0].Delta
					m.Content += d.Content
					finish = c.Choices[0].Finish
					for _, part := range d.Calls {
						if part.ID != "" {
							m.Calls = append(m.Calls, part)
							continue
						}
						m.Calls[part.Index].Function.Arguments += part.Function.Arguments
					}
				}
			} else {
				var c choices
				if err := json.Unmarshal([]byte(answer), &c); err != nil {
					t.Fatal(err)
				}
				m, finish = c.Choices[0].Message, c.Choices[0].Finish
			}
			if len(m.Calls) == 0 {
				if finish != "stop" || m.Content != "It passes." || turn != 3 {
					t.Errorf("turn %d: %s %+v", turn, finish, m)
				}
				break
			}
			if finish != "tool_calls" {
				t.Errorf("turn %d ends with %q", turn, finish)
			}
			messages = append(messages, map[string]any{"role": "assistant", "content": m.Content, "tool_calls": m.Calls})
			for _, c := range m.Calls {
				called = append(called, c.Function.Name+" "+c.Function.Arguments)
				messages = append(messages, map[string]any{"role": "tool", "tool_call_id": c.ID, "content": "done"})
			}
		}
		if want := []string{`Read {"path":"a.go"}`, `Bash {"command":"ls — all"}`, "Bash {}"}; !reflect.DeepEqual(called, want) {
			t.Errorf("called %q, want %q", called, want)
		}
		if c := s.Complaints(); c != nil {
			t.Errorf("complaints: %q", c)
		}
	}
}

// What the real one refuses.
func TestOpenAIRefusals(t *testing.T) {
	s, remote := modeltest.New()
	defer remote.Close()
	s.Answer = script
	user := map[string]any{"role": "user", "content": "hello"}
	call := map[string]any{"type": "function_call", "call_id": "c1", "name": "Read", "arguments": "{}"}
	output := map[string]any{"type": "function_call_output", "call_id": "c1", "output": "x"}
	for name, input := range map[string]any{
		"an output nobody asked for": []any{user, output},
		"an output of another kind": []any{user, call,
			map[string]any{"type": "custom_tool_call_output", "call_id": "c1", "output": "x"}},
		"a call without an output": []any{user, call, user},
		"an output twice":          []any{user, call, output, output},
		"a call without an id":     []any{user, map[string]any{"type": "function_call", "name": "Read"}},
		"an unknown role":          []any{map[string]any{"role": "tool", "content": "x"}},
		"input that is a number":   1,
		"a tool with a bad name": []any{map[string]any{"type": "additional_tools",
			"tools": []any{map[string]any{"type": "function", "name": "Read it"}}}, user},
		"a tool without one in a set": []any{map[string]any{"type": "additional_tools",
			"tools": []any{map[string]any{"type": "namespace", "name": "n",
				"tools": []any{map[string]any{"type": "custom"}}}}}, user},
	} {
		if status, text := ask(t, remote.URL+"/openai/v1/responses", map[string]any{"model": "m",
			"input": input}); status != 400 || !strings.Contains(text, "invalid_request_error") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text := ask(t, remote.URL+"/openai/v1/responses",
		map[string]any{"model": "m", "input": "hello", "previous_response_id": "resp_0"}); status != 400 {
		t.Errorf("a response that was not stored: %d %s", status, text)
	}
	use := map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{"id": "c1", "type": "function",
		"function": map[string]any{"name": "Read", "arguments": "{}"}}}}
	result := map[string]any{"role": "tool", "tool_call_id": "c1", "content": "x"}
	for name, messages := range map[string][]any{
		"a result nobody asked for": {user, result},
		"a call without a result":   {user, use, user},
		"a call at the end":         {user, use},
		"a result twice":            {user, use, result, result},
		"an unknown role":           {map[string]any{"role": "human", "content": "x"}},
	} {
		if status, text := ask(t, remote.URL+"/openai/v1/chat/completions", map[string]any{"model": "m",
			"messages": messages}); status != 400 || !strings.Contains(text, "invalid_request_error") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}
