package modeltest_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// A client of Gemini's that does what it is told comes to the end of the script.
func TestGenerateContent(t *testing.T) {
	for _, method := range []string{"generateContent", "streamGenerateContent", "streamGenerateContent?alt=sse"} {
		s, remote := modeltest.New()
		defer remote.Close()
		s.Answer = script
		var called []string
		contents := []any{map[string]any{"role": "user",
			"parts": []any{map[string]any{"text": "<session_context>make it pass</session_context>"},
				map[string]any{"text": "Make it pass: make it pass."}}}}
		for turn := 1; ; turn++ {
			status, answer := ask(t, remote.URL+"/gemini/v1beta/models/gemini-3-x:"+method,
				map[string]any{"contents": contents,
					"systemInstruction": map[string]any{"parts": []any{map[string]any{"text": "You are a client."}}},
					"tools": []any{map[string]any{"functionDeclarations": []any{map[string]any{"name": "Read"},
						map[string]any{"name": "Bash"}}}}})
			if status != 200 {
				t.Fatalf("%s: %d %s", method, status, answer)
			}
			type piece struct {
				Candidates []struct {
					Content struct {
						Parts []map[string]any `json:"parts"`
					} `json:"content"`
					Finish string `json:"finishReason"`
				} `json:"candidates"`
				Usage map[string]int64 `json:"usageMetadata"`
			}
			var pieces []piece
			var err error
			switch method {
			case "generateContent":
				err = json.Unmarshal([]byte("["+answer+"]"), &pieces)
			case "streamGenerateContent":
				err = json.Unmarshal([]byte(answer), &pieces)
			default:
				b, _ := json.Marshal(eventsOf(t, answer))
				err = json.Unmarshal(b, &pieces)
			}
			if err != nil {
				t.Fatalf("%s: %v", answer, err)
			}
			last := pieces[len(pieces)-1]
			if count := s.Calls()[turn-1].Output; last.Candidates[0].Finish != "STOP" || last.Usage["candidatesTokenCount"] != count {
				t.Errorf("%s, turn %d: %+v, want %d tokens", method, turn, last, count)
			}
			var parts, results []any
			text := ""
			for _, p := range pieces {
				for _, part := range p.Candidates[0].Content.Parts {
					parts = append(parts, part)
					if words, ok := part["text"].(string); ok {
						text += words
						continue
					}
					call := part["functionCall"].(map[string]any)
					args, _ := json.Marshal(call["args"])
					called = append(called, call["name"].(string)+" "+string(args))
					results = append(results, map[string]any{"functionResponse": map[string]any{"name": call["name"],
						"response": map[string]any{"output": "done"}}})
				}
			}
			contents = append(contents, map[string]any{"role": "model", "parts": parts})
			if len(results) == 0 {
				if text != "It passes." || turn != 3 {
					t.Errorf("%s, turn %d: %q", method, turn, text)
				}
				break
			}
			contents = append(contents,
				map[string]any{"role": "user", "parts": append(results, map[string]any{"text": "A client's remark."})})
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
func TestGeminiRefusals(t *testing.T) {
	s, remote := modeltest.New()
	defer remote.Close()
	s.Answer = script
	user := map[string]any{"role": "user", "parts": []any{map[string]any{"text": "hello"}}}
	call := map[string]any{"role": "model",
		"parts": []any{map[string]any{"functionCall": map[string]any{"name": "Read"}, "thoughtSignature": "c2ln"}}}
	result := map[string]any{"role": "user",
		"parts": []any{map[string]any{"functionResponse": map[string]any{"name": "Read",
			"response": map[string]any{"output": "x"}}}}}
	for name, contents := range map[string][]any{
		"a result nobody asked for": {user, result},
		"a call without a result":   {user, call, user},
		"a call at the end":         {user, call},
		"a result twice":            {user, call, result, result},
		"a call of a person":        {map[string]any{"role": "user", "parts": call["parts"]}},
		"an unknown role":           {map[string]any{"role": "assistant", "parts": user["parts"]}},
		"a call without what it thought": {user, map[string]any{"role": "model",
			"parts": []any{map[string]any{"functionCall": map[string]any{"name": "Read"}}}}, result},
		"nothing": {},
	} {
		if status, text := ask(t, remote.URL+"/gemini/v1beta/models/gemini-3-x:generateContent",
			map[string]any{"contents": contents}); status != 400 || !strings.Contains(text, "INVALID_ARGUMENT") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text := ask(t, remote.URL+"/gemini/v1beta/models/gemini-3-x:generateContent",
		map[string]any{"contents": []any{user, call, result}}); status != 200 {
		t.Errorf("a call with its result: %d %s", status, text)
	}
	bare := map[string]any{"role": "model", "parts": []any{map[string]any{"functionCall": map[string]any{"name": "Read"}}}}
	if status, text := ask(t, remote.URL+"/gemini/v1beta/models/gemini-3-x:generateContent",
		map[string]any{"contents": []any{user, bare, result, user}}); status != 200 {
		t.Errorf("a call of an earlier turn without what it thought: %d %s", status, text)
	}
	schema := map[string]any{"type": "OBJECT", "required": []any{"why", "score", "next"},
		"properties": map[string]any{"why": map[string]any{"type": "STRING"},
			"score": map[string]any{"type": "INTEGER"}, "next": map[string]any{"type": "STRING",
				"enum": []any{"user", "model"}}, "more": map[string]any{"type": "ARRAY"}}}
	if status, text := ask(t, remote.URL+"/gemini/v1beta/models/gemini-x:generateContent",
		map[string]any{"contents": []any{user},
			"generationConfig": map[string]any{"responseMimeType": "application/json",
				"responseJsonSchema": schema}}); status != 200 ||
		!strings.Contains(text, `{\"next\":\"user\",\"score\":1,\"why\":\"\"}`) {
		t.Errorf("by a schema: %d %s", status, text)
	}
	if status, text := ask(t, remote.URL+"/gemini/v1beta/models/gemini-x:countTokens",
		map[string]any{"generateContentRequest": map[string]any{"contents": []any{user}}}); status != 200 ||
		!strings.Contains(text, `"totalTokens":1`) {
		t.Errorf("counting: %d %s", status, text)
	}
	if status, text := ask(t, remote.URL+"/gemini/v1beta/models/gemini-x:generateContent",
		map[string]any{"contents": []any{user},
			"tools": []any{map[string]any{"functionDeclarations": []any{map[string]any{"name": "Read it"}}}}}); status != 400 {
		t.Errorf("a tool with a bad name: %d %s", status, text)
	}
}
