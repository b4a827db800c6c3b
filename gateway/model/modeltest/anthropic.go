package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// anthropic speaks the Messages API.
func (x *exchange) anthropic() {
	if x.r.Header.Get("Anthropic-Version") == "" {
		x.refuse(http.StatusBadRequest, "anthropic-version: header is required")
		return
	}
	switch {
	case x.path == "/v1/models" && x.r.Method == http.MethodGet:
		x.whole(object{"data": []any{object{"type": "model", "id": "claude-stand-in-1", "display_name": "Stand-in"}}, "has_more": false})
	case x.path == "/v1/messages", x.path == "/v1/messages/count_tokens":
		x.messages()
	default:
		x.refuse(http.StatusNotFound, "not found: %s", x.path)
	}
}

// textOf finds the text in a message's content: a string, or a list of parts.
func textOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var all []string
	for _, p := range parts {
		all = append(all, p.Text)
	}
	return strings.Join(all, " ")
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

func said(messages []message) string {
	var all []string
	for _, m := range messages {
		all = append(all, textOf(m.Content))
	}
	return strings.Join(all, " ")
}

func (x *exchange) messages() {
	var q struct {
		Model     string    `json:"model"`
		MaxTokens int64     `json:"max_tokens"`
		Messages  []message `json:"messages"`
		Stream    bool      `json:"stream"`
	}
	if !x.question(&q) {
		return
	}
	counting := x.path != "/v1/messages"
	switch {
	case q.Model == "":
		x.refuse(http.StatusBadRequest, "model: field required")
		return
	case len(q.Messages) == 0:
		x.refuse(http.StatusBadRequest, "messages: at least one message is required")
		return
	case !counting && q.MaxTokens < 1:
		x.refuse(http.StatusBadRequest, "max_tokens: field required")
		return
	}
	words := x.say(said(q.Messages))
	if counting {
		x.whole(object{"input_tokens": x.call.Input})
		return
	}
	usage := object{"input_tokens": x.call.Input - x.s.CacheRead - x.s.CacheWrite, "cache_read_input_tokens": x.s.CacheRead,
		"cache_creation_input_tokens": x.s.CacheWrite, "output_tokens": x.call.Output}
	m := object{"id": "msg_1", "type": "message", "role": "assistant", "model": q.Model,
		"content": []any{object{"type": "text", "text": strings.Join(words, "")}}, "stop_reason": "end_turn", "stop_sequence": nil, "usage": usage}
	if x.fault.NoUsage {
		delete(m, "usage")
	}
	if !q.Stream {
		x.whole(m)
		return
	}
	m["content"], m["stop_reason"] = []any{}, nil
	if !x.fault.NoUsage {
		m["usage"] = object{"input_tokens": usage["input_tokens"], "cache_read_input_tokens": x.s.CacheRead,
			"cache_creation_input_tokens": x.s.CacheWrite, "output_tokens": 1}
	}
	s := x.stream("text/event-stream; charset=utf-8")
	defer s.end()
	s.event("message_start", object{"type": "message_start", "message": m})
	s.event("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}})
	s.event("ping", object{"type": "ping"})
	for _, word := range words {
		s.event("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": word}})
	}
	s.event("content_block_stop", object{"type": "content_block_stop", "index": 0})
	end := object{"type": "message_delta", "delta": object{"stop_reason": "end_turn", "stop_sequence": nil}}
	if !x.fault.NoUsage {
		end["usage"] = object{"output_tokens": x.call.Output}
	}
	s.event("message_delta", end)
	s.event("message_stop", object{"type": "message_stop"})
}
