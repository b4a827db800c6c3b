package modeltest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// questions are what real clients ask, one for each way to ask.
var questions = []struct{ path, body string }{
	{"/anthropic/v1/messages", `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"tools":[{"name":"Read","input_schema":{}}],"messages":[
		{"role":"user","content":"make it pass"},{"role":"assistant","content":[{"type":"text","text":"I read."},{"type":"tool_use","id":"t","name":"Read","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"}]},{"type":"text","text":"y"}]}]}`},
	{"/anthropic/v1/messages", `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hello"}]}`},
	{"/openai/v1/chat/completions",
		`{"model":"m","messages":[{"role":"user","content":"make it pass"}],"tools":[{"type":"function","function":{"name":"Read","parameters":{}}}]}`},
	{"/openai/v1/responses",
		`{"model":"m","stream":true,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"make it pass"}]}],"tools":[{"type":"function","name":"Read","parameters":{}}]}`},
	{"/gemini/v1beta/models/m:generateContent",
		`{"contents":[{"role":"user","parts":[{"text":"make it pass"}]}],"tools":[{"functionDeclarations":[{"name":"Read"}]}]}`},
	{"/gemini/v1beta/models/m:streamGenerateContent", `{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}`},
}

// Every request is answered or refused, as JSON or as a stream.
func FuzzQuestion(f *testing.F) {
	for i, q := range questions {
		f.Add(byte(i), []byte(q.body))
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		s := &modeltest.Server{Answer: script}
		r := httptest.NewRequest("POST", questions[int(which)%len(questions)].path, strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Anthropic-Version", "2023-06-01")
		switch {
		case strings.HasPrefix(r.URL.Path, "/anthropic"):
			r.Header.Set("X-Api-Key", modeltest.Key)
		case strings.HasPrefix(r.URL.Path, "/openai"):
			r.Header.Set("Authorization", "Bearer "+modeltest.Key)
		default:
			r.Header.Set("X-Goog-Api-Key", modeltest.Key)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(w.Body.Bytes()) {
			t.Errorf("no JSON: %s", w.Body)
		}
		if calls := s.Calls(); len(calls) != 1 || calls[0].Status != w.Code {
			t.Errorf("recorded %d calls, answered %d", len(calls), w.Code)
		}
	})
}

// The questions of the corpus are good ones.
func TestQuestions(t *testing.T) {
	s, remote := modeltest.New()
	defer remote.Close()
	s.Answer = script
	for _, q := range questions {
		var body map[string]any
		if err := json.Unmarshal([]byte(q.body), &body); err != nil {
			t.Fatal(err)
		}
		if status, text := ask(t, remote.URL+q.path, body); status != http.StatusOK {
			t.Errorf("%s: %d %s", q.path, status, text)
		}
	}
}
