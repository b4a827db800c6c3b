package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// openai speaks Chat Completions, Responses and Embeddings.
func (x *exchange) openai() {
	switch x.path {
	case "/v1/models":
		x.whole(object{"object": "list", "data": []any{object{"id": "gpt-stand-in-1", "object": "model", "owned_by": "stand-in"}}})
	case "/v1/chat/completions":
		x.completions()
	case "/v1/responses":
		x.responses()
	case "/v1/embeddings":
		x.embeddings()
	default:
		x.refuse(http.StatusNotFound, "Invalid URL (%s %s)", x.r.Method, x.path)
	}
}

func (x *exchange) completions() {
	var q struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		Stream   bool      `json:"stream"`
		Options  *struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if !x.question(&q) {
		return
	}
	switch {
	case q.Model == "":
		x.refuse(http.StatusBadRequest, "you must provide a model parameter")
		return
	case len(q.Messages) == 0:
		x.refuse(http.StatusBadRequest, "[] is too short - 'messages'")
		return
	case q.Options != nil && !q.Stream:
		x.refuse(http.StatusBadRequest, "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
		return
	}
	words := x.say(said(q.Messages))
	usage := object{"prompt_tokens": x.call.Input, "completion_tokens": x.call.Output, "total_tokens": x.call.Input + x.call.Output,
		"prompt_tokens_details": object{"cached_tokens": x.s.CacheRead}}
	if !q.Stream {
		a := object{"id": "chatcmpl-1", "object": "chat.completion", "model": q.Model, "usage": usage, "choices": []any{object{
			"index": 0, "message": object{"role": "assistant", "content": strings.Join(words, "")}, "finish_reason": "stop"}}}
		if x.fault.NoUsage {
			delete(a, "usage")
		}
		x.whole(a)
		return
	}
	withUsage := q.Options != nil && q.Options.IncludeUsage && !x.fault.NoUsage
	chunk := func(choices ...any) object {
		c := object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": q.Model, "choices": append([]any{}, choices...)}
		if withUsage {
			c["usage"] = nil
		}
		return c
	}
	s := x.stream("text/event-stream")
	defer s.end()
	s.event("", chunk(object{"index": 0, "delta": object{"role": "assistant", "content": ""}, "finish_reason": nil}))
	for _, word := range words {
		s.event("", chunk(object{"index": 0, "delta": object{"content": word}, "finish_reason": nil}))
	}
	s.event("", chunk(object{"index": 0, "delta": object{}, "finish_reason": "stop"}))
	if withUsage {
		last := chunk()
		last["usage"] = usage
		s.event("", last)
	}
	s.event("", "[DONE]")
}

func (x *exchange) responses() {
	var q struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Stream     bool            `json:"stream"`
		Background bool            `json:"background"`
	}
	if !x.question(&q) {
		return
	}
	text := textOf(q.Input)
	var messages []message
	if json.Unmarshal(q.Input, &messages) == nil && len(messages) > 0 && messages[0].Content != nil {
		text = said(messages)
	}
	switch {
	case q.Model == "":
		x.refuse(http.StatusBadRequest, "Missing required parameter: 'model'.")
		return
	case q.Background:
		x.s.complain("openai: background work, which nobody counts")
	}
	words := x.say(text)
	response := func(status string) object {
		r := object{"id": "resp_1", "object": "response", "status": status, "model": q.Model, "output": []any{}, "usage": nil}
		if status == "completed" {
			r["output"] = []any{object{"type": "message", "role": "assistant", "content": []any{object{"type": "output_text", "text": strings.Join(words, "")}}}}
			if !x.fault.NoUsage {
				r["usage"] = object{"input_tokens": x.call.Input, "input_tokens_details": object{"cached_tokens": x.s.CacheRead},
					"output_tokens": x.call.Output, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": x.call.Input + x.call.Output}
			}
		}
		return r
	}
	if !q.Stream {
		x.whole(response("completed"))
		return
	}
	s := x.stream("text/event-stream; charset=utf-8")
	defer s.end()
	event := func(name string, o object) {
		o["type"], o["sequence_number"] = name, x.events
		s.event(name, o)
	}
	event("response.created", object{"response": response("in_progress")})
	event("response.output_item.added", object{"output_index": 0, "item": object{"type": "message", "id": "msg_1"}})
	for _, word := range words {
		event("response.output_text.delta", object{"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word})
	}
	event("response.output_text.done", object{"item_id": "msg_1", "text": strings.Join(words, "")})
	event("response.completed", object{"response": response("completed")})
}

func (x *exchange) embeddings() {
	var q struct {
		Model string `json:"model"`
		Input string `json:"input"`
	}
	if !x.question(&q) {
		return
	}
	x.say(q.Input)
	x.call.Output = 0
	x.whole(object{"object": "list", "model": q.Model, "data": []any{object{"object": "embedding", "index": 0, "embedding": []float64{0.5, -0.5}}},
		"usage": object{"prompt_tokens": x.call.Input, "total_tokens": x.call.Input}})
}

func said(messages []message) string {
	var all []string
	for _, m := range messages {
		all = append(all, textOf(m.Content))
	}
	return strings.Join(all, " ")
}
